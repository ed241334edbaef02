// One CPU GEMM for the tests: random operands in exactly sized memory, and the float64 reference.
//
// Every operand starts one byte off alignment if the case says so, and gaps between rows and 64
// bytes on both sides are NaN (0xff), so a stray read shows up as NaN; under AddressSanitizer the
// borders are dropped and a stray read is caught at once.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <random>
#include <vector>

#include "core/half_arithmetic.h"
#include "cpu/call_shape.h"
#include "cpu/cpu_kernels.h"
#include "cpu/gemm/paths.h"
#include "layout/pack_weight.h"
#include "layout/weight_layout.h"
#include "problem/gemm.h"

namespace mixed_gemm::test {

#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kBorder = 0;
#else
constexpr int64_t kBorder = 64;
#endif

struct Case {
  int64_t m = 1, n = 1, k = 1;
  WeightType weight = WeightType::kInt4;
  int64_t group = 0;  // as GemmProblem has it: per channel is >= k
  ZeroMode zero_mode = ZeroMode::kNone;
  ElementType element = ElementType::kFloat32;
  Activation activation = Activation::kIdentity;
  bool bias = false, pre_scale = false, factor = false;
  int64_t padding = 0;    // elements between rows of a and of scales
  int64_t misalign = 0;   // bytes
  bool few_bits = false;  // of scales: four, as float8_e4m3fn has them
  bool integers = false;  // small integers and a power-of-two scale: every sum is exact
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "m" << c.m << " n" << c.n << " k" << c.k << " " << weight_info(c.weight).name
             << " group" << c.group << " zeros=" << kZeroModeNames[static_cast<int>(c.zero_mode)]
             << " " << kElementTypeNames[static_cast<int>(c.element)] << " "
             << kActivationNames[static_cast<int>(c.activation)] << (c.bias ? " bias" : "")
             << (c.pre_scale ? " pre_scale" : "") << (c.factor ? " factor" : "") << " padding"
             << c.padding << " misalign" << c.misalign << (c.few_bits ? " few bits" : "")
             << (c.integers ? " integers" : "");
}

inline int64_t bytes_of(ElementType element) { return element == ElementType::kFloat32 ? 4 : 2; }

inline void store(ElementType element, double value, uint8_t* to) {
  const auto wide = static_cast<float>(value);
  const uint16_t half =
      element == ElementType::kFloat16 ? encode<Half>(value) : encode<BFloat16>(value);
  if (element == ElementType::kFloat32) {
    std::memcpy(to, &wide, 4);
  } else {
    std::memcpy(to, &half, 2);
  }
}

inline double fetch(ElementType element, const uint8_t* from) {
  float wide;
  uint16_t half;
  if (element == ElementType::kFloat32) {
    std::memcpy(&wide, from, 4);
    return wide;
  }
  std::memcpy(&half, from, 2);
  return element == ElementType::kFloat16 ? decode<Half>(half) : decode<BFloat16>(half);
}

// A [rows, columns] of 16/32-bit floats with `stride` elements between rows, border and gaps NaN.
class Matrix {
 public:
  Matrix() = default;
  Matrix(ElementType element, int64_t rows, int64_t columns, int64_t padding, int64_t misalign)
      : element_(element), stride_(columns + padding), start_(kBorder + misalign) {
    const int64_t elements = rows == 0 ? 0 : (rows - 1) * stride_ + columns;
    bytes_.assign(static_cast<size_t>(start_ + elements * bytes_of(element) + kBorder), 0xff);
  }

  int64_t stride() const { return stride_; }
  uint8_t* data() { return bytes_.data() + start_; }
  const uint8_t* data() const { return bytes_.data() + start_; }
  void set(int64_t i, int64_t j, double x) { store(element_, x, data() + offset(i, j)); }
  double get(int64_t i, int64_t j) const { return fetch(element_, data() + offset(i, j)); }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  int64_t offset(int64_t i, int64_t j) const { return (i * stride_ + j) * bytes_of(element_); }
  ElementType element_ = ElementType::kFloat32;
  int64_t stride_ = 0, start_ = 0;
  std::vector<uint8_t> bytes_;
};

// The operands of a case, and the values of them that the reference needs.
struct Operands {
  Operands(const Case& c, unsigned seed) : shape(c) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> around_one(0.5, 1.5);
    const auto integer = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    groups = ceil_div(c.k, c.group);
    const WeightInfo info = weight_info(c.weight);
    const int half_range = 1 << (info.bits - 1);
    q.resize(static_cast<size_t>(c.n * c.k));
    for (auto& code : q) code = static_cast<int8_t>(integer(0, 2 * half_range - 1) - info.bias);
    if (c.weight == WeightType::kE4M3) {
      for (auto& code : q) code = (code & 0x7f) == 0x7f ? 0 : code;  // NaN
    }
    for (auto& code : q) code = c.integers && !is_small_integer(code) ? 0 : code;
    a = filled(c.m, c.k, c.padding, [&] { return c.integers ? integer(-2, 2) : normal(random); });
    const auto scale = [&] {
      return c.few_bits ? std::ldexp(integer(8, 15), -integer(3, 8)) : around_one(random);
    };
    scales =
        filled(groups, c.n, c.padding, [&] { return c.integers ? 1 / 64. : scale() / half_range; });
    if (c.zero_mode == ZeroMode::kSub) {
      zeros = filled(groups, c.n, c.padding, [&] { return integer(-half_range, half_range - 1); });
    }
    if (c.zero_mode == ZeroMode::kAdd) {
      zeros = filled(groups, c.n, c.padding,
                     [&] { return c.integers ? integer(-8, 8) / 64. : normal(random); });
    }
    if (c.bias)
      bias = filled(1, c.n, 0, [&] { return c.integers ? integer(-3, 3) : normal(random); });
    if (c.pre_scale) {
      pre_scale =
          filled(1, c.k, 0, [&] { return c.integers ? 1 << integer(0, 1) : around_one(random); });
    }
    if (c.factor) {
      factor.resize(static_cast<size_t>(c.n));
      for (auto& x : factor) {
        x = static_cast<float>(c.integers ? 1 << integer(0, 2) : normal(random));
      }
    }
    pack();
  }

  void pack() {
    const int64_t size = with_weight(shape.weight, [&](auto weight) {
      return WeightLayout<decltype(weight)>::packed_bytes(shape.n, shape.k);
    });
    packed.assign(static_cast<size_t>(shape.misalign + size), 0);
    pack_weight(shape.weight, q.data(), shape.k, shape.n, shape.k, packed.data() + shape.misalign,
                serial_for);
  }

  GemmProblem problem() const {
    GemmProblem p;
    p.m = shape.m, p.n = shape.n, p.k = shape.k;
    p.element = shape.element;
    p.scheme = integer_scheme(shape.weight, shape.group, shape.zero_mode);
    p.activation = shape.activation;
    p.a = a.data(), p.a_stride = a.stride();
    p.b_packed = packed.data() + shape.misalign;
    p.scales = scales.data(), p.scale_stride = scales.stride();
    if (shape.zero_mode != ZeroMode::kNone) p.zeros = zeros.data();
    if (shape.factor) p.factor = factor.data();
    if (shape.bias) p.bias = bias.data();
    if (shape.pre_scale) p.pre_scale = pre_scale.data();
    return p;
  }

  // The number that a code stands for.
  double number(int8_t code) const {
    return with_weight(shape.weight, [&](auto weight) {
      using Weight = decltype(weight);
      const auto stored = static_cast<uint32_t>(code + Weight::kBias);
      return static_cast<double>(Weight::value(stored & WeightLayout<Weight>::kMask));
    });
  }
  bool is_small_integer(int8_t code) const {
    const double x = 2 * number(code);  // E2M1 has halves
    return x == std::round(x) && std::fabs(x) <= 256;
  }

  // The real value of weight (column, row of K), and the size of the terms that made it.
  struct Weight {
    double value, squared_terms;
  };
  Weight weight(int64_t n, int64_t k) const {
    const int64_t g = k / shape.group;
    const double integer = number(q[static_cast<size_t>(n * shape.k + k)]);
    const double s = scales.get(g, n) * (shape.factor ? factor[static_cast<size_t>(n)] : 1.f);
    if (shape.zero_mode == ZeroMode::kNone) return {integer * s, integer * s * integer * s};
    const double z = zeros.get(g, n);
    const double zero = shape.zero_mode == ZeroMode::kSub ? -z * s : z;
    return {integer * s + zero, integer * s * integer * s + zero * zero};
  }

  Case shape;
  int64_t groups = 0;
  std::vector<int8_t> q;
  std::vector<uint8_t> packed;
  Matrix a, scales, zeros, bias, pre_scale;
  std::vector<float> factor;

 private:
  template <typename Next>
  Matrix filled(int64_t rows, int64_t columns, int64_t padding, const Next& next) const {
    Matrix matrix(shape.element, rows, columns, padding, shape.misalign);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) matrix.set(i, j, next());
    }
    return matrix;
  }
};

// A path that runs a problem: a kernel table and one of its ways, or the dense one where tiles do
// not take the weight with these activations.
struct Path {
  const cpu::CpuKernels* kernels;
  cpu::GemmPath way;

  void operator()(const GemmProblem& p, const ParallelFor& parallel_for) const {
    constexpr decltype(&cpu::gemm_fused) kWays[] = {cpu::gemm_fused, cpu::gemm_dense,
                                                    cpu::gemm_tiles};
    const bool tiles = way == cpu::GemmPath::kTiles;
    const bool taken = !tiles || cpu::CallShape::takes_pairs(p, kernels->tiles->dense);
    kWays[static_cast<int>(taken ? way : cpu::GemmPath::kDense)](*kernels, p, parallel_for);
  }
};

inline std::ostream& operator<<(std::ostream& out, const Path& path) {
  constexpr const char* kNames[] = {"_fused", "_dense", "_tiles"};
  return out << path.kernels->name << kNames[static_cast<int>(path.way)];
}

// Returns the output, which lay in the middle of borders that must stay as they were.
inline Matrix run(const Path& path, const Operands& operands, const ParallelFor& parallel_for) {
  const Case& c = operands.shape;
  Matrix d(c.element, c.m, c.n, 0, c.misalign);
  const auto before = d.bytes();
  GemmProblem p = operands.problem();
  p.d = d.data();
  path(p, parallel_for);
  const auto first = static_cast<size_t>(kBorder + c.misalign);
  EXPECT_TRUE(
      std::equal(before.begin(), before.begin() + static_cast<int64_t>(first), d.bytes().begin()))
      << "wrote before d: " << c;
  EXPECT_TRUE(std::equal(before.end() - kBorder, before.end(), d.bytes().end() - kBorder))
      << "wrote behind d: " << c;
  return d;
}

}  // namespace mixed_gemm::test
