// The share of a thread block in a product whose rows belong to experts: the answers of WorkSplit
// (grid/work_split.h), from a list of row blocks on the device. Nobody splits K.
#pragma once
#include "core/divisor.h"
#include "grid/work_split.h"
#include "grouped/row_blocks.h"

namespace mixed_gemm {

struct GroupedItem : WorkItem {
  int expert, row0, row_end;
};

// The answers of every schedule without splits.
struct WholeTiles {
  static constexpr bool kHasExperts = true;
  static constexpr SplitK split = SplitK::kNone;
  static constexpr int slices = 1;

  __device__ bool is_last(int, int) const { return true; }
  __device__ int slice(int) const { return 0; }
  __device__ int workers_until_end_of(int, int worker) const { return worker + 1; }
};

// Thread blocks stay and take tile after tile. Neighbours in time take the row blocks of a run and
// then the next columns, so that the rows of an expert find its weights in L2.
struct GroupedWork : WholeTiles {
  RowBlocks row_blocks;
  int tiles_n, k_tiles;
  Divisor by_run;  // of tiles: kRun row blocks

  static constexpr int kRun = WorkSplit::kRun;
  static GroupedWork make(const RowBlocks& row_blocks, int tiles_n, int k_tiles) {
    GroupedWork work;
    work.row_blocks = row_blocks;
    work.tiles_n = tiles_n;
    work.k_tiles = k_tiles;
    work.by_run = Divisor::of(kRun * tiles_n);
    return work;
  }

  // -1 or less: there is none for this block.
  __device__ int worker(int block) const { return *row_blocks.count * tiles_n - 1 - block; }
  __device__ GroupedItem item(int tile, int) const {
    const int run = by_run.quotient(tile), in_run = tile - run * (kRun * tiles_n);
    const int left = *row_blocks.count - run * kRun, rows = left < kRun ? left : kRun;
    const int tile_n = rows == kRun ? in_run / kRun : in_run / rows;
    const int tile_m = run * kRun + in_run - tile_n * rows;
    const RowBlock block = row_blocks.first[tile_m];
    return {{tile, tile_m, tile_n, 0, k_tiles}, block.expert, block.row0, block.row_end};
  }
  __device__ int row0(const GroupedItem& item, int) const { return item.row0; }
};

// A thread block has one tile: blockIdx.x says its columns, and a row block its rows.
struct OneTile : WholeTiles {
  int k_tiles, first_row;

  __device__ int worker(int block) const { return block; }
  __device__ WorkItem item(int tile_n, int) const { return {tile_n, 0, tile_n, 0, k_tiles}; }
  __device__ int row0(const WorkItem&, int) const { return first_row; }
};

}  // namespace mixed_gemm
