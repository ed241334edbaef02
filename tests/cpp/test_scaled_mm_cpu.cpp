// scaled_mm on every instruction set of this machine: int8 sums bit for bit against int64, the
// epilogue and fp8 within their bounds against float64.
#include <cstring>
#include <numeric>
#include <thread>

#include "core/float8.h"
#include "cpu/scaled_mm/paths.h"
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "cpu_bound.h"
#include "cpu_case.h"
#include "guarded_bytes.h"
#include "tested_kernels.h"

namespace mixed_gemm::test {
namespace {

enum class Azp { kNone, kFolded, kPerRow };

struct ScaledCase {
  int64_t m = 1, n = 1, k = 1;
  int64_t padding = 0;  // elements between rows of a and columns of b
  OperandType operand = OperandType::kInt8;
  ElementType out = ElementType::kFloat32;
  bool row_scales = false, column_scales = false, bias = false;
  Azp azp = Azp::kNone;
  int largest_azp = 128;
  bool unit_scales = false;          // 1, so that d is the sum itself
  int64_t block_n = 0, block_k = 0;  // 0: row_scales and column_scales

  int64_t blocks() const { return block_k == 0 ? 0 : (k + block_k - 1) / block_k; }
  int64_t scales_of_a() const { return block_k > 0 ? m * blocks() : row_scales ? m : 1; }
  int64_t scales_of_b() const {
    return block_k > 0 ? (n + block_n - 1) / block_n * blocks() : column_scales ? n : 1;
  }
};

std::ostream& operator<<(std::ostream& out, const ScaledCase& c) {
  return out << "m" << c.m << " n" << c.n << " k" << c.k << " padding" << c.padding << " "
             << kOperandTypeNames[static_cast<int>(c.operand)] << " to "
             << kElementTypeNames[static_cast<int>(c.out)] << " scales " << c.row_scales
             << c.column_scales << " blocks " << c.block_n << "x" << c.block_k
             << (c.bias ? " bias" : "") << " azp" << static_cast<int>(c.azp);
}

// Random operands at the ends of their pages.
class ScaledOperands {
 public:
  ScaledOperands(const ScaledCase& c, unsigned seed)
      : shape(c),
        a_((c.m - 1) * (c.k + c.padding) + c.k),
        b_((c.n - 1) * (c.k + c.padding) + c.k),
        scale_a_(c.scales_of_a() * 4),
        scale_b_(c.scales_of_b() * 4),
        azp_adj_(c.n * 4),
        azp_(c.m * 4),
        bias_(c.n * bytes_of(c.out)),
        d_(c.m * c.n * bytes_of(c.out)) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> byte(0, 255), azp(-c.largest_azp, c.largest_azp);
    std::uniform_real_distribution<float> around_one(0.5f, 1.5f);
    const bool fp8 = c.operand == OperandType::kFloat8E4M3;
    const auto fill = [&](const GuardedBytes& bytes, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        int value = byte(random);
        if (fp8 && (value & 0x7f) == 0x7f) value ^= 1;  // no NaN
        bytes.as<uint8_t>()[i] = static_cast<uint8_t>(value);
      }
    };
    fill(a_, (c.m - 1) * (c.k + c.padding) + c.k);
    fill(b_, (c.n - 1) * (c.k + c.padding) + c.k);
    const auto scale = [&] { return c.unit_scales ? 1.f : around_one(random) / 512; };
    for (int64_t i = 0; i < c.scales_of_a(); ++i) scale_a_.as<float>()[i] = scale();
    for (int64_t j = 0; j < c.scales_of_b(); ++j) scale_b_.as<float>()[j] = -scale();
    for (int64_t i = 0; i < c.m; ++i) azp_.as<int32_t>()[i] = azp(random);
    for (int64_t j = 0; j < c.n; ++j) {
      int32_t sum = 0;
      for (int64_t k = 0; k < c.k; ++k) sum += static_cast<int8_t>(b_.as<uint8_t>()[j * ldb() + k]);
      azp_adj_.as<int32_t>()[j] = c.azp == Azp::kFolded ? sum * azp(random) : sum;
      store(c.out, around_one(random) * 40, bias_.as<uint8_t>() + j * bytes_of(c.out));
    }
  }

  int64_t ldb() const { return shape.k + shape.padding; }

  ScaledMmProblem problem() const {
    ScaledMmProblem p;
    p.m = shape.m, p.n = shape.n, p.k = shape.k;
    p.operand = shape.operand, p.out = shape.out;
    p.a = a_.as<void>(), p.lda = ldb();
    p.b = b_.as<void>(), p.ldb = ldb();
    p.scale_a = scale_a_.as<float>(), p.scale_a_stride = shape.row_scales;
    p.scale_b = scale_b_.as<float>(), p.scale_b_stride = shape.column_scales;
    if (shape.block_k > 0) {
      p.block_n = shape.block_n, p.block_k = shape.block_k;
      p.scale_a_stride = p.scale_b_stride = shape.blocks();
    }
    if (shape.azp != Azp::kNone) p.azp_adj = azp_adj_.as<int32_t>();
    if (shape.azp == Azp::kPerRow) p.azp = azp_.as<int32_t>();
    if (shape.bias) p.bias = bias_.as<void>();
    p.d = d_.as<void>();
    return p;
  }

  double d(int64_t i, int64_t j) const {
    return fetch(shape.out, d_.as<uint8_t>() + (i * shape.n + j) * bytes_of(shape.out));
  }
  double bias(int64_t j) const {
    return shape.bias ? fetch(shape.out, bias_.as<uint8_t>() + j * bytes_of(shape.out)) : 0;
  }

  // The exact sum (integers stay below 2^53) and the sum of its absolute terms.
  struct Sum {
    double value, absolute;
  };
  Sum sum(int64_t i, int64_t j) const {
    Sum result = {0, 0};
    for (int64_t k = 0; k < shape.k; ++k) {
      const double term =
          number(a_.as<uint8_t>()[i * ldb() + k]) * number(b_.as<uint8_t>()[j * ldb() + k]);
      result.value += term;
      result.absolute += std::fabs(term);
    }
    const ScaledMmProblem p = problem();
    if (p.azp_adj) result.value -= (p.azp ? p.azp[i] : 1.0) * p.azp_adj[j];
    return result;
  }

  // The same sum with scales.
  Sum scaled_sum(int64_t i, int64_t j) const {
    const ScaledMmProblem p = problem();
    if (p.block_k == 0) {
      const double scale =
          double{p.scale_a[i * p.scale_a_stride]} * p.scale_b[j * p.scale_b_stride];
      const Sum whole = sum(i, j);
      return {whole.value * scale, whole.absolute * std::fabs(scale)};
    }
    Sum result = {0, 0};
    for (int64_t k = 0; k < shape.k; ++k) {
      const int64_t g = k / p.block_k;
      const double scale = double{p.scale_a[i * p.scale_a_stride + g]} *
                           p.scale_b[j / p.block_n * p.scale_b_stride + g];
      const double term =
          scale * number(a_.as<uint8_t>()[i * ldb() + k]) * number(b_.as<uint8_t>()[j * ldb() + k]);
      result.value += term;
      result.absolute += std::fabs(term);
    }
    return result;
  }

  const ScaledCase shape;

 private:
  double number(uint8_t bits) const {
    return shape.operand == OperandType::kInt8 ? static_cast<int8_t>(bits) : decode_e4m3(bits);
  }

  GuardedBytes a_, b_, scale_a_, scale_b_, azp_adj_, azp_, bias_, d_;
};

class ScaledMmCpu : public ::testing::TestWithParam<const cpu::CpuKernels*> {
 protected:
  void run(const ScaledOperands& operands, const ParallelFor& parallel_for) const {
    const bool int8 = operands.shape.operand == OperandType::kInt8;
    (int8 ? cpu::scaled_mm_int8 : cpu::scaled_mm_float8)(*GetParam(), operands.problem(),
                                                         parallel_for);
  }

  // The bound of docs/numerics.md for W8A8: the integer sum is exact and rounds to fp32 once, each
  // scale and the bias round once more (e = 2^-24), the result once (u). fp8 sums K exact products
  // by fma, a walk of the size lambda e sqrt(K) around at most sum |a b|.
  void expect_within_bound(const ScaledCase& c, unsigned seed) {
    const ScaledOperands operands(c, seed);
    run(operands, serial_for);
    const Unit unit = kUnits[static_cast<int>(c.out)];
    constexpr double kE = 0x1p-24, kLambda = 6;
    double worst = 0;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const auto sum = operands.scaled_sum(i, j);
        const double y = sum.value + operands.bias(j);
        double error = 3 * kE * std::fabs(sum.value) + kE * std::fabs(y);
        if (c.operand == OperandType::kFloat8E4M3) {
          error += kLambda * kE * std::sqrt(static_cast<double>(c.k)) * sum.absolute;
        }
        if (c.block_k > 0) error += 3 * kE * sum.absolute;  // the scales of each block
        const double bound = 1.001 * error + unit.u * (std::fabs(y) + error) + unit.tiny;
        const double ratio = std::fabs(operands.d(i, j) - y) / bound;
        worst = ratio <= worst ? worst : ratio;  // NaN wins
      }
    }
    EXPECT_LE(worst, 1) << c;
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, ScaledMmCpu, ::testing::ValuesIn(tested_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(ScaledMmCpu, int8_sums_are_exact_at_every_boundary) {
  // Shapes around the rows and columns of a call, the block of columns, the chunk of rows, the
  // steps and the slab of K.
  struct Shape {
    int64_t m, n, k;
  };
  std::vector<Shape> shapes;
  for (int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 15, 63, 64, 65, 130}) shapes.push_back({m, 11, 70});
  for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 47, 48, 49, 97}) shapes.push_back({5, n, 70});
  for (int64_t k : {1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 2047, 2048, 2049}) {
    shapes.push_back({13, 10, k});
  }
  // Tile registers have 16 rows and columns, 64 of K, and slabs of 512 where rows share them.
  for (int64_t m : {16, 17, 31, 33}) shapes.push_back({m, 50, 130});
  for (int64_t n : {15, 16, 17, 31, 32, 33}) shapes.push_back({20, n, 64});
  for (int64_t k : {511, 512, 513, 575, 576, 577, 1025}) shapes.push_back({40, 33, k});
  unsigned seed = 0;
  for (const Shape& s : shapes) {
    ScaledCase c;
    c.m = s.m, c.n = s.n, c.k = s.k;
    c.unit_scales = true;
    c.padding = seed % 3;
    const ScaledOperands operands(c, seed++);
    run(operands, serial_for);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const auto expected = -static_cast<float>(operands.sum(i, j).value);
        ASSERT_EQ(operands.d(i, j), expected) << c << " at " << i << ", " << j;
      }
    }
  }
}

TEST_P(ScaledMmCpu, int8_does_not_wrap_at_the_largest_k) {
  for (const auto& [a, b] : {std::pair{-128, -128}, {-128, 127}, {127, 127}}) {
    const std::vector<int8_t> as(kMaxInt8K, static_cast<int8_t>(a)),
        bs(kMaxInt8K, static_cast<int8_t>(b));
    for (int64_t rows : {1, 4}) {  // by dot products and, where there are tiles, by those
      const float one = 1;
      float d[4];
      ScaledMmProblem p;
      p.m = rows, p.n = 1, p.k = kMaxInt8K, p.lda = 0;
      p.out = ElementType::kFloat32;
      p.a = as.data(), p.b = bs.data(), p.scale_a = p.scale_b = &one, p.d = d;
      cpu::scaled_mm_int8(*GetParam(), p, serial_for);
      EXPECT_EQ(d[rows - 1], static_cast<float>(int64_t{a} * b * kMaxInt8K));
    }
  }
}

TEST_P(ScaledMmCpu, epilogues_are_within_the_bound) {
  unsigned seed = 0;
  for (ElementType out : {ElementType::kFloat16, ElementType::kBFloat16, ElementType::kFloat32}) {
    for (Azp azp : {Azp::kNone, Azp::kFolded, Azp::kPerRow}) {
      for (int options = 0; options < 8; ++options) {
        ScaledCase c;
        c.m = 9, c.n = 67, c.k = 130, c.out = out, c.azp = azp;
        c.row_scales = options & 1, c.column_scales = options & 2, c.bias = options & 4;
        expect_within_bound(c, seed++);
      }
    }
  }
}

TEST_P(ScaledMmCpu, zero_points_that_need_64_bits_are_exact) {
  ScaledCase c;
  c.m = 6, c.n = 20, c.k = 40, c.azp = Azp::kPerRow, c.column_scales = true;
  c.largest_azp = 1 << 30;
  expect_within_bound(c, 7);
}

// Float rows with a NaN and an infinity among them, rounded on the way: with one thread, with
// three, and by the two calls.
TEST_P(ScaledMmCpu, rows_that_are_rounded_on_the_way_equal_two_calls) {
  const auto three_workers = [](int64_t begin, int64_t end, int64_t, const LoopBody& body) {
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t from = begin + (end - begin) * i / 3, to = begin + (end - begin) * (i + 1) / 3;
      if (from < to) body(from, to);
    }
  };
  struct Shape {
    int64_t m, n, k;
  };
  unsigned seed = 0;
  for (const Shape& s : {Shape{1, 1, 1},
                         {2, 50, 63},
                         {5, 49, 64},
                         {17, 97, 130},
                         {40, 7, 0},
                         {70, 50, 1000},
                         {130, 3, 577}}) {
    for (const ElementType element :
         {ElementType::kFloat16, ElementType::kBFloat16, ElementType::kFloat32}) {
      ScaledCase c;
      c.m = s.m, c.n = s.n, c.k = s.k, c.out = element, c.padding = seed % 3;
      c.column_scales = seed & 1, c.bias = seed & 2;
      c.azp = seed % 4 < 2 ? Azp::kNone : Azp::kPerRow;
      const ScaledOperands operands(c, seed);
      const int64_t stride = s.k + seed % 5;
      const GuardedBytes a(((s.m - 1) * stride + s.k) * bytes_of(element));
      std::mt19937 random(seed++);
      std::normal_distribution<float> normal(1, 3);
      for (int64_t i = 0; i < (s.m - 1) * stride + s.k; ++i) {
        store(element, normal(random), a.as<uint8_t>() + i * bytes_of(element));
      }
      if (s.m > 3 && s.k > 0) {
        store(element, NAN, a.as<uint8_t>() + (stride + s.k / 2) * bytes_of(element));
        store(element, INFINITY, a.as<uint8_t>() + 3 * stride * bytes_of(element));
      }

      ScaledMmDynamicProblem one;
      one.product = operands.problem();
      std::vector<int8_t> q(static_cast<size_t>(s.m * s.k));
      std::vector<float> scale(static_cast<size_t>(s.m));
      std::vector<int32_t> azp(static_cast<size_t>(s.m));
      one.rows.m = s.m, one.rows.k = s.k, one.rows.element = element;
      one.rows.a = a.as<void>(), one.rows.a_stride = stride;
      QuantizePerTokenProblem rows = one.rows;
      rows.q = q.data(), rows.scale = scale.data();
      if (!one.symmetric()) rows.azp = azp.data();
      cpu::quantize_per_token(*GetParam(), rows, serial_for);
      ScaledMmProblem product = one.product;
      product.a = q.data(), product.lda = s.k;
      product.scale_a = scale.data(), product.scale_a_stride = 1, product.azp = rows.azp;
      std::vector<uint8_t> expected(static_cast<size_t>(s.m * s.n * bytes_of(element)));
      product.d = expected.data();
      cpu::scaled_mm_int8(*GetParam(), product, serial_for);

      one.product.a = nullptr, one.product.scale_a = nullptr, one.product.azp = nullptr;
      for (const ParallelFor& parallel_for :
           {ParallelFor(serial_for), ParallelFor(three_workers)}) {
        std::memset(one.product.d, 0x5a, expected.size());
        cpu::scaled_mm_int8_dynamic(*GetParam(), one, parallel_for);
        EXPECT_EQ(std::memcmp(one.product.d, expected.data(), expected.size()), 0) << c;
      }
    }
  }
}

TEST_P(ScaledMmCpu, float8_is_within_the_bound) {
  unsigned seed = 0;
  for (int64_t m : {1, 3, 8, 9, 129}) {
    for (int64_t n : {1, 31, 33}) {
      for (int64_t k : {1, 17, 383, 385, 800}) {
        ScaledCase c;
        c.m = m, c.n = n, c.k = k, c.operand = OperandType::kFloat8E4M3;
        c.out = static_cast<ElementType>(seed % 3);
        c.row_scales = seed & 1, c.column_scales = seed & 2, c.bias = seed & 4;
        c.padding = seed % 5;
        expect_within_bound(c, seed++);
      }
    }
  }
}

TEST_P(ScaledMmCpu, float8_blocks_are_within_the_bound) {
  unsigned seed = 0;
  for (int64_t m : {1, 2, 5, 17, 70, 257}) {
    for (int64_t n : {1, 31, 130}) {
      for (const auto& [block_n, block_k] : {std::pair{128, 128}, {16, 48}, {1, 1}, {7, 500}}) {
        ScaledCase c;
        c.m = m, c.n = n, c.k = 131 + 100 * (seed % 3), c.operand = OperandType::kFloat8E4M3;
        c.out = static_cast<ElementType>(seed % 3);
        c.block_n = block_n, c.block_k = block_k;
        c.bias = seed & 4, c.padding = seed % 5;
        expect_within_bound(c, seed++);
      }
    }
  }
}

TEST_P(ScaledMmCpu, every_product_of_two_float8_codes_is_exact) {
  for (const int64_t m : {1, 2, 16, 256}) {
    std::vector<uint8_t> codes(256);
    std::iota(codes.begin(), codes.end(), uint8_t{0});
    const float one = 1;
    std::vector<float> d(static_cast<size_t>(m * 256));
    ScaledMmProblem p;
    p.m = m, p.n = 256, p.k = 1, p.operand = OperandType::kFloat8E4M3;
    p.out = ElementType::kFloat32, p.lda = p.ldb = 1;
    p.b = codes.data(), p.scale_a = p.scale_b = &one, p.d = d.data();
    for (int64_t first = 0; first < 256; first += m) {
      p.a = codes.data() + first;
      cpu::scaled_mm_float8(*GetParam(), p, serial_for);
      for (int64_t i = 0; i < m * 256; ++i) {
        const float expected = decode_e4m3(codes[static_cast<size_t>(first + i / 256)]) *
                               decode_e4m3(codes[static_cast<size_t>(i % 256)]);
        const float found = d[static_cast<size_t>(i)];
        ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
            << found << " instead of " << expected << " for " << first + i / 256 << ", " << i % 256;
      }
    }
  }
}

TEST_P(ScaledMmCpu, k_of_zero_gives_the_bias) {
  for (OperandType operand : {OperandType::kInt8, OperandType::kFloat8E4M3}) {
    ScaledCase c;
    c.m = 3, c.n = 5, c.k = 0, c.bias = true, c.operand = operand;
    const ScaledOperands operands(c, 1);
    run(operands, serial_for);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) EXPECT_EQ(operands.d(i, j), operands.bias(j));
    }
  }
}

TEST_P(ScaledMmCpu, threads_give_the_same_bits) {
  const ParallelFor two_threads = [](int64_t begin, int64_t end, int64_t, const LoopBody& body) {
    const int64_t middle = begin + (end - begin) / 2;
    std::thread other([&] { serial_for(middle, end, 1, body); });
    serial_for(begin, middle, 1, body);
    other.join();
  };
  for (OperandType operand : {OperandType::kInt8, OperandType::kFloat8E4M3}) {
    ScaledCase c;
    c.m = 70, c.n = 100, c.k = 129, c.operand = operand, c.row_scales = true;
    const ScaledOperands one(c, 1), two(c, 1);
    run(one, serial_for);
    run(two, two_threads);
    EXPECT_EQ(std::memcmp(one.problem().d, two.problem().d, static_cast<size_t>(c.m * c.n * 4)), 0);
  }
}

}  // namespace
}  // namespace mixed_gemm::test
