// fp8 x fp8 on the CPU: both sides become fp32 in panels (exact), which the dense fp32 kernels of
// fpA_intB multiply. A product of two e4m3 has 8 significant bits, so only the sum rounds.
#include <array>

#include "core/float8.h"
#include "cpu/scaled_mm/epilogue_cpu.h"
#include "cpu/scaled_mm/paths.h"

namespace mixed_gemm::cpu {
namespace {

constexpr int64_t kRowsPerChunk = 128;
constexpr int64_t kSlabK = 384;  // as gemm_dense.cpp
constexpr int64_t kMaxWidth = kUnitsPerPanel * kMaxLanes;

// Every value of the format, and the strided copies through it.
class Float8Table {
 public:
  Float8Table() {
    for (int bits = 0; bits < 256; ++bits) {
      values_[bits] = decode_e4m3(static_cast<uint8_t>(bits));
    }
  }
  // to[k * width + i] = vector i, element k; zero for i in count..width.
  void interleave(const uint8_t* from, int64_t stride, int64_t count, int64_t k, int64_t width,
                  float* to) const {
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        to[j * width + i] = i < count ? values_[from[i * stride + j]] : 0.f;
      }
    }
  }

 private:
  std::array<float, 256> values_;
};

struct Chunk {
  int64_t row, rows, column, columns;
};

void run_chunk(const CpuKernels& kernels, const Float8Table& table, const ScaledMmProblem& p,
               const Chunk& chunk, float* sums) {
  const int64_t width = kUnitsPerPanel * kernels.lanes;
  const int64_t block_rows = kernels.fp32.dense.block_rows;
  alignas(64) float a[kSlabK * kMaxRows], b[kSlabK * kMaxWidth];
  std::fill_n(sums, kRowsPerChunk * width, 0.f);  // what K = 0 gives
  for (int64_t k = 0; k < p.k; k += kSlabK) {
    const int64_t k_end = std::min(k + kSlabK, p.k);
    const PanelSlab slab = {b, {}, k, k_end, k_end == p.k};
    table.interleave(static_cast<const uint8_t*>(p.b) + chunk.column * p.ldb + k, p.ldb,
                     chunk.columns, k_end - k, width, b);
    for (int64_t r = 0; r < chunk.rows; r += block_rows) {
      int choice = 0;  // rows are filled up to a power of two
      const int64_t real = std::min(block_rows, chunk.rows - r);
      while (1 << choice < real) ++choice;
      table.interleave(static_cast<const uint8_t*>(p.a) + (chunk.row + r) * p.lda + k, p.lda, real,
                       k_end - k, 1 << choice, a);
      kernels.fp32.dense.multiply[choice]({a, nullptr, 1, 1 << choice}, slab, sums + r * width,
                                          nullptr, width);
    }
  }
}

}  // namespace

void scaled_mm_float8(const CpuKernels& kernels, const ScaledMmProblem& p,
                      const ParallelFor& parallel_for) {
  static const Float8Table kTable;
  const ScaledEpilogueCpu epilogue(kernels, p);
  const int64_t width = kUnitsPerPanel * kernels.lanes;
  const int64_t panels = ceil_div(p.n, width), chunks = ceil_div(p.m, kRowsPerChunk);
  const int64_t work = std::min(p.m, kRowsPerChunk) * width * p.k;
  parallel_for(0, chunks * panels, CallShape::grain(work), [&](int64_t begin, int64_t end) {
    AlignedBuffer sums(kRowsPerChunk * width);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / panels * kRowsPerChunk, column = i % panels * width;
      const Chunk chunk = {row, std::min(kRowsPerChunk, p.m - row), column,
                           std::min(width, p.n - column)};
      run_chunk(kernels, kTable, p, chunk, sums.data());
      epilogue.finish(sums.data(), width, row, chunk.rows, column, chunk.columns);
    }
  });
}

}  // namespace mixed_gemm::cpu
