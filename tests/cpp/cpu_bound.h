// The error bound of the CPU GEMM, and how near an output comes to it.
#pragma once
#include <cmath>
#include <vector>

#include "cpu_case.h"

namespace mixed_gemm::test {

inline double activate64(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu:
      return std::max(x, 0.);
    case Activation::kRelu6:
      return std::min(std::max(x, 0.), 6.);
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kIdentity:
      break;
  }
  return x;
}

// The bound, after docs/numerics.md, with lambda = 6 and e = 2^-24 (fp32, round to nearest).
//
// A sum of K products by fma rounds K times, each time by at most e times the partial sum so far.
// For terms t_k of random sign the partial sum after i of them is a walk of the size sqrt(i / K)
// |t|, |t|^2 = sum t_k^2, around the drift (i / K) y towards the result; its square is at most (i /
// K) (|t|^2 + y^2) =: (i / K) T^2. Roundings are independent, so their sum has a standard deviation
// below e sqrt(sum_i i / K) T = e sqrt(K / 2) T. With a zero point the terms are a q s and a z s
// apart, so |t|^2 = a^2 @ ((q s)^2 + (z s)^2). Around the sum every term rounds at most four times
// more: a * pre_scale, the dequantized weight (two), and the group's sum or scale. Hence
//   E = lambda e (sqrt(K / 2) + 4) T.
// Numbers of a code book round to bf16 with activations of bf16, each by at most u of it, which
// adds lambda u |t|. Bias and activation act on y + E: one rounding each for the bias, a slope of
// at most 1.13 (gelu), and a few roundings inside of the activation. The result rounds once, u =
// 2^-11, 2^-8 or 2^-24, and `tiny` is half the smallest subnormal of the output.
struct Unit {
  double u, tiny;
};
constexpr Unit kUnits[] = {{0x1p-11, 0x1p-25}, {0x1p-8, 0x1p-134}, {0x1p-24, 0x1p-150}};

// The largest |d - float64| / bound of all elements; NaN if any element is.
inline double worst_ratio(const Operands& operands, const Matrix& d) {
  const Case& c = operands.shape;
  const Unit unit = kUnits[static_cast<int>(c.element)];
  constexpr double kLambda = 6, kE = 0x1p-24, kSlope = 1.13;
  const double k = static_cast<double>(c.k);
  const bool rounds_book = !cpu::fits_bf16(c.weight) && c.element == ElementType::kBFloat16;
  std::vector<double> a;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t l = 0; l < c.k; ++l) {
      a.push_back(operands.a.get(i, l) * (c.pre_scale ? operands.pre_scale.get(0, l) : 1));
    }
  }
  double worst = 0;
  for (int64_t j = 0; j < c.n; ++j) {
    std::vector<Operands::Weight> column;
    for (int64_t l = 0; l < c.k; ++l) column.push_back(operands.weight(j, l));
    for (int64_t i = 0; i < c.m; ++i) {
      const double* row = a.data() + i * c.k;
      double y = 0, squares = 0;
      for (size_t l = 0; l < column.size(); ++l) {
        y += row[l] * column[l].value;
        squares += row[l] * row[l] * column[l].squared_terms;
      }
      double error = kLambda * kE * (std::sqrt(k / 2) + 4) * std::sqrt(squares + y * y);
      if (rounds_book) error += kLambda * unit.u * std::sqrt(squares);
      if (c.bias) {
        y += operands.bias.get(0, j);
        error += kE * std::fabs(y);
      }
      const double result = activate64(c.activation, y);
      if (c.activation != Activation::kIdentity) {
        error = kSlope * error + 6 * kE * (std::fabs(y) + std::fabs(result));
      }
      const double bound = unit.u * (std::fabs(result) + error) + error + unit.tiny;
      const double ratio = std::fabs(d.get(i, j) - result) / bound;
      worst = ratio <= worst ? worst : ratio;  // NaN wins
    }
  }
  return worst;
}

}  // namespace mixed_gemm::test
