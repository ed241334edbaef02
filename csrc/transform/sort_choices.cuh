// Sorts the choices of tokens by expert, stably: each warp counts the choices of its own part by
// expert, the counts become the rows where those of every warp begin, and each warp hands its rows
// out in order. What a choice gets does not turn on which warp is first. Where there are more
// experts than counters, a block does some at a time.
//
// Few choices are sorted by one block. Many are shared out to blocks, whose counts a kernel before
// has written (sort_counts_kernel): one block takes 2 us for each 1024 choices (H200).
#pragma once
#include <cstdint>

#include "grid/pdl.cuh"
#include "problem/moe.h"

namespace mixed_gemm {

constexpr int kMostSortThreads = 1024;
constexpr int kMostSortWarps = kMostSortThreads / 32;
constexpr unsigned kWholeWarp = 0xffffffffu;

struct SortChoicesParams {
  const void* ids;
  int64_t experts;
  int32_t* offs;
  int32_t* positions;
  int64_t count;    // of choices
  int64_t segment;  // choices of a warp, a multiple of 32
  int warps;        // of a block that have choices; the block has as many or more
  int part;         // experts that are counted at a time
  int blocks;       // that share the choices out
  int32_t* counts;  // [blocks, experts], of every block; null where there is one

  __device__ int64_t first_choice(int warp) const {
    const int64_t before = static_cast<int64_t>(blockIdx.x) * warps + warp;
    return warp < warps ? min(before * segment, count) : count;
  }
};

// The choices of one warp, and its counters.
template <typename Id>
struct SortedSegment {
  const Id* ids;
  int64_t begin, end;
  int* counters;  // an element for each expert of the part

  // Calls body(index, id, key) for all choices in their order, a lane each; key is the counter, or
  // -1 where the expert is not one of this part, or there is none. The loads of some steps are
  // under way at once.
  template <typename Body>
  __device__ void for_each(int64_t first, int experts, const Body& body) const {
    constexpr int kSteps = 4;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int64_t at = begin; at < end; at += 32 * kSteps) {
      Id loaded[kSteps];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int64_t index = at + 32 * step + lane;
        loaded[step] = index < end ? ids[index] : Id(-1);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (at + 32 * step >= end) break;  // all lanes do
        const int64_t id = loaded[step];
        const bool here = id >= first && id < first + experts;
        body(at + 32 * step + lane, id, here ? static_cast<int>(id - first) : -1);
      }
    }
  }
};

// Whether this lane is the first of `peers`.
__device__ inline bool leads(unsigned peers) {
  return static_cast<int>(threadIdx.x) % 32 == __ffs(static_cast<int>(peers)) - 1;
}

// The choices of an expert in all blocks, and in those before this one.
struct CountedExpert {
  int all, before;
};
__device__ inline CountedExpert counted(const SortChoicesParams& p, const int* counters,
                                        int64_t first, int expert) {
  CountedExpert found{0, 0};
  if (p.counts == nullptr) {
    for (int w = 0; w < p.warps; ++w) found.all += counters[w * p.part + expert];
    return found;
  }
  for (int block = 0; block < p.blocks; ++block) {
    const int count = p.counts[block * p.experts + first + expert];
    found.all += count;
    if (block < static_cast<int>(blockIdx.x)) found.before += count;
  }
  return found;
}

// counters[warp * part + expert], a count, becomes the row where those choices begin: all of an
// expert behind those of the expert before, a block and a warp behind the one before. Writes where
// the experts end; returns the rows up to there. first: expert of this part. before: rows of the
// experts in front of it. of_warps: an element for each warp.
__device__ inline int place_counts(const SortChoicesParams& p, int* of_warps, int* counters,
                                   int64_t first, int experts, int before) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int threads = static_cast<int>(blockDim.x), each = (experts + threads - 1) / threads;
  const int from = min(thread * each, experts), to = min(from + each, experts);
  int sum = 0;
  for (int expert = from; expert < to; ++expert) sum += counted(p, counters, first, expert).all;
  int through = sum;  // of this thread and those in front of it in the warp
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kWholeWarp, through, distance);
    if (lane >= distance) through += other;
  }
  if (lane == 31) of_warps[warp] = through;
  __syncthreads();
  const int of_lane = lane < threads / 32 ? of_warps[lane] : 0;
  const int all = __reduce_add_sync(kWholeWarp, of_lane);
  int row = before + __reduce_add_sync(kWholeWarp, lane < warp ? of_lane : 0) + through - sum;
  for (int expert = from; expert < to; ++expert) {
    const CountedExpert found = counted(p, counters, first, expert);
    int of_warp = row + found.before;
    for (int w = 0; w < p.warps; ++w) {
      int& counter = counters[w * p.part + expert];
      const int count = counter;
      counter = of_warp;
      of_warp += count;
    }
    row += found.all;
    if (blockIdx.x == 0) p.offs[first + expert] = row;
  }
  return before + all;
}

// Counts the choices of each block by expert.
template <typename Id>
__global__ void __launch_bounds__(kMostSortThreads) sort_counts_kernel(const SortChoicesParams p) {
  extern __shared__ int count_memory[];  // [part]
  pdl_wait();
  pdl_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t begin = p.first_choice(thread / 32);
  const SortedSegment<Id> mine{static_cast<const Id*>(p.ids), begin,
                               min(begin + p.segment, p.count), count_memory};
  for (int64_t first = 0; first < p.experts; first += p.part) {
    const int experts = static_cast<int>(min(p.experts - first, int64_t{p.part}));
    for (int i = thread; i < experts; i += threads) count_memory[i] = 0;
    __syncthreads();
    mine.for_each(first, experts, [&](int64_t, int64_t, int key) {
      if (key >= 0) atomicAdd(count_memory + key, 1);  // in any order
    });
    __syncthreads();
    int32_t* counts = p.counts + blockIdx.x * p.experts + first;
    for (int i = thread; i < experts; i += threads) counts[i] = count_memory[i];
    __syncthreads();  // the counters are free
  }
}

template <typename Id>
__global__ void __launch_bounds__(kMostSortThreads) sort_choices_kernel(const SortChoicesParams p) {
  extern __shared__ int sort_memory[];  // kMostSortWarps, then [warps, part]
  int* counters = sort_memory + kMostSortWarps;
  pdl_wait();
  pdl_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int64_t begin = p.first_choice(warp);
  const SortedSegment<Id> mine{static_cast<const Id*>(p.ids), begin,
                               min(begin + p.segment, p.count), counters + warp * p.part};
  int rows = 0;
  for (int64_t first = 0; first < p.experts; first += p.part) {
    const int experts = static_cast<int>(min(p.experts - first, int64_t{p.part}));
    for (int i = thread; i < p.warps * p.part; i += static_cast<int>(blockDim.x)) {
      counters[i] = 0;
    }
    __syncthreads();
    mine.for_each(first, experts, [&](int64_t, int64_t, int key) {
      if (key >= 0) atomicAdd(mine.counters + key, 1);  // a count, in any order
    });
    __syncthreads();
    rows = place_counts(p, sort_memory, counters, first, experts, rows);
    __syncthreads();
    mine.for_each(first, experts, [&](int64_t index, int64_t id, int key) {
      const unsigned peers = __match_any_sync(kWholeWarp, key);
      const int row = key >= 0 ? mine.counters[key] : -1;
      __syncwarp();  // all have read
      if (key >= 0 && leads(peers)) mine.counters[key] = row + __popc(peers);
      __syncwarp();
      if (index >= p.count) return;
      if (key >= 0) {
        p.positions[index] = row + __popc(peers & ((1u << lane) - 1u));
      } else if (first == 0 && (id < 0 || id >= p.experts)) {
        p.positions[index] = -1;
      }
    });
    __syncthreads();  // the counters are free
  }
}

}  // namespace mixed_gemm
