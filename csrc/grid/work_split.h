// The schedule: all work steps in order (k-tile by k-tile, output tile by output tile), cut into
// one run per worker. Without a split a run is one tile, with a sliced one a slice of one tile.
// With stream-K it is an equal share of one to two waves of tiles, so that no SM is left over in a
// last one, and then a tile of every further wave: neighbours in time work on neighbouring tiles
// and find their operands in L2 (int8, 4096 x 8192 x 8192: all tiles shared out in long runs took
// 672 us, whole waves 360).
#pragma once
#include <algorithm>

#include "core/divisor.h"
#include "core/macros.h"
#include "core/split.h"

namespace mixed_gemm {

// `total` things in `parts` shares that differ by one at most. total * i / parts would need 64-bit
// divisions, which are calls in a kernel, with registers spilled around them.
struct EvenShares {
  int each = 0, first_longer = 0;

  static EvenShares of(int64_t total, int64_t parts) {
    return {static_cast<int>(total / parts), static_cast<int>(total % parts)};
  }
  MIXED_GEMM_HOST_DEVICE int begin(int part) const {
    return part * each + (part < first_longer ? part : first_longer);
  }
};

struct WorkItem {
  int tile, tile_m, tile_n;
  int k_begin, k_end;  // in k-tiles, or in the kernel's stages of two (work_step_k())
};

struct WorkSplit {
  SplitK split;
  int tiles_m, tiles_n, k_tiles;
  int workers;        // blocks of the grid
  int slices;         // of a tile: 1 unless sliced
  EvenShares shares;  // stream-K: steps of a worker in the shared tiles; else k-tiles of a slice
  int shared_tiles;   // stream-K: the first ones
  int waves;          // stream-K: of tiles behind them, one for each worker
  Divisor by_k_tiles, by_slices;
  Divisor by_run;        // of tiles: kRun rows of them
  Divisor by_last_rows;  // of the last run, where it has fewer

  static constexpr bool kHasExperts = false;  // whether items say whose weight they take
  static constexpr int kRun = 8;  // rows of tiles that neighbouring workers share columns of B over

  // count: slices of a tile when sliced, workers when stream-K. The work steps of stream-K must be
  // at least as many and fit an int (grid/tile_support.cpp).
  static WorkSplit make(SplitK split, int tiles_m, int tiles_n, int k_tiles, int count) {
    const int slices = is_sliced(split) ? count : 1;
    const bool stream = split == SplitK::kStreamK;
    const int64_t tiles = static_cast<int64_t>(tiles_m) * tiles_n;
    // A part of a wave alone would cut its tiles into many pieces, so a whole one is shared with
    // it.
    const int64_t rest = stream ? tiles % count : 0, whole = stream ? tiles / count : 0;
    const int64_t waves = whole - (rest > 0 && whole > 0 ? 1 : 0);
    const int64_t shared = stream ? tiles - waves * count : 0;
    return {split,
            tiles_m,
            tiles_n,
            k_tiles,
            stream ? count : static_cast<int>(tiles * slices),
            slices,
            stream ? EvenShares::of(shared * k_tiles, count) : EvenShares::of(k_tiles, slices),
            static_cast<int>(shared),
            static_cast<int>(waves),
            Divisor::of(std::max(k_tiles, 1)),
            Divisor::of(slices),
            Divisor::of(std::max(kRun * tiles_n, 1)),
            Divisor::of(std::max(tiles_m % kRun, 1))};
  }

  // A worker waits for higher workers only. These go to blocks that start earlier, so that a
  // waiting block never keeps the one it waits for from starting.
  MIXED_GEMM_HOST_DEVICE int worker(int block) const { return workers - 1 - block; }
  MIXED_GEMM_HOST_DEVICE int slice(int worker) const { return by_slices.remainder(worker); }

  MIXED_GEMM_HOST_DEVICE int steps(int worker) const {
    if (split == SplitK::kStreamK) return shared_steps(worker) + waves * k_tiles;
    const int share = slice(worker);
    return shares.begin(share + 1) - shares.begin(share);
  }
  MIXED_GEMM_HOST_DEVICE int shared_steps(int worker) const {
    return shares.begin(worker + 1) - shares.begin(worker);
  }

  // Whether these work steps of a worker, after an item, were its last ones. Every worker has some.
  MIXED_GEMM_HOST_DEVICE bool is_last(int worker, int done) const {
    return split != SplitK::kStreamK || done >= steps(worker);
  }

  // The first row of the output that belongs to a tile.
  MIXED_GEMM_HOST_DEVICE int row0(const WorkItem& item, int tile_m) const {
    return item.tile_m * tile_m;
  }

  // The item of a worker after its first `done` work steps.
  MIXED_GEMM_HOST_DEVICE WorkItem item(int worker, int done) const {
    int tile, k_begin, k_end;
    const int shared = split == SplitK::kStreamK ? shared_steps(worker) : 0;
    if (split == SplitK::kStreamK && done < shared) {
      const int step = shares.begin(worker) + done;
      tile = by_k_tiles.quotient(step);
      k_begin = step - tile * k_tiles;
      const int left = shared - done;
      k_end = left < k_tiles - k_begin ? k_begin + left : k_tiles;
    } else if (split == SplitK::kStreamK) {
      tile = shared_tiles + by_k_tiles.quotient(done - shared) * workers + worker;
      k_begin = 0;
      k_end = k_tiles;
    } else {
      tile = by_slices.quotient(worker);
      const int slice = worker - tile * slices;
      k_begin = shares.begin(slice);
      k_end = shares.begin(slice + 1);
    }
    const int run = by_run.quotient(tile), in_run = tile - run * (kRun * tiles_n);
    const int left = tiles_m - run * kRun, rows = left < kRun ? left : kRun;
    const int tile_n = left < kRun ? by_last_rows.quotient(in_run)
                                   : static_cast<int>(static_cast<unsigned>(in_run) / kRun);
    return {tile, run * kRun + in_run - tile_n * rows, tile_n, k_begin, k_end};
  }

  // Stream-K, for a shared tile: the first worker after `worker` whose run begins behind `tile`.
  MIXED_GEMM_HOST_DEVICE int workers_until_end_of(int tile, int worker) const {
    int next = worker + 1;
    while (next < workers && shares.begin(next) < (tile + 1) * k_tiles) ++next;
    return next;
  }
};

}  // namespace mixed_gemm
