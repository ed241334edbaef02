// Exact int32 sums of int8 products, tile by tile: every int8 GEMM on the CPU is made of them.
#pragma once
#include "cpu/integer_rows.h"

namespace mixed_gemm::cpu {

// A tile: rows [begin, end) of a pass, columns [column, column_end).
//
// A block of columns (48 x 2048 bytes of B) and a chunk of rows (64 x 2048 of A) share L2; the rows
// of one call (8 x 2048, 16 KB) stay in L1 while the columns pass by.
struct IntegerTile {
  static constexpr int64_t kColumns = 48;  // 3, 6, 8, 4 and 2 divide it: the columns of the kernels
  static constexpr int64_t kRows = 64;

  int64_t begin, end, column, column_end;
};

class IntegerPass {
 public:
  IntegerPass(const IntegerKernels& kernels, const ScaledMmProblem& p, const IntegerRows& rows)
      : kernels_(kernels), p_(p), rows_(rows) {}

  static constexpr int64_t kMaxRows = 4096;  // prepared at once: bounds the scratch memory

  // Fills sums [tile rows, IntegerTile::kColumns].
  void sums_of(const IntegerTile& tile, int32_t* sums) const {
    if (const IntegerTiles* tiles = rows_.tiles()) {
      const auto* b = static_cast<const int8_t*>(p_.b) + tile.column * p_.ldb;
      tiles->multiply({rows_.at(tile.begin, 0), rows_.stride() * IntegerTiles::kRows,
                       tile.end - tile.begin, b, p_.ldb, tile.column_end - tile.column, p_.k},
                      sums, IntegerTile::kColumns);
      return;
    }
    for (int64_t i = tile.begin; i < tile.end; ++i) {
      std::fill_n(sums + (i - tile.begin) * IntegerTile::kColumns, IntegerTile::kColumns,
                  rows_.start(i));
    }
    for (int64_t k = 0; k < p_.k; k += kSlabK) {
      const int64_t count = std::min(kSlabK, p_.k - k);
      for (int64_t i = tile.begin; i < tile.end;) {
        int choice = 0;  // the most rows that are left
        while (2 << choice <= std::min<int64_t>(kernels_.max_rows, tile.end - i)) ++choice;
        rows_by_columns(tile, i, choice, k, count, sums);
        i += 1 << choice;
      }
    }
  }

 private:
  static constexpr int64_t kSlabK = 2048;

  void rows_by_columns(const IntegerTile& tile, int64_t row, int choice, int64_t k, int64_t count,
                       int32_t* sums) const {
    const IntegerKernels::Shape& shape = kernels_.shapes[choice];
    const auto* b = static_cast<const int8_t*>(p_.b) + k;
    int32_t* to = sums + (row - tile.begin) * IntegerTile::kColumns;
    const char* a = rows_.at(row, k);
    int64_t j = tile.column;
    for (; j + shape.columns <= tile.column_end; j += shape.columns) {
      shape.block({a, rows_.stride(), b + j * p_.ldb, p_.ldb, count}, to + j - tile.column,
                  IntegerTile::kColumns);
    }
    for (; j < tile.column_end; ++j) {
      shape.single({a, rows_.stride(), b + j * p_.ldb, p_.ldb, count}, to + j - tile.column,
                   IntegerTile::kColumns);
    }
  }

  const IntegerKernels& kernels_;
  const ScaledMmProblem& p_;
  const IntegerRows& rows_;
};

// The tasks of m x p.n sums: a task is a tile, chunk by chunk, so that the tasks of a thread are
// runs of neighbouring blocks of columns.
struct IntegerTasks {
  int64_t m, blocks, count, grain;

  IntegerTasks(const ScaledMmProblem& p, int64_t rows)
      : m(rows),
        blocks(ceil_div(p.n, IntegerTile::kColumns)),
        count(ceil_div(m, IntegerTile::kRows) * blocks),
        grain(CallShape::grain(work_of_rows(m) * IntegerTile::kColumns * p.k / 4)) {}

  // An int8 product costs a quarter of an fp32 one, and fewer rows than 8 wait for B: by products
  // alone one row by 3072 x 576 ran on one thread, 144 us, where two take 54.
  static int64_t work_of_rows(int64_t m) { return std::clamp<int64_t>(m, 8, IntegerTile::kRows); }

  IntegerTile at(int64_t task, int64_t n) const {
    const int64_t row = task / blocks * IntegerTile::kRows,
                  column = task % blocks * IntegerTile::kColumns;
    return {row, std::min(row + IntegerTile::kRows, m), column,
            std::min(column + IntegerTile::kColumns, n)};
  }
};

// Runs tasks [begin, end) of a pass. Calls epilogue.finish(sums, stride, row, rows, column,
// columns), where the first row of the pass is `first`; of p, only a and b are read.
template <typename Epilogue>
void integer_tiles(const IntegerKernels& kernels, const ScaledMmProblem& p, const IntegerRows& rows,
                   const IntegerTasks& tasks, int64_t first, int64_t begin, int64_t end,
                   const Epilogue& epilogue) {
  const IntegerPass pass(kernels, p, rows);
  alignas(64) int32_t sums[IntegerTile::kRows * IntegerTile::kColumns];
  for (int64_t i = begin; i < end; ++i) {
    const IntegerTile tile = tasks.at(i, p.n);
    pass.sums_of(tile, sums);
    epilogue.finish(sums, IntegerTile::kColumns, first + tile.begin, tile.end - tile.begin,
                    tile.column, tile.column_end - tile.column);
  }
}

// Runs all tiles of p.m x p.n sums. rows_of(begin, end) makes those rows ready.
template <typename RowsOf, typename Epilogue>
void integer_gemm_of(const IntegerKernels& kernels, const ScaledMmProblem& p, const RowsOf& rows_of,
                     const Epilogue& epilogue, const ParallelFor& parallel_for) {
  for (int64_t first = 0; first < p.m; first += IntegerPass::kMaxRows) {
    const int64_t m = std::min(IntegerPass::kMaxRows, p.m - first);
    const IntegerRows rows = rows_of(first, first + m);
    const IntegerTasks tasks(p, m);
    parallel_for(0, tasks.count, tasks.grain, [&](int64_t begin, int64_t end) {
      integer_tiles(kernels, p, rows, tasks, first, begin, end, epilogue);
    });
  }
}

// Does the same with the rows of p.a.
template <typename Epilogue>
void integer_gemm(const IntegerKernels& kernels, const ScaledMmProblem& p, const Epilogue& epilogue,
                  const ParallelFor& parallel_for) {
  const auto rows_of = [&](int64_t begin, int64_t end) {
    return IntegerRows(kernels, p, begin, end, parallel_for);
  };
  integer_gemm_of(kernels, p, rows_of, epilogue, parallel_for);
}

}  // namespace mixed_gemm::cpu
