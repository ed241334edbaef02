// qconv2d_int8 on the CPU: blocks of gathered rows through the exact int8 GEMM, requantized tile by
// tile straight into the output.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cpu/conv/conv_cpu.h"
#include "cpu/conv/patch_rows.h"
#include "cpu/cpu_kernels.h"
#include "cpu/instruction_set.h"
#include "cpu/integer_gemm.h"

namespace mixed_gemm {
namespace cpu {
namespace {

constexpr int64_t kScratchBytes = 4 << 20;  // of gathered rows
constexpr int64_t kLeastRows = 256;

// The formula of ConvInt8Problem.
class Requantize {
 public:
  explicit Requantize(const ConvInt8Problem& p)
      : p_(p), zero_sums_(p.shape.out_c), multipliers_(p.shape.out_c), offsets_(p.shape.out_c) {
    const int64_t k = p.shape.in_c * p.shape.taps();
    for (int64_t o = 0; o < p.shape.out_c; ++o) {
      zero_sums_[o] = p.input_zero_point * sum_of_weight(p, o, k);
      const double scale = p.weight_scale[o * p.weight_scale_stride];
      multipliers_[o] = static_cast<float>(p.input_scale * scale / p.output_scale);
      const double bias = p.bias ? p.bias[o] : 0;
      offsets_[o] = static_cast<float>(bias / p.output_scale + p.output_zero_point);
    }
  }

  // The epilogue of the rows from `first_row` on, which integer_gemm counts from 0.
  struct Rows {
    const Requantize& of;
    int64_t first_row;
    void finish(const int32_t* sums, int64_t stride, int64_t row, int64_t rows, int64_t column,
                int64_t columns) const {
      of.finish(sums, stride, first_row + row, rows, column, columns);
    }
  };

 private:
  static int32_t sum_of_weight(const ConvInt8Problem& p, int64_t channel, int64_t k) {
    if (p.weight_sums != nullptr) return p.weight_sums[channel];
    const int8_t* row = p.weight + channel * k;
    return std::accumulate(row, row + k, 0);
  }

  void finish(const int32_t* sums, int64_t stride, int64_t row, int64_t rows, int64_t column,
              int64_t columns) const {
    int8_t values[IntegerTile::kColumns];
    const ConvShape& s = p_.shape;
    for (int64_t r = 0; r < rows; ++r, sums += stride) {
      requantize(sums, column, columns, values);
      const PixelPlace at(s, row + r);
      int8_t* to = p_.d + at.image * p_.d_strides.image + at.y * p_.d_strides.h +
                   at.x * p_.d_strides.w + column * p_.d_strides.c;
      for (int64_t j = 0; j < columns; ++j) to[j * p_.d_strides.c] = values[j];
    }
  }

  void requantize(const int32_t* sums, int64_t column, int64_t columns, int8_t* to) const {
    // Adding and taking off 1.5 * 2^23 rounds to an integer, ties to even.
    constexpr float kRounder = 12582912.f;
    const auto least = static_cast<float>(p_.clamp_min), most = static_cast<float>(p_.clamp_max);
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t o = column + j;
      const auto sum = static_cast<float>(sums[j] - zero_sums_[o]);
      const float y = sum * multipliers_[o] + offsets_[o];
      const float above = y > least ? y : least;  // NaN: least
      const float inside = above < most ? above : most;
      to[j] = static_cast<int8_t>(static_cast<int32_t>((inside + kRounder) - kRounder));
    }
  }

  const ConvInt8Problem& p_;
  std::vector<int32_t> zero_sums_;
  std::vector<float> multipliers_, offsets_;
};

}  // namespace
}  // namespace cpu

void conv_int8_cpu(const ConvInt8Problem& p, const ParallelFor& parallel_for) {
  using namespace cpu;
  const ConvShape& s = p.shape;
  const int64_t rows = s.rows();
  if (rows == 0) return;
  const Requantize requantize(p);
  ScaledMmProblem gemm;
  gemm.n = s.out_c;
  gemm.k = s.in_c * s.taps();
  gemm.b = p.weight;
  gemm.ldb = gemm.k;
  const std::optional<int64_t> stride = stride_of_rows_in_place(s, p.input_strides);
  const PatchRows patches(s, p.input, p.input_strides, 1, s.in_c, p.input_zero_point);
  const int64_t step = stride ? rows : std::max(kLeastRows, kScratchBytes / gemm.k);
  const AlignedBuffer a(stride ? 0 : ceil_div(std::min(step, rows) * gemm.k, 4));
  gemm.lda = stride.value_or(gemm.k);
  for (int64_t row = 0; row < rows; row += step) {
    gemm.m = std::min(step, rows - row);
    if (stride) {
      gemm.a = p.input;
    } else {
      patches.gather(row, row + gemm.m, a.data(), parallel_for);
      gemm.a = a.data();
    }
    integer_gemm(*active_kernels().int8, gemm, Requantize::Rows{requantize, row}, parallel_for);
  }
}

}  // namespace mixed_gemm
