// One launch sums a term over the ranks (ranks/inbox.h): a rank writes its own into the inboxes of
// the others, waits for theirs in its own, adds and stores. Nothing waits at the end.
//
// Which block has which piece depends on the size of the message alone, so a block waits for blocks
// of its own number on the other GPUs only, and these write before they wait. Blocks start in the
// order of their numbers, so the least one that is not done runs everywhere.
#pragma once
#include "grid/pdl.cuh"
#include "ranks/peer_memory.cuh"
#include "ranks/piece_sum.cuh"
#include "ranks/sum_over_ranks.h"

namespace mixed_gemm {

constexpr int kFewThreads = 256;   // a piece each
constexpr int kManyThreads = 512;  // two pieces of a chunk each
// The most blocks: all run at once on 64 multiprocessors, or on 128 for more than two ranks.
constexpr int kManyBlocks = 128;
// Chunks that a block sends before it adds the first one, 64 KiB, so that those of others can be on
// their way meanwhile. With 4 a sum of 8 MiB takes 40 us on 2 H100s, one of 32 MiB 139 us; no other
// number was tried.
constexpr int kChunksAhead = 4;

template <int kMostPeers>  // 1: exactly one, so that nothing is asked
struct SumOverRanksParams {
  const Piece* term;
  Piece* out;
  int64_t pieces;
  int rank;
  char* inboxes[kMostRanks];
  InboxLayout layout;
  unsigned long long* counter;

  __device__ bool has_peer(int entry) const {
    return kMostPeers == 1 ? entry == 0 : entry < layout.peers;
  }
  __device__ char* mine(int64_t offset) const { return inboxes[rank] + offset; }

  // Calls f(entry), in a loop that leaves arrays of entries in registers.
  template <typename F>
  __device__ void for_each_entry(const F& f) const {
#pragma unroll
    for (int entry = 0; entry < kMostPeers; ++entry) {
      if (has_peer(entry)) f(entry);
    }
  }
  // Calls f(inbox, entry in it).
  template <typename F>
  __device__ void for_each_inbox(const F& f) const {
#pragma unroll 1
    for (int i = 0; has_peer(i); ++i) {
      const int peer = source_of(i, rank);
      f(inboxes[peer], entry_of(rank, peer));
    }
  }

  // Sums pieces in the order of the ranks. of_peer(entry): the piece of another one.
  template <typename Element, typename OfPeer>
  __device__ Piece sum(const Piece& own, const OfPeer& of_peer) const {
    PieceSum<Element> sum;
#pragma unroll
    for (int entry = 0; entry <= kMostPeers; ++entry) {
      if (entry == rank) sum.add(own);
      if (entry < kMostPeers && has_peer(entry)) sum.add(of_peer(entry));
    }
    return sum.rounded();
  }
};

// The epoch of this launch; the last block of the launch before, which is complete, has counted it.
__device__ inline uint64_t epoch_of(const unsigned long long* counter) {
  return *const_cast<const volatile unsigned long long*>(counter) + 1;
}

// The last block that is done counts the epoch: all of them have read it by then.
template <typename Params>
__device__ void finish(const Params& p, uint64_t epoch) {
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(p.counter + 1, 1ULL) + 1 != gridDim.x) return;
  p.counter[1] = 0;
  p.counter[0] = epoch;
}

template <typename Params>
__device__ void send_units(const Params& p, uint64_t epoch, int64_t piece, const Piece& data) {
  p.for_each_inbox([&](char* inbox, int entry) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      store_unit(inbox + p.layout.unit(epoch, entry, piece, half), packed_unit(data, half, epoch));
  });
}

// first: the units of the pieces before it are sent already.
template <typename Params>
__device__ void send_units_behind(const Params& p, uint64_t epoch, int64_t first) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
#pragma unroll 1  // rare
  for (int64_t i = first + blockIdx.x * blockDim.x + threadIdx.x; i < kFewPieces; i += step)
    send_units(p, epoch, i, {});
}

template <typename Element, int kMostPeers>
__global__ void __launch_bounds__(kFewThreads)
    sum_few_kernel(const __grid_constant__ SumOverRanksParams<kMostPeers> p) {
  pdl_launch_dependents();
  pdl_wait();
  const uint64_t epoch = epoch_of(p.counter);
  const int64_t piece = int64_t{blockIdx.x} * kFewThreads + threadIdx.x;
  const bool any = piece < p.pieces;
  Piece own = {};
  if (any) {
    own = load_piece(p.term + piece);
    send_units(p, epoch, piece, own);
  }
  if (writes_all_units(epoch)) send_units_behind(p, epoch, p.pieces);
  if (any) {
    Unit units[kMostPeers][2];
    bool all;
    do {  // of all peers before any is looked at
      p.for_each_entry([&](int entry) {
        for (int half = 0; half < 2; ++half)
          units[entry][half] = load_unit(p.mine(p.layout.unit(epoch, entry, piece, half)));
      });
      all = true;
      p.for_each_entry([&](int entry) {
        for (int half = 0; half < 2; ++half) all &= has_come(units[entry][half], epoch);
      });
    } while (!all);
    const auto of_peer = [&](int entry) { return unpacked(units[entry][0], units[entry][1]); };
    store_piece(p.out + piece, p.template sum<Element>(own, of_peer));
  }
  finish(p, epoch);
}

constexpr int kPiecesOfThread = kChunkPieces / kManyThreads;

// The pieces of a chunk that this thread has. Loads take the last one of the message where there is
// none, so that all of them come before the first store.
struct PiecesOfThread {
  int64_t first, count;
  __device__ PiecesOfThread(int64_t chunk, int64_t count)
      : first(chunk * kChunkPieces + threadIdx.x), count(count) {}
  __device__ bool has(int i) const { return first + i * kManyThreads < count; }
  __device__ int64_t operator[](int i) const {
    return has(i) ? first + i * kManyThreads : count - 1;
  }
};

// Sends a chunk. Who sees its epoch, which one thread writes, sees what all wrote before they met.
template <typename Params>
__device__ void send_chunk(const Params& p, uint64_t epoch, int64_t chunk) {
  const PiecesOfThread pieces(chunk, p.pieces);
  Piece own[kPiecesOfThread];
#pragma unroll
  for (int i = 0; i < kPiecesOfThread; ++i) own[i] = load_piece(p.term + pieces[i]);
  p.for_each_inbox([&](char* inbox, int entry) {
#pragma unroll
    for (int i = 0; i < kPiecesOfThread; ++i) {
      if (pieces.has(i)) store_piece(inbox + p.layout.piece(epoch, entry, pieces[i]), own[i]);
    }
  });
  __syncthreads();
  if (p.has_peer(threadIdx.x)) {
    const int peer = source_of(threadIdx.x, p.rank), entry = entry_of(p.rank, peer);
    release_epoch(p.inboxes[peer] + p.layout.epoch_of_chunk(epoch, entry, chunk), epoch);
  }
}

template <typename Element, int kMostPeers>
__device__ void add_chunk(const SumOverRanksParams<kMostPeers>& p, uint64_t epoch, int64_t chunk) {
  if (p.has_peer(threadIdx.x)) {
    const char* came = p.mine(p.layout.epoch_of_chunk(epoch, threadIdx.x, chunk));
    while (acquire_epoch(came) != epoch) {
    }
  }
  __syncthreads();
  const PiecesOfThread pieces(chunk, p.pieces);
  Piece own[kPiecesOfThread], others[kPiecesOfThread][kMostPeers];
#pragma unroll
  for (int i = 0; i < kPiecesOfThread; ++i) {
    own[i] = load_piece(p.term + pieces[i]);
    p.for_each_entry([&](int entry) {
      others[i][entry] = load_piece(p.mine(p.layout.piece(epoch, entry, pieces[i])));
    });
  }
#pragma unroll
  for (int i = 0; i < kPiecesOfThread; ++i) {
    const auto of_peer = [&](int entry) { return others[i][entry]; };
    const Piece total = p.template sum<Element>(own[i], of_peer);
    if (pieces.has(i)) store_piece(p.out + pieces[i], total);
  }
}

template <typename Element, int kMostPeers>
__global__ void __launch_bounds__(kManyThreads, 1)
    sum_many_kernel(const __grid_constant__ SumOverRanksParams<kMostPeers> p) {
  pdl_launch_dependents();
  pdl_wait();
  const uint64_t epoch = epoch_of(p.counter);
  if (writes_all_units(epoch)) send_units_behind(p, epoch, 0);
  const int64_t chunks = (p.pieces + kChunkPieces - 1) / kChunkPieces;
  const int64_t step = gridDim.x, ahead = kChunksAhead * step;
#pragma unroll 1
  for (int64_t chunk = blockIdx.x; chunk < chunks + ahead; chunk += step) {
    if (chunk < chunks) send_chunk(p, epoch, chunk);
    if (chunk >= ahead) add_chunk<Element>(p, epoch, chunk - ahead);
  }
  finish(p, epoch);
}

}  // namespace mixed_gemm
