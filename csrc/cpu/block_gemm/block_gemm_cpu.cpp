// block_quant_gemm on the CPU: rows of A rounded to int8 per block, then tiles of the exact int8
// product of every block, rescaled into fp32 sums.
#include "cpu/block_gemm/block_gemm_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "cpu/epilogue_cpu.h"
#include "cpu/instruction_set.h"
#include "cpu/integer_gemm.h"

namespace mixed_gemm {
namespace cpu {
namespace {

constexpr int64_t kRowsPerPass = 1024;  // rounded at once: bounds the scratch memory

struct Range {
  float low, high;
  bool finite;
};

// The range of a row, by lanes, so that it compiles to vector minima and maxima.
Range range_of(const float* x, int64_t count) {
  constexpr int kLanes = 16;
  float low[kLanes], high[kLanes], spoiled[kLanes];
  for (int j = 0; j < kLanes; ++j) {
    low[j] = high[j] = x[std::min<int64_t>(j, count - 1)];
    spoiled[j] = 0;
  }
  const auto add = [&](int j, float value) {
    low[j] = value < low[j] ? value : low[j];
    high[j] = value > high[j] ? value : high[j];
    spoiled[j] += value * 0;  // NaN from the first NaN or infinity on
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) add(j, x[i + j]);
  }
  for (int j = 0; i < count; ++i, ++j) add(j, x[i]);
  const float sum = std::accumulate(spoiled, spoiled + kLanes, 0.f);
  return {*std::min_element(low, low + kLanes), *std::max_element(high, high + kLanes), sum == 0};
}

// Rows of A, rounded by the formula of BlockGemmProblem.
class BlockQuantizedRows {
 public:
  BlockQuantizedRows(const CpuKernels& kernels, const BlockGemmProblem& p, int64_t begin,
                     int64_t end, const ParallelFor& parallel_for)
      : kernels_(kernels), p_(p), values_((end - begin) * p.k), rows_((end - begin) * p.blocks()) {
    parallel_for(0, end - begin, CallShape::grain(6 * p.k), [&](int64_t first, int64_t last) {
      AlignedBuffer row(p.k);
      for (int64_t i = first; i < last; ++i) {
        const char* from =
            static_cast<const char*>(p.a) + (begin + i) * p.lda * element_bytes(p.element);
        kernels.to_float({p.element, from, 0}, 1, p.k, row.data(), 0);
        for (int64_t g = 0; g < p.blocks(); ++g) quantize(row.data(), i, g);
      }
    });
  }

  struct Block {
    float scale, offset, sum;  // sum of q
  };
  const Block& at(int64_t row, int64_t block) const { return rows_[row * p_.blocks() + block]; }
  const int8_t* values() const { return values_.data(); }  // [rows, k]

 private:
  void quantize(float* row, int64_t i, int64_t block) {
    const int64_t k = block * p_.block_size, count = std::min(p_.block_size, p_.k - k);
    float* x = row + k;
    int8_t* q = values_.data() + i * p_.k + k;
    Block& to = rows_[i * p_.blocks() + block];
    const Range range = range_of(x, count);
    if (!range.finite) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::fill(q, q + count, int8_t{0});
      to = {nan, nan, 0};
      return;
    }
    to.scale = std::max((range.high / 2 - range.low / 2) / 127.5f, kMinScale);
    to.offset = range.high - 127 * to.scale;
    for (int64_t j = 0; j < count; ++j) x[j] -= to.offset;
    kernels_.int8->round(x, count, 1 / to.scale, 0, q);
    to.sum = static_cast<float>(std::accumulate(q, q + count, 0));
  }

  const CpuKernels& kernels_;
  const BlockGemmProblem& p_;
  std::vector<int8_t> values_;
  std::vector<Block> rows_;
};

// One pass over up to kRowsPerPass rows of A, already rounded.
class BlockPass {
 public:
  BlockPass(const CpuKernels& kernels, const BlockGemmProblem& p, const BlockQuantizedRows& a,
            int64_t rows, const ParallelFor& parallel_for)
      : kernels_(kernels), p_(p), a_(a) {
    const std::vector<int8_t> ones(p.b_sums == nullptr ? p.block_size : 0, 1);
    for (int64_t g = 0; g < p.blocks(); ++g) {
      ScaledMmProblem one;
      one.n = p.n;
      one.k = std::min(p.block_size, p.k - g * p.block_size);
      one.b = p.b + g * p.block_size;
      one.ldb = p.ldb;
      one.a = ones.data();
      if (p.b_sums == nullptr && (g == 0 || one.k < p.block_size)) {
        ones_.emplace_back(*kernels.int8, one, 0, 1, parallel_for);
      }
      one.a = a.values() + g * p.block_size;
      one.lda = p.k;
      products_.push_back(one);
      rows_.emplace_back(*kernels.int8, one, 0, rows, parallel_for);
    }
  }

  // The sums of a tile, [tile rows, IntegerTile::kColumns].
  void run(const IntegerTile& tile, float* sums) const {
    std::fill_n(sums, (tile.end - tile.begin) * IntegerTile::kColumns, 0.f);
    for (int64_t g = 0; g < p_.blocks(); ++g) add_block(tile, g, sums);
  }

 private:
  void add_block(const IntegerTile& tile, int64_t g, float* sums) const {
    constexpr int64_t kColumns = IntegerTile::kColumns;
    alignas(64) int32_t products[IntegerTile::kRows * kColumns], b_sums[kColumns];
    alignas(64) float scale[kColumns], offset[kColumns], per_offset_a[kColumns];
    const ScaledMmProblem& block = products_[g];
    sum_columns(tile, g, b_sums);
    IntegerPass(*kernels_.int8, block, rows_[g]).sums_of(tile, products);
    const int64_t columns = tile.column_end - tile.column;
    load(p_.scale_b, g, tile.column, columns, scale);
    load(p_.offset_b, g, tile.column, columns, offset);
    const auto size = static_cast<float>(block.k);
    for (int64_t j = 0; j < columns; ++j) {
      per_offset_a[j] = scale[j] * static_cast<float>(b_sums[j]) + size * offset[j];
    }
    for (int64_t i = tile.begin; i < tile.end; ++i) {
      const BlockQuantizedRows::Block a = a_.at(i, g);
      const int32_t* c = products + (i - tile.begin) * kColumns;
      float* to = sums + (i - tile.begin) * kColumns;
      for (int64_t j = 0; j < columns; ++j) {
        to[j] += a.scale * (scale[j] * static_cast<float>(c[j]) + offset[j] * a.sum) +
                 a.offset * per_offset_a[j];
      }
    }
  }

  // Reads a byte of each line of a block. The products of several rows read B a few columns at a
  // time, and wait for each where it comes from memory: summing, which reads more at once, has read
  // ahead for them. With sums given and without this, 8 rows by 4096 x 4096 in blocks of 128 took
  // 2.1 times as long as with summing, with it 0.87 (one thread of an AMD EPYC with VNNI), and with
  // prefetch instructions 2.0.
  static void read_ahead(const IntegerTile& tile, const ScaledMmProblem& block) {
    constexpr int64_t kLine = 64;
    const auto* b = static_cast<const volatile char*>(block.b);
    for (int64_t column = tile.column; column < tile.column_end; ++column) {
      for (int64_t k = 0; k < block.k; k += kLine) {
        [[maybe_unused]] const char byte = b[column * block.ldb + k];
      }
    }
  }

  // The column sums of block g of B in the columns of a tile.
  void sum_columns(const IntegerTile& tile, int64_t g, int32_t* sums) const {
    if (p_.b_sums != nullptr) {
      const int32_t* given = p_.b_sums + g * p_.n;
      std::copy(given + tile.column, given + tile.column_end, sums);
      if (tile.end - tile.begin > 1) read_ahead(tile, products_[g]);
      return;
    }
    const ScaledMmProblem& block = products_[g];
    const bool full = block.k == p_.block_size;
    IntegerPass(*kernels_.int8, block, full ? ones_.front() : ones_.back())
        .sums_of({0, 1, tile.column, tile.column_end}, sums);
  }

  void load(const void* from, int64_t g, int64_t column, int64_t columns, float* to) const {
    const char* row =
        static_cast<const char*>(from) + (g * p_.scale_stride + column) * element_bytes(p_.element);
    kernels_.to_float({p_.element, row, 0}, 1, columns, to, 0);
  }

  const CpuKernels& kernels_;
  const BlockGemmProblem& p_;
  const BlockQuantizedRows& a_;
  std::vector<ScaledMmProblem> products_;
  // ones_: rows of ones for a full block, and for the last if ragged; none where sums are given.
  std::vector<IntegerRows> rows_, ones_;
};

}  // namespace
}  // namespace cpu

void block_gemm_cpu(const BlockGemmProblem& p, const ParallelFor& parallel_for) {
  using namespace cpu;
  if (p.m == 0 || p.n == 0) return;
  const CpuKernels& kernels = active_kernels();
  GemmProblem output;  // what the epilogue of the float GEMM reads
  output.m = p.m;
  output.n = p.n;
  output.element = p.element;
  output.scheme.scales.group = 1;
  output.activation = p.activation;
  output.bias = p.bias;
  output.d = p.d;
  const CallShape shape(output, kernels);
  const EpilogueCpu epilogue(shape);
  const int64_t column_blocks = ceil_div(p.n, IntegerTile::kColumns);
  for (int64_t first = 0; first < p.m; first += kRowsPerPass) {
    const int64_t m = std::min(kRowsPerPass, p.m - first);
    const BlockQuantizedRows a(kernels, p, first, first + m, parallel_for);
    const BlockPass pass(kernels, p, a, m, parallel_for);
    const int64_t chunks = ceil_div(m, IntegerTile::kRows);
    const int64_t work = std::min(m, IntegerTile::kRows) * IntegerTile::kColumns * p.k / 2;
    parallel_for(0, chunks * column_blocks, CallShape::grain(work),
                 [&](int64_t begin, int64_t end) {
                   alignas(64) float sums[IntegerTile::kRows * IntegerTile::kColumns];
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t row = i / column_blocks * IntegerTile::kRows;
                     const int64_t column = i % column_blocks * IntegerTile::kColumns;
                     const IntegerTile tile = {row, std::min(row + IntegerTile::kRows, m), column,
                                               std::min(column + IntegerTile::kColumns, p.n)};
                     pass.run(tile, sums);
                     epilogue.finish(sums, IntegerTile::kColumns, first + row, tile.end - row,
                                     column, tile.column_end - column);
                   }
                 });
  }
}

}  // namespace mixed_gemm
