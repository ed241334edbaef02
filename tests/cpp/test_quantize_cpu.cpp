// The quantizers on every instruction set of this machine: the formula of problem/quantize.h
// in double, bit for bit.
#include "core/float8.h"
#include "cpu/instruction_set.h"
#include "cpu/scaled_mm/paths.h"
#include "cpu_case.h"
#include "guarded_bytes.h"
#include "problem/quantize.h"

namespace mixed_gemm::test {
namespace {

struct Expected {
  float scale = 0;
  int32_t azp = 0;
  std::vector<int> q;
};

// Computes fp32 where the formula says fp32; rounds and clamps exact numbers in double.
void round_all(const std::vector<float>& row, Expected& e) {
  const float inverse = 1.f / e.scale;
  for (const float x : row) {
    const float product = x * inverse;
    const double number = std::isnan(product) ? 0 : static_cast<double>(product);
    const double rounded = std::nearbyint(std::min(std::max(number, -1e9), 1e9));
    e.q.push_back(static_cast<int>(std::min(std::max(rounded + e.azp, -128.0), 127.0)));
  }
}

Expected expected_per_token(const std::vector<float>& row, bool symmetric) {
  Expected e;
  double low = row[0], high = row[0];
  bool nan = false, infinite = false;
  for (const float x : row) {
    nan |= std::isnan(x);
    infinite |= std::isinf(x);
    low = std::min(low, double{x});
    high = std::max(high, double{x});
  }
  const double largest = std::max(-low, high);
  if (symmetric) {
    e.scale = std::max(static_cast<float>(largest) / 127.f, kMinScale);
  } else {
    const auto range = static_cast<float>((high - low) / 2);  // one rounding, as of the halves
    e.scale = std::max({range / 127.5f, static_cast<float>(std::ldexp(largest, -21)), kMinScale});
  }
  if (infinite) e.scale = INFINITY;
  if (nan) e.scale = NAN;
  if (!std::isfinite(e.scale)) {
    e.q.assign(row.size(), 0);
    return e;
  }
  if (!symmetric) {
    const float steps = static_cast<float>(low) * (1.f / e.scale);
    e.azp = -128 - static_cast<int32_t>(std::nearbyint(steps));
  }
  round_all(row, e);
  return e;
}

constexpr ElementType kElements[] = {ElementType::kFloat16, ElementType::kBFloat16,
                                     ElementType::kFloat32};

class QuantizeCpu : public ::testing::TestWithParam<const cpu::CpuKernels*> {
 protected:
  struct Problem {
    Problem(const std::vector<std::vector<float>>& values, ElementType element)
        : m(static_cast<int64_t>(values.size())),
          k(static_cast<int64_t>(values[0].size())),
          a(m * k * bytes_of(element)),
          q(m * k),
          scale(m * 4),
          azp(m * 4) {
      for (int64_t i = 0; i < m; ++i) {
        std::vector<float> row;
        for (int64_t j = 0; j < k; ++j) {
          uint8_t* to = a.as<uint8_t>() + (i * k + j) * bytes_of(element);
          store(element, values[static_cast<size_t>(i)][static_cast<size_t>(j)], to);
          row.push_back(static_cast<float>(fetch(element, to)));
        }
        rows.push_back(row);
      }
    }
    template <typename Kind>
    Kind describe(ElementType element) const {
      Kind p;
      p.m = m, p.k = k, p.element = element;
      p.a = a.as<void>(), p.a_stride = k;
      p.q = q.as<int8_t>();
      return p;
    }
    void expect(int64_t i, const Expected& e) const {
      for (int64_t j = 0; j < k; ++j) {
        ASSERT_EQ(int{q.as<int8_t>()[i * k + j]}, e.q[static_cast<size_t>(j)])
            << "row " << i << ", " << rows[static_cast<size_t>(i)][static_cast<size_t>(j)]
            << ", scale " << e.scale << ", azp " << e.azp;
      }
    }

    int64_t m, k;
    GuardedBytes a, q, scale, azp;
    std::vector<std::vector<float>> rows;  // as the element type holds them
  };
};

INSTANTIATE_TEST_SUITE_P(Kernels, QuantizeCpu, ::testing::ValuesIn(cpu::supported_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

// Rows of every kind: normal, one-sided, constant, zero, tiny, huge, infinite, NaN, far from 0.
std::vector<std::vector<float>> rows_of(int64_t k, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> rows(17, std::vector<float>(static_cast<size_t>(k)));
  for (auto& row : rows) {
    for (float& x : row) x = normal(random);
  }
  for (float& x : rows[1]) x = std::fabs(x) + 3;
  for (float& x : rows[2]) x = -std::fabs(x);
  for (float& x : rows[3]) x = 5;
  for (float& x : rows[4]) x = 0;
  for (float& x : rows[5]) x *= 1e-41f;
  for (float& x : rows[6]) x = std::copysign(3.3e38f, x);
  rows[7][static_cast<size_t>(k / 2)] = INFINITY;
  rows[8][static_cast<size_t>(k - 1)] = -INFINITY;
  rows[9][static_cast<size_t>(k / 3)] = NAN;
  for (size_t j = 0; j < rows[10].size(); ++j) {  // ties
    rows[10][j] = j == 0 ? 127.f : static_cast<float>(j % 40) - 20.5f;
  }
  for (float& x : rows[11]) x = x * 1e-3f + 1e4f;  // fp32 holds some dozen numbers there
  for (float& x : rows[12]) x = x * 1e-2f - 700;
  for (float& x : rows[13]) x = x > 0 ? -5.f : std::nextafter(-5.f, 0.f);
  for (float& x : rows[14]) x = INFINITY;
  for (float& x : rows[15]) x = -INFINITY;
  for (float& x : rows[16]) x = std::ldexp(std::fabs(x) + 9, -128);  // around the least scale
  return rows;
}

TEST_P(QuantizeCpu, per_token_follows_the_formula_bit_for_bit) {
  for (const ElementType element : kElements) {
    for (const int64_t k : {1, 7, 8, 15, 16, 17, 33, 100}) {
      for (const bool symmetric : {true, false}) {
        const Problem problem(rows_of(k, static_cast<unsigned>(k)), element);
        auto p = problem.describe<QuantizePerTokenProblem>(element);
        p.scale = problem.scale.as<float>();
        if (!symmetric) p.azp = problem.azp.as<int32_t>();
        cpu::quantize_per_token(*GetParam(), p, serial_for);
        for (int64_t i = 0; i < problem.m; ++i) {
          const Expected e = expected_per_token(problem.rows[static_cast<size_t>(i)], symmetric);
          const float scale = p.scale[i];
          EXPECT_TRUE(scale == e.scale || (std::isnan(scale) && std::isnan(e.scale)))
              << scale << " instead of " << e.scale << " in row " << i;
          EXPECT_EQ(symmetric ? 0 : p.azp[i], e.azp) << "row " << i;
          problem.expect(i, e);
        }
      }
    }
  }
}

TEST_P(QuantizeCpu, per_tensor_follows_the_formula_bit_for_bit) {
  for (const ElementType element : kElements) {
    for (const float scale : {0.01f, 0.5f, 1.f, 1e-30f, 1e30f}) {
      for (const int32_t azp : {0, -128, 127, 3, 1 << 20, -(1 << 20)}) {
        Expected e;
        e.scale = scale, e.azp = azp;
        const Problem problem(rows_of(35, 1), element);
        auto p = problem.describe<QuantizePerTensorProblem>(element);
        p.scale = &e.scale;
        p.azp = &e.azp;
        cpu::quantize_per_tensor(*GetParam(), p, serial_for);
        for (int64_t i = 0; i < problem.m; ++i) {
          e.q.clear();
          round_all(problem.rows[static_cast<size_t>(i)], e);
          problem.expect(i, e);
        }
      }
    }
  }
}

// The nearest code of a number of magnitude 448 at most, found among all of them; ties to even.
uint8_t nearest_code(float x) {
  uint8_t best = 0;
  double least = INFINITY;
  for (int code = 0; code < 0x7f; ++code) {
    const double distance =
        std::fabs(double{std::fabs(x)} - decode_e4m3(static_cast<uint8_t>(code)));
    if (distance < least || (distance == least && code % 2 == 0)) {
      least = distance, best = static_cast<uint8_t>(code);
    }
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

TEST_P(QuantizeCpu, float8_follows_the_formula_bit_for_bit) {
  for (const ElementType element : kElements) {
    for (const int64_t k : {1, 7, 8, 16, 17, 33, 100}) {
      for (const int64_t block : {0, 1, 7, 16, 64}) {
        const Problem problem(rows_of(k, static_cast<unsigned>(k)), element);
        QuantizeFloat8Problem p;
        p.m = problem.m, p.k = k, p.element = element, p.block_k = block;
        p.a = problem.a.as<void>(), p.a_stride = k, p.q = problem.q.as<uint8_t>();
        const GuardedBytes scale(problem.m * p.blocks() * 4);
        p.scale = scale.as<float>();
        cpu::quantize_float8(*GetParam(), p, serial_for);
        const int64_t size = block == 0 ? k : block;
        for (int64_t i = 0; i < problem.m; ++i) {
          const auto& row = problem.rows[static_cast<size_t>(i)];
          for (int64_t g = 0; g < p.blocks(); ++g) {
            float largest = 0;
            const int64_t end = std::min(k, (g + 1) * size);
            for (int64_t j = g * size; j < end; ++j) {
              const float x = std::fabs(row[static_cast<size_t>(j)]);
              if (std::isnan(x) || std::isnan(largest)) largest = NAN;
              largest = x > largest ? x : largest;
            }
            const float expected =
                std::isnan(largest) ? NAN : std::max(largest / kMaxFloat8, kMinScale);
            const float found = p.scale[i * p.blocks() + g];
            ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)));
            for (int64_t j = g * size; j < end; ++j) {
              const float y = row[static_cast<size_t>(j)] / expected;
              const uint8_t q = p.q[i * k + j];
              if (std::isnan(y)) {
                ASSERT_EQ(q & 0x7f, 0x7f);
              } else {
                ASSERT_EQ(int{q}, int{nearest_code(std::clamp(y, -448.f, 448.f))})
                    << y << " in row " << i;
                ASSERT_EQ(q, encode_e4m3(y));
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(QuantizeCpu, a_row_is_rounded_to_within_half_a_step) {
  const Problem problem(rows_of(100, 5), ElementType::kFloat32);
  for (const bool symmetric : {true, false}) {
    auto p = problem.describe<QuantizePerTokenProblem>(ElementType::kFloat32);
    p.scale = problem.scale.as<float>();
    if (!symmetric) p.azp = problem.azp.as<int32_t>();
    cpu::quantize_per_token(*GetParam(), p, serial_for);
    for (const int64_t i : {0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 16}) {
      const int azp = symmetric ? 0 : p.azp[i];
      double largest = 0;
      for (const float x : problem.rows[static_cast<size_t>(i)]) {
        largest = std::max(largest, std::fabs(double{x}));
      }
      // The bound of problem/quantize.h.
      const double steps = 0.5 + std::ldexp(largest / p.scale[i], -23) + std::ldexp(1, -14);
      EXPECT_LE(steps, 0.7501);
      for (int64_t j = 0; j < problem.k; ++j) {
        const double back = double{p.scale[i]} * (p.q[i * problem.k + j] - azp);
        const double x = problem.rows[static_cast<size_t>(i)][static_cast<size_t>(j)];
        EXPECT_LE(std::fabs(back - x), steps * p.scale[i]) << "row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace mixed_gemm::test
