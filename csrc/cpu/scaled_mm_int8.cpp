// int8 x int8 on the CPU: exact int32 tiles, then the epilogue.
#include "cpu/integer_rows.h"
#include "cpu/scaled_epilogue_cpu.h"
#include "cpu/scaled_paths.h"

namespace mixed_gemm::cpu {
namespace {

// A block of columns (48 x 2048 bytes of B) and a chunk of rows (64 x 2048 of A) share L2; the rows
// of one call (8 x 2048, 16 KB) stay in L1 while the columns pass by.
constexpr int64_t kColumnsPerBlock = 48;  // 3, 6, 8, 4 and 2 divide it: the columns of the kernels
constexpr int64_t kRowsPerChunk = 64;
constexpr int64_t kSlabK = 2048;
constexpr int64_t kRowsPerPass = 4096;  // rows prepared at once: bounds the scratch memory

// Rows [begin, end) of a pass, columns [column, column_end).
struct Tile {
  int64_t begin, end, column, column_end;
};

class IntegerPass {
 public:
  IntegerPass(const IntegerKernels& kernels, const ScaledMmProblem& p, const IntegerRows& rows)
      : kernels_(kernels), p_(p), rows_(rows) {}

  void sums_of(const Tile& tile, int32_t* sums) const {
    for (int64_t i = tile.begin; i < tile.end; ++i) {
      std::fill_n(sums + (i - tile.begin) * kColumnsPerBlock, kColumnsPerBlock, rows_.start(i));
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
  void rows_by_columns(const Tile& tile, int64_t row, int choice, int64_t k, int64_t count,
                       int32_t* sums) const {
    const IntegerKernels::Shape& shape = kernels_.shapes[choice];
    const auto* b = static_cast<const int8_t*>(p_.b) + k;
    int32_t* to = sums + (row - tile.begin) * kColumnsPerBlock;
    const char* a = rows_.at(row, k);
    int64_t j = tile.column;
    for (; j + shape.columns <= tile.column_end; j += shape.columns) {
      shape.block({a, rows_.stride(), b + j * p_.ldb, p_.ldb, count}, to + j - tile.column,
                  kColumnsPerBlock);
    }
    for (; j < tile.column_end; ++j) {
      shape.single({a, rows_.stride(), b + j * p_.ldb, p_.ldb, count}, to + j - tile.column,
                   kColumnsPerBlock);
    }
  }

  const IntegerKernels& kernels_;
  const ScaledMmProblem& p_;
  const IntegerRows& rows_;
};

}  // namespace

void scaled_mm_int8(const CpuKernels& kernels, const ScaledMmProblem& p,
                    const ParallelFor& parallel_for) {
  const ScaledEpilogueCpu epilogue(kernels, p);
  for (int64_t first = 0; first < p.m; first += kRowsPerPass) {
    const int64_t m = std::min(kRowsPerPass, p.m - first);
    const IntegerRows rows(*kernels.int8, p, first, first + m, parallel_for);
    const IntegerPass pass(*kernels.int8, p, rows);
    const int64_t blocks = ceil_div(p.n, kColumnsPerBlock), chunks = ceil_div(m, kRowsPerChunk);
    // An int8 product costs a quarter of an fp32 one.
    const int64_t work = std::min(m, kRowsPerChunk) * kColumnsPerBlock * p.k / 4;
    // Chunk by chunk, so that a task is a run of neighbouring blocks of columns.
    parallel_for(0, chunks * blocks, CallShape::grain(work), [&](int64_t begin, int64_t end) {
      alignas(64) int32_t sums[kRowsPerChunk * kColumnsPerBlock];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / blocks * kRowsPerChunk, column = i % blocks * kColumnsPerBlock;
        const Tile tile = {row, std::min(row + kRowsPerChunk, m), column,
                           std::min(column + kColumnsPerBlock, p.n)};
        pass.sums_of(tile, sums);
        epilogue.finish(sums, kColumnsPerBlock, first + row, tile.end - row, column,
                        tile.column_end - column);
      }
    });
  }
}

}  // namespace mixed_gemm::cpu
