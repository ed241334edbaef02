// fp8 x fp8 on the CPU: codes are decoded in registers, exactly. A product of two e4m3 has 8
// significant bits, so only sums round.
#include "cpu/scaled_mm/float8.h"

#include <algorithm>

#include "cpu/aligned_buffer.h"
#include "cpu/scaled_mm/epilogue_cpu.h"
#include "cpu/scaled_mm/paths.h"

namespace mixed_gemm::cpu {
namespace {

// Rows of A as Float8Kernels read them.
class Float8Rows {
 public:
  Float8Rows(const Float8Kernels& kernels, const Float8Call& call, int64_t begin, int64_t end,
             const ParallelFor& parallel_for)
      : kernels_(kernels),
        stride_(std::max<int64_t>(1, call.count) * call.segments.padded),
        bytes_(ceil_div((end - begin) * stride_ * kernels.a_bytes, 4)) {
    const ScaledMmProblem& p = call.p;
    parallel_for(0, end - begin, CallShape::grain(p.k), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        const uint8_t* row = static_cast<const uint8_t*>(p.a) + (begin + i) * p.lda;
        for (int64_t g = 0; g < call.count; ++g) {
          const int64_t k = g * call.segments.length;
          kernels.prepare(row + k, call.length_of(g), at(i, g * call.segments.padded));
        }
      }
    });
  }

  // Element k of row i, counted with the padding of segments.
  char* at(int64_t i, int64_t k) const {
    return reinterpret_cast<char*>(bytes_.data()) + (i * stride_ + k) * kernels_.a_bytes;
  }
  int64_t stride() const { return stride_; }  // in elements

 private:
  const Float8Kernels& kernels_;
  int64_t stride_;
  AlignedBuffer bytes_;
};

// The sums of some rows and columns: the codes of B are decoded for up to 8 rows at a time.
class Float8Pass {
 public:
  static constexpr int64_t kRows = 64, kColumns = 64;

  Float8Pass(const Float8Kernels& kernels, const Float8Call& call, const Float8Rows& rows,
             int64_t first)
      : kernels_(kernels), call_(call), rows_(rows), first_(first) {}

  // Fills sums [rows, kColumns]; row and end count from the first prepared row.
  void sums_of(int64_t row, int64_t end, int64_t column, int64_t column_end, float* sums) const {
    std::fill_n(sums, (end - row) * kColumns, 0.f);
    const int most = static_cast<int>(std::min<int64_t>(kernels_.max_rows, end - row));
    // The rows of A that pass stay in L1 while the columns go by.
    const int64_t slab = std::max<int64_t>(kMinSlab, kRowBytes / (most * kernels_.a_bytes));
    const int64_t whole = call_.segments.length;
    const int64_t step = call_.scaled() ? std::max<int64_t>(1, slab / whole) * whole : slab;
    for (int64_t k = 0; k < call_.p.k; k += step) {
      const int64_t count = std::min(step, call_.p.k - k);
      for (int64_t i = row; i < end;) {
        int choice = 0;  // the most rows that are left
        while (2 << choice <= std::min<int64_t>(kernels_.max_rows, end - i)) ++choice;
        rows_by_columns(i, choice, column, column_end, k, count, sums + (i - row) * kColumns);
        i += 1 << choice;
      }
    }
  }

 private:
  static constexpr int64_t kMinSlab = 512;        // elements, a multiple of every step
  static constexpr int64_t kRowBytes = 24 << 10;  // half of an L1
  static constexpr int kMostColumns = 8;

  void rows_by_columns(int64_t row, int choice, int64_t column, int64_t column_end, int64_t k,
                       int64_t count, float* sums) const {
    const Float8Kernels::Shape& shape = kernels_.shapes[choice];
    const ScaledMmProblem& p = call_.p;
    const int64_t segment = k / call_.segments.length;
    const int64_t prepared = call_.scaled() ? segment * call_.segments.padded : k;
    const float* scale_b[kMostColumns] = {};
    Float8Kernels::Operands o = {
        rows_.at(row, prepared), rows_.stride(), nullptr,          p.ldb,  count,
        call_.segments,          nullptr,        p.scale_a_stride, scale_b};
    if (call_.scaled()) o.scale_a = p.scale_a + (first_ + row) * p.scale_a_stride + segment;
    for (int64_t j = column; j < column_end;) {
      const bool block = j + shape.columns <= column_end;
      const int columns = block ? shape.columns : 1;
      o.b = static_cast<const uint8_t*>(p.b) + j * p.ldb + k;
      for (int c = 0; c < columns && call_.scaled(); ++c) {
        scale_b[c] = call_.scale_b_of(j + c) + segment;
      }
      (block ? shape.block : shape.single)(o, sums + j - column, kColumns);
      j += columns;
    }
  }

  const Float8Kernels& kernels_;
  const Float8Call& call_;
  const Float8Rows& rows_;
  int64_t first_;
};

constexpr int64_t kMaxRowsAtOnce = 1024;  // prepared at once: bounds the scratch memory

void run_in_vectors(const Float8Kernels& kernels, const ScaledMmProblem& p,
                    const ScaledEpilogueCpu& epilogue, const ParallelFor& parallel_for) {
  const Float8Call call(p, kernels.k_step, std::max<int64_t>(p.k, 1));
  for (int64_t first = 0; first < p.m; first += kMaxRowsAtOnce) {
    const int64_t m = std::min(kMaxRowsAtOnce, p.m - first);
    const Float8Rows rows(kernels, call, first, first + m, parallel_for);
    const Float8Pass pass(kernels, call, rows, first);
    const int64_t blocks = ceil_div(p.n, Float8Pass::kColumns),
                  chunks = ceil_div(m, Float8Pass::kRows);
    const int64_t work = std::min(m, Float8Pass::kRows) * Float8Pass::kColumns * p.k;
    // Tasks go chunk by chunk, so that one is a run of neighbouring blocks of columns.
    parallel_for(0, chunks * blocks, CallShape::grain(work), [&](int64_t begin, int64_t end) {
      alignas(64) float sums[Float8Pass::kRows * Float8Pass::kColumns];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / blocks * Float8Pass::kRows,
                      column = i % blocks * Float8Pass::kColumns;
        const int64_t row_end = std::min(row + Float8Pass::kRows, m);
        const int64_t column_end = std::min(column + Float8Pass::kColumns, p.n);
        pass.sums_of(row, row_end, column, column_end, sums);
        epilogue.finish(sums, Float8Pass::kColumns, first + row, row_end - row, column,
                        column_end - column);
      }
    });
  }
}

}  // namespace

void scaled_mm_float8(const CpuKernels& kernels, const ScaledMmProblem& p,
                      const ParallelFor& parallel_for) {
  static constexpr float kOne = 1;
  ScaledMmProblem finished = p;  // what is left for the epilogue
  if (p.block_k > 0) {
    finished.scale_a = finished.scale_b = &kOne;
    finished.scale_a_stride = finished.scale_b_stride = 0;
  }
  const ScaledEpilogueCpu epilogue(kernels, finished);
  const Float8TileKernels* tiles = kernels.float8->tiles;
  if (tiles && p.m >= tiles->min_rows) {
    float8_in_tiles(*tiles, p, epilogue, parallel_for);
  } else {
    run_in_vectors(*kernels.float8, p, epilogue, parallel_for);
  }
}

}  // namespace mixed_gemm::cpu
