// Who does what: the line of units (k-tile by k-tile, output tile by output tile) cut into one run
// per worker. Without a split a run is one tile, with a sliced one a slice of one tile, with
// stream-K an equal share of everything, so that no SM is left over in a last wave.
#pragma once
#include "core/macros.h"
#include "kernel/gemm_args.h"

namespace mixed_gemm {

// `total` things in `parts` shares that differ by one at most. Shares, not total * i / parts:
// 64-bit divisions in a kernel are calls, and registers spilled around them.
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
  int k_begin, k_end;  // in k-tiles
};

struct WorkSplit {
  SplitK split;
  int tiles_m, tiles_n, k_tiles;
  int workers;        // blocks of the grid
  int slices;         // of a tile: 1 unless sliced
  EvenShares shares;  // stream-K: units of a worker; else k-tiles of a slice

  static constexpr int kRun = 8;  // rows of tiles that neighbouring workers share columns of B over

  // count: slices of a tile when sliced, workers when stream-K. Units of a stream-K line must be
  // at least count and fit an int (dispatch/support.cpp).
  static WorkSplit make(SplitK split, int tiles_m, int tiles_n, int k_tiles, int count) {
    const int slices = is_sliced(split) ? count : 1;
    const bool stream = split == SplitK::kStreamK;
    const int64_t tiles = static_cast<int64_t>(tiles_m) * tiles_n;
    return {split,
            tiles_m,
            tiles_n,
            k_tiles,
            stream ? count : static_cast<int>(tiles * slices),
            slices,
            stream ? EvenShares::of(tiles * k_tiles, count) : EvenShares::of(k_tiles, slices)};
  }

  // A worker waits for higher workers only; giving those to blocks that start earlier, a waiting
  // block never keeps the one it waits for from starting.
  MIXED_GEMM_HOST_DEVICE int worker(int block) const { return workers - 1 - block; }
  MIXED_GEMM_HOST_DEVICE int slice(int worker) const { return worker % slices; }

  MIXED_GEMM_HOST_DEVICE int units(int worker) const {
    const int share = split == SplitK::kStreamK ? worker : slice(worker);
    return shares.begin(share + 1) - shares.begin(share);
  }

  // What a worker does after its first `done` units.
  MIXED_GEMM_HOST_DEVICE WorkItem item(int worker, int done) const {
    int tile, k_begin, k_end;
    if (split == SplitK::kStreamK) {
      const int unit = shares.begin(worker) + done;
      tile = unit / k_tiles;
      k_begin = unit - tile * k_tiles;
      const int left = units(worker) - done;
      k_end = left < k_tiles - k_begin ? k_begin + left : k_tiles;
    } else {
      tile = worker / slices;
      k_begin = shares.begin(slice(worker));
      k_end = shares.begin(slice(worker) + 1);
    }
    const int group = tile / (kRun * tiles_n), in_group = tile % (kRun * tiles_n);
    const int left = tiles_m - group * kRun, rows = left < kRun ? left : kRun;
    return {tile, group * kRun + in_group % rows, in_group / rows, k_begin, k_end};
  }

  // Stream-K: the first worker after `worker` whose run begins behind `tile`.
  MIXED_GEMM_HOST_DEVICE int workers_until_end_of(int tile, int worker) const {
    int next = worker + 1;
    while (next < workers && shares.begin(next) < (tile + 1) * k_tiles) ++next;
    return next;
  }
};

}  // namespace mixed_gemm
