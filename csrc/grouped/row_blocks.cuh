// Makes the list of row blocks: one thread block scans the offsets, 256 experts at a time, and then
// each thread looks up the experts of some row blocks. The other thread blocks zero the rows that
// belong to no expert, which usually are none.
#pragma once
#include "grid/pdl.cuh"
#include "grouped/row_blocks.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

constexpr int kRowBlockThreads = 256;

struct Larger {
  __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};
struct Sum {
  __device__ int operator()(int a, int b) const { return a + b; }
};

// The result of `combine` over the values of this thread and of all before it.
template <typename Combine>
__device__ int inclusive_scan(int value, int (&of_warps)[32], const Combine& combine) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  CUTLASS_PRAGMA_UNROLL
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value = combine(value, other);
  }
  __syncthreads();  // all have read what was here before
  if (lane == 31) of_warps[warp] = value;
  __syncthreads();
  for (int before = 0; before < warp; ++before) value = combine(of_warps[before], value);
  return value;
}

class RowBlockList {
 public:
  struct Shared {
    int of_warps[32];
    int starts[kRowBlockThreads], ends[kRowBlockThreads];  // rows of an expert
    int blocks_before[kRowBlockThreads + 1];
    int last_end;
  };

  __device__ RowBlockList(const RowBlocksArgs& args, Shared& shared) : p_(args), shared_(shared) {}

  __device__ void make() {
    if (threadIdx.x == 0) shared_.last_end = 0;
    __syncthreads();
    for (int first = 0; first < p_.experts; first += kRowBlockThreads) add_experts(first);
    if (threadIdx.x == 0) *p_.count = blocks_;
  }

 private:
  __device__ void add_experts(int first) {
    const int at = static_cast<int>(threadIdx.x), expert = first + at;
    const int before = shared_.last_end;
    const int offset = expert < p_.experts ? p_.offs[expert] : 0;
    const int own = static_cast<int>(end_of_expert(offset, before, p_.rows));
    const int end = inclusive_scan(own, shared_.of_warps, Larger());
    shared_.ends[at] = end;
    __syncthreads();
    const int start = at == 0 ? before : shared_.ends[at - 1];
    shared_.starts[at] = start;
    const int blocks = (end - start + p_.tile - 1) / p_.tile;
    shared_.blocks_before[at + 1] = inclusive_scan(blocks, shared_.of_warps, Sum());
    if (at == 0) shared_.blocks_before[0] = 0;
    __syncthreads();
    const int added = shared_.blocks_before[kRowBlockThreads];
    for (int i = at; i < added; i += kRowBlockThreads) {
      const int owner = owner_of(i);
      const int row0 = shared_.starts[owner] + (i - shared_.blocks_before[owner]) * p_.tile;
      const int last = shared_.ends[owner];
      p_.blocks[blocks_ + i] = {first + owner, row0, min(row0 + p_.tile, last)};
    }
    blocks_ += added;
    if (at == kRowBlockThreads - 1) shared_.last_end = end;
    __syncthreads();
  }

  // The expert whose block the i-th of these is: the last one with no more than i before it.
  __device__ int owner_of(int i) const {
    int owner = 0;
    CUTLASS_PRAGMA_UNROLL
    for (int step = kRowBlockThreads / 2; step > 0; step /= 2) {
      if (shared_.blocks_before[owner + step] <= i) owner += step;
    }
    return owner;
  }

  const RowBlocksArgs& p_;
  Shared& shared_;
  int blocks_ = 0;
};

// Zeroes the rows of no expert; all thread blocks but the first share them.
__device__ inline void zero_rows_of_none(const RowBlocksArgs& p, int (&of_warps)[32]) {
  int own = 0;
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kRowBlockThreads) {
    own = static_cast<int>(end_of_expert(p.offs[e], own, p.rows));
  }
  inclusive_scan(own, of_warps, Larger());  // the last thread of each warp leaves the warp's
  int end = 0;
  for (int warp = 0; warp < kRowBlockThreads / 32; ++warp) end = max(end, of_warps[warp]);
  auto* d = static_cast<uint16_t*>(p.d);
  const int64_t first = end * (p.row_bytes / 2), last = p.rows * (p.row_bytes / 2);
  const int64_t step = int64_t{gridDim.x - 1} * kRowBlockThreads;
  for (int64_t i = first + int64_t{blockIdx.x - 1} * kRowBlockThreads + threadIdx.x; i < last;
       i += step) {
    d[i] = 0;
  }
}

__global__ inline void row_blocks_kernel(const __grid_constant__ RowBlocksArgs p) {
  __shared__ RowBlockList::Shared shared;
  pdl_launch_dependents();  // the product waits for this kernel, and so for the one before it, too
  pdl_wait();
  if (blockIdx.x == 0) {
    RowBlockList(p, shared).make();
  } else {
    zero_rows_of_none(p, shared.of_warps);
  }
}

}  // namespace mixed_gemm
