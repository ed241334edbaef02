// One launch sums a term over the ranks (ranks/inbox.h): a rank writes its own into the inboxes of
// the others, waits for theirs in its own, adds and stores. Nothing waits at the end.
//
// Which block has which piece depends on the size of the message alone, so a block waits for blocks
// of its own number on the other GPUs only, and these write before they wait. Blocks start in the
// order of their numbers, so the least one that is not done runs everywhere.
#pragma once
#include "grid/early_start.cuh"
#include "ranks/peer_memory.cuh"
#include "ranks/piece_sum.cuh"
#include "ranks/prefetch_rows.cuh"
#include "ranks/sum_over_ranks.h"

namespace mixed_gemm {

constexpr int kFewThreads = 256;   // a piece each
constexpr int kManyThreads = 512;  // two pieces of a chunk each
constexpr int kManyBlocks = 128;   // at most, and at once on GPUs of 64 multiprocessors or more
// Chunks that a block sends before it adds the first one, so that those of others can be on their
// way meanwhile. 64 KiB of each block; not measured.
constexpr int kChunksAhead = 4;

struct SumOverRanksParams {
  const Piece* term;
  Piece* out;
  int64_t pieces;
  int rank;
  char* inboxes[kMostRanks];
  InboxLayout layout;
  unsigned long long* counter;
  unsigned blocks;  // that add; those behind them prefetch
  PrefetchRows prefetch;

  __device__ int peers() const { return layout.peers; }
  __device__ char* mine(int64_t offset) const { return inboxes[rank] + offset; }
};

// Calls f(inbox, entry in it) for every peer.
template <typename F>
__device__ void for_each_peer(const SumOverRanksParams& p, const F& f) {
  for (int i = 0; i < p.peers(); ++i) {
    const int peer = source_of(i, p.rank);
    f(p.inboxes[peer], entry_of(p.rank, peer));
  }
}

// Calls f(entry, half) for the units of a piece, in a loop that leaves them in registers.
template <typename F>
__device__ void for_each_unit(const SumOverRanksParams& p, const F& f) {
#pragma unroll
  for (int entry = 0; entry < kMostRanks - 1; ++entry) {
    if (entry >= p.peers()) continue;
    f(entry, 0);
    f(entry, 1);
  }
}

// The epoch of this launch; the last block of the launch before, which is complete, has counted it.
__device__ inline uint64_t epoch_of(const SumOverRanksParams& p) {
  return *const_cast<volatile unsigned long long*>(p.counter) + 1;
}

// The last block that is done counts the epoch: all of them have read it by then.
__device__ inline void finish(const SumOverRanksParams& p, uint64_t epoch) {
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(p.counter + 1, 1ULL) + 1 != p.blocks) return;
  p.counter[1] = 0;
  p.counter[0] = epoch;
}

// first: the units of the pieces before it are written already.
__device__ inline void write_units_behind(const SumOverRanksParams& p, uint64_t epoch,
                                          int64_t first) {
  const int64_t step = int64_t{p.blocks} * blockDim.x;
#pragma unroll 1  // rare
  for (int64_t i = first + blockIdx.x * blockDim.x + threadIdx.x; i < kFewPieces; i += step) {
    for_each_peer(p, [&](char* inbox, int entry) {
      for (int half = 0; half < 2; ++half)
        store_unit(inbox + p.layout.unit(epoch, entry, i, half), packed_unit({}, half, epoch));
    });
  }
}

template <typename Element>
__global__ void __launch_bounds__(kFewThreads)
    sum_few_kernel(const __grid_constant__ SumOverRanksParams p) {
  let_kernel_after_start();
  prefetch_rows(p.prefetch);
  if (blockIdx.x >= p.blocks) return;
  wait_for_kernel_before();
  const uint64_t epoch = epoch_of(p);
  const int64_t piece = int64_t{blockIdx.x} * kFewThreads + threadIdx.x;
  const bool any = piece < p.pieces;
  Piece own = {};
  if (any) {
    own = load_piece(p.term + piece);
    for_each_peer(p, [&](char* inbox, int entry) {
      for (int half = 0; half < 2; ++half)
        store_unit(inbox + p.layout.unit(epoch, entry, piece, half), packed_unit(own, half, epoch));
    });
  }
  if (writes_all_units(epoch)) write_units_behind(p, epoch, p.pieces);
  if (any) {
    Unit units[kMostRanks][2];
    bool all;
    do {  // of all peers before any is looked at
      for_each_unit(p, [&](int entry, int half) {
        units[entry][half] = load_unit(p.mine(p.layout.unit(epoch, entry, piece, half)));
      });
      all = true;
      for_each_unit(p, [&](int entry, int half) { all &= has_come(units[entry][half], epoch); });
    } while (!all);
    const auto of_peer = [&](int entry) { return unpacked(units[entry][0], units[entry][1]); };
    store_piece(p.out + piece, sum_in_order<Element>(own, p.rank, p.peers(), of_peer));
  }
  finish(p, epoch);
}

// Calls f(piece) for those of a chunk that this thread has.
template <typename F>
__device__ void for_each_piece(const SumOverRanksParams& p, int64_t chunk, const F& f) {
#pragma unroll
  for (int i = 0; i < kChunkPieces; i += kManyThreads) {
    const int64_t piece = chunk * kChunkPieces + i + threadIdx.x;
    if (piece < p.pieces) f(piece);
  }
}

// What the threads wrote before they met is seen by whoever sees the epoch that one of them writes.
__device__ inline void send_chunk(const SumOverRanksParams& p, uint64_t epoch, int64_t chunk) {
  for_each_piece(p, chunk, [&](int64_t piece) {
    const Piece own = load_piece(p.term + piece);
    for_each_peer(p, [&](char* inbox, int entry) {
      store_piece(inbox + p.layout.piece(epoch, entry, piece), own);
    });
  });
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < p.peers()) {
    const int peer = source_of(threadIdx.x, p.rank);
    release_epoch(p.inboxes[peer] + p.layout.epoch_of_chunk(epoch, entry_of(p.rank, peer), chunk),
                  epoch);
  }
}

template <typename Element>
__device__ void add_chunk(const SumOverRanksParams& p, uint64_t epoch, int64_t chunk) {
  if (static_cast<int>(threadIdx.x) < p.peers()) {
    const char* came = p.mine(p.layout.epoch_of_chunk(epoch, threadIdx.x, chunk));
    while (acquire_epoch(came) != epoch) {
    }
  }
  __syncthreads();
  for_each_piece(p, chunk, [&](int64_t piece) {
    const Piece own = load_piece(p.term + piece);
    const auto of_peer = [&](int entry) {
      return load_piece(p.mine(p.layout.piece(epoch, entry, piece)));
    };
    store_piece(p.out + piece, sum_in_order<Element>(own, p.rank, p.peers(), of_peer));
  });
}

template <typename Element>
__global__ void __launch_bounds__(kManyThreads, 1)
    sum_many_kernel(const __grid_constant__ SumOverRanksParams p) {
  let_kernel_after_start();
  prefetch_rows(p.prefetch);
  if (blockIdx.x >= p.blocks) return;
  wait_for_kernel_before();
  const uint64_t epoch = epoch_of(p);
  if (writes_all_units(epoch)) write_units_behind(p, epoch, 0);
  const int64_t chunks = (p.pieces + kChunkPieces - 1) / kChunkPieces;
  const int64_t step = p.blocks, ahead = kChunksAhead * step;
#pragma unroll 1
  for (int64_t chunk = blockIdx.x; chunk < chunks + ahead; chunk += step) {
    if (chunk < chunks) send_chunk(p, epoch, chunk);
    if (chunk >= ahead) add_chunk<Element>(p, epoch, chunk - ahead);
  }
  finish(p, epoch);
}

}  // namespace mixed_gemm
