// Which rows a thread block takes: from a list that a kernel before has made
// (grouped/row_blocks.cuh), or found by each of its warps from the offsets. The kernel takes 1.2 us
// (H200), and finding rows half a microsecond in each wave of blocks: so few blocks find theirs.
#pragma once
#include "cutlass/cutlass.h"
#include "grouped/row_blocks.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

struct FoundRows {
  RowBlock block;  // its expert is -1 where there are fewer blocks
  int count;       // of row blocks
  int last_end;    // behind the rows of all experts
};

__device__ inline int larger(int a, int b) { return a > b ? a : b; }

// The row block of this number. Called by all lanes of a warp.
template <int kTile>
__device__ FoundRows find_rows(const GroupedRows& rows, int number) {
  constexpr int kEach = 4;  // experts of a lane
  const int lane = static_cast<int>(threadIdx.x) % 32;
  FoundRows found{{-1, 0, 0}, 0, 0};
  for (int first = 0; first < rows.experts; first += 32 * kEach) {
    int ends[kEach];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int expert = first + lane * kEach + i;
      const int offset = expert < rows.experts ? rows.offs[expert] : 0;
      ends[i] = min(larger(offset, i > 0 ? ends[i - 1] : 0), rows.rows);
    }
    int start = ends[kEach - 1];  // the end of the lanes before
    CUTLASS_PRAGMA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, start, step);
      if (lane >= step) start = larger(start, other);
    }
    const int end_of_all = larger(__shfl_sync(~0u, start, 31), found.last_end);
    start = __shfl_up_sync(~0u, start, 1);
    start = lane == 0 ? found.last_end : larger(start, found.last_end);

    int starts[kEach], blocks[kEach], sum = 0;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kEach; ++i) {
      starts[i] = i == 0 ? start : larger(start, ends[i - 1]);
      ends[i] = larger(start, ends[i]);
      blocks[i] = (ends[i] - starts[i] + kTile - 1) / kTile;
      sum += blocks[i];
    }
    int through = sum;
    CUTLASS_PRAGMA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, through, step);
      if (lane >= step) through += other;
    }
    int before = found.count + through - sum;  // blocks before this lane's
    RowBlock mine{-1, 0, 0};
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (number >= before && number < before + blocks[i]) {
        const int row0 = starts[i] + (number - before) * kTile;
        mine = {first + lane * kEach + i, row0, min(row0 + kTile, ends[i])};
      }
      before += blocks[i];
    }
    const unsigned has = __ballot_sync(~0u, mine.expert >= 0);
    if (has != 0) {
      const int owner = __ffs(static_cast<int>(has)) - 1;
      found.block = {__shfl_sync(~0u, mine.expert, owner), __shfl_sync(~0u, mine.row0, owner),
                     __shfl_sync(~0u, mine.row_end, owner)};
      return found;  // nobody asks for what is behind it
    }
    found.count += __shfl_sync(~0u, through, 31);
    found.last_end = end_of_all;
  }
  return found;
}

// The same by the list, if there is one.
template <int kTile>
__device__ FoundRows rows_of_block(const GroupedRows& rows, const RowBlocks& list, int number) {
  if (list.first == nullptr) return find_rows<kTile>(rows, number);
  if (number < *list.count) return {list.first[number], 0, 0};
  return {{-1, 0, 0}, number, rows.rows};  // which leaves no rows to zero
}

// Zeroes some columns of the rows that belong to no expert, by a thread block that has found no
// rows of its own. All blocks of that kind along y share these rows. d: [rows, n].
template <int kTile, typename Element>
__device__ void zero_rest(const FoundRows& found, int rows, Element* d, int n, int column0,
                          int columns) {
  const int others = static_cast<int>(gridDim.y) - found.count;
  const int own = static_cast<int>(blockIdx.y) - found.count;
  columns = min(columns, n - column0);
  for (int row0 = found.last_end + own * kTile; row0 < rows; row0 += others * kTile) {
    const int count = min(kTile, rows - row0) * columns;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      d[int64_t{row0 + i / columns} * n + column0 + i % columns] = Element(0.f);
    }
  }
}

}  // namespace mixed_gemm
