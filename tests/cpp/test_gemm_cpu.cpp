// The CPU kernels on every path (each instruction set of this machine, fused and dense) against
// float64. It is one file of more than 400 lines because all of it runs for each path of one
// parameterized suite.
#include "cpu/call_shape.h"
#include "cpu/gemm/gemm_cpu.h"
#include "cpu_bound.h"
#include "cpu_case.h"
#include "scattered_for.h"
#include "tested_kernels.h"

namespace mixed_gemm::test {
namespace {

std::vector<Path> all_paths() {
  std::vector<Path> paths;
  for (const auto* kernels : tested_kernels()) {
    paths.push_back({kernels, cpu::GemmPath::kFused});
    paths.push_back({kernels, cpu::GemmPath::kDense});
    if (kernels->tiles) paths.push_back({kernels, cpu::GemmPath::kTiles});
  }
  return paths;
}

class GemmCpu : public ::testing::TestWithParam<Path> {
 protected:
  // Runs the case and holds it to the bound, keeping the worst ratio of the whole path.
  void expect_within_bound(const Case& c, unsigned seed) {
    const Operands operands(c, seed);
    const double ratio = worst_ratio(operands, run(GetParam(), operands, serial_for));
    EXPECT_LE(ratio, 1) << c;
    double& worst = worst_[static_cast<int>(c.element)];
    worst = ratio <= worst ? worst : ratio;
  }
  // 16-bit outputs come close to 1 by nature: half a unit in the last place is most of their bound.
  void TearDown() override {
    if (*std::max_element(std::begin(worst_), std::end(worst_)) == 0) return;
    std::cout << GetParam() << ": worst error / bound: float16 " << worst_[0] << ", bfloat16 "
              << worst_[1] << ", float32 " << worst_[2] << "\n";
  }

 private:
  double worst_[3] = {};
};

INSTANTIATE_TEST_SUITE_P(Paths, GemmCpu, ::testing::ValuesIn(all_paths()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

constexpr ZeroMode kZeroModes[] = {ZeroMode::kNone, ZeroMode::kSub, ZeroMode::kAdd};
constexpr WeightType kIntegers[] = {WeightType::kInt4, WeightType::kInt8};
constexpr WeightType kFloats[] = {WeightType::kE2M1, WeightType::kE4M3, WeightType::kNF4,
                                  WeightType::kFP4};
constexpr ElementType kElements[] = {ElementType::kFloat16, ElementType::kBFloat16,
                                     ElementType::kFloat32};

template <typename Body>
void for_each_scheme(const Body& body) {
  for (WeightType weight : kIntegers) {
    for (ZeroMode zero_mode : kZeroModes) {
      for (ElementType element : kElements) body(weight, zero_mode, element);
    }
  }
  for (WeightType weight : kFloats) {
    for (ElementType element : kElements) body(weight, ZeroMode::kNone, element);
  }
}

// Whether the numbers of the weight are kept as they are, in sums and beside scales.
bool is_exact(WeightType weight, ElementType element) {
  return cpu::fits_bf16(weight) || element != ElementType::kBFloat16;
}

TEST_P(GemmCpu, ragged_shapes_with_random_options_are_within_the_bound) {
  std::mt19937 random(1);
  const auto pick = [&](int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(random);
  };
  constexpr int64_t kSizes[] = {1, 2, 3, 15, 17, 63, 65, 127, 129};
  unsigned seed = 0;
  for (int64_t m : kSizes) {
    for (int64_t n : kSizes) {
      for (int64_t k : kSizes) {
        Case c;
        c.m = m, c.n = n, c.k = k;
        c.weight = pick(2) ? WeightType::kInt4 : WeightType::kInt8;
        const int64_t groups[] = {16, 32, 48, 64, 128, k, k + 63};
        c.group = groups[pick(7)];
        if (c.group > k) c.group = std::max(c.group, k);
        c.zero_mode = kZeroModes[pick(3)];
        c.element = kElements[pick(3)];
        c.activation = static_cast<Activation>(pick(6));
        c.bias = pick(2), c.pre_scale = pick(2);
        if (pick(3) == 0)
          c.weight = kFloats[pick(4)], c.zero_mode = ZeroMode::kNone, c.factor = true,
          c.few_bits = pick(2);
        c.padding = pick(2) * 5, c.misalign = pick(2);
        expect_within_bound(c, ++seed);
      }
    }
  }
}

TEST_P(GemmCpu, every_scheme_and_group_is_within_the_bound) {
  for_each_scheme([&](WeightType weight, ZeroMode zero_mode, ElementType element) {
    for (int64_t group : {16, 32, 48, 64, 96, 128, 256, 600, 700}) {
      Case c;
      c.m = 5, c.n = 50, c.k = 600;  // every group but 600 and 700 is ragged at the end
      c.weight = weight, c.group = group, c.factor = !weight_info(weight).is_integer,
      c.zero_mode = zero_mode, c.element = element;
      c.bias = c.pre_scale = true;
      expect_within_bound(c, static_cast<unsigned>(group));
      if (weight_info(weight).is_integer) continue;  // integers never meet their scales first
      c.few_bits = true, c.m = 33;
      expect_within_bound(c, static_cast<unsigned>(group));
    }
  });
}

TEST_P(GemmCpu, long_sums_are_within_the_bound) {
  for_each_scheme([&](WeightType weight, ZeroMode zero_mode, ElementType element) {
    for (int64_t m : {1, 4, 21}) {
      Case c;
      c.m = m, c.n = 40, c.k = 4100, c.weight = weight, c.group = m == 4 ? 4100 : 128;
      c.factor = !weight_info(weight).is_integer, c.zero_mode = zero_mode, c.element = element;
      expect_within_bound(c, static_cast<unsigned>(m));
      if (weight_info(weight).is_integer || m > 1) continue;
      c.few_bits = true, c.group = 32, c.m = 33;
      expect_within_bound(c, static_cast<unsigned>(m));
    }
  });
}

// Scales that make pairs of bf16 in every column but one: no column's result may tell which others
// its task has.
TEST_P(GemmCpu, a_scale_of_many_bits_counts_for_all_columns) {
  for (ElementType element : {ElementType::kBFloat16, ElementType::kFloat32}) {
    Case c;
    c.m = 40, c.n = 700, c.k = 320, c.weight = WeightType::kE2M1, c.group = 32, c.few_bits = true;
    c.element = element;
    Operands operands(c, 11);
    for (bool exact : {true, false}) {
      if (!exact) operands.scales.set(3, 650, 1.7109375);  // 8 significant bits
      const Matrix d = run(GetParam(), operands, serial_for);
      EXPECT_LE(worst_ratio(operands, d), 1) << c;
      EXPECT_EQ(d.bytes(), run(GetParam(), operands, scattered_for).bytes()) << exact;
    }
  }
}

TEST_P(GemmCpu, every_number_of_rows_up_to_three_blocks_is_within_the_bound) {
  for (int64_t m = 1; m <= 48; ++m) {
    Case c;
    c.m = m, c.n = 33, c.k = 130, c.weight = kIntegers[m % 2], c.group = 32;
    c.zero_mode = kZeroModes[m % 3], c.element = kElements[m / 3 % 3];
    expect_within_bound(c, static_cast<unsigned>(m));
  }
}

TEST_P(GemmCpu, more_rows_than_a_chunk_and_than_a_pass_are_within_the_bound) {
  for (int64_t m : {257, 1030}) {
    Case c;
    c.m = m, c.n = 70, c.k = 70, c.group = 16, c.zero_mode = ZeroMode::kSub;
    expect_within_bound(c, 1);
  }
}

TEST_P(GemmCpu, every_activation_is_within_the_bound) {
  for (int activation = 0; activation < 6; ++activation) {
    Case c;
    c.m = 9, c.n = 65, c.k = 129, c.group = 32, c.activation = static_cast<Activation>(activation);
    c.bias = true;
    expect_within_bound(c, 7);
  }
}

TEST_P(GemmCpu, integer_lattice_is_exact) {
  for_each_scheme([&](WeightType weight, ZeroMode zero_mode, ElementType element) {
    // Numbers of a code book are no integers.
    if (!cpu::fits_bf16(weight)) return;
    Case c;
    c.m = 11, c.n = 66, c.k = 300, c.weight = weight, c.group = 48;
    c.factor = !weight_info(weight).is_integer, c.zero_mode = zero_mode, c.element = element;
    c.bias = c.pre_scale = c.integers = true;
    const Operands operands(c, 3);
    const Matrix d = run(GetParam(), operands, serial_for);
    Matrix expected(element, 1, 1, 0, 0);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        double y = operands.bias.get(0, j);
        for (int64_t l = 0; l < c.k; ++l) {
          y += operands.a.get(i, l) * operands.pre_scale.get(0, l) * operands.weight(j, l).value;
        }
        expected.set(0, 0, y);
        ASSERT_EQ(d.get(i, j), expected.get(0, 0)) << c << " at " << i << ", " << j;
      }
    }
  });
}

// One-hot rows read every weight back: the same value as dequantize's, which is the exact (q - z) s
// or q s, rounded once (q s + z rounds in fp32 first, so only the path itself is compared). A
// number of a code book that rounds to bf16 first is within the bound alone.
TEST_P(GemmCpu, one_hot_rows_read_back_the_dequantized_weight) {
  for_each_scheme([&](WeightType weight, ZeroMode zero_mode, ElementType element) {
    Case c;
    c.m = c.k = 100, c.n = 50, c.weight = weight, c.group = 32;
    c.zero_mode = zero_mode, c.element = element;
    Operands operands(c, 5);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t l = 0; l < c.k; ++l) operands.a.set(i, l, i == l);
    }
    const Matrix d = run(GetParam(), operands, serial_for);
    EXPECT_LE(worst_ratio(operands, d), 1) << c;

    Matrix w(element, c.n, c.k, 0, 0), exact(element, 1, 1, 0, 0);
    GemmProblem p = operands.problem();
    p.d = w.data();
    cpu::dequantize_with(*GetParam().kernels, p, element, serial_for);
    for (int64_t i = 0; i < c.k; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        if (is_exact(weight, element)) {
          ASSERT_EQ(d.get(i, j), w.get(j, i)) << c << " at " << i << ", " << j;
        }
        if (zero_mode == ZeroMode::kAdd) continue;
        exact.set(0, 0, operands.weight(j, i).value);
        ASSERT_EQ(w.get(j, i), exact.get(0, 0)) << c << " at " << i << ", " << j;
      }
    }
  });
}

// Groups of 96 and of all of K cross the slabs in which the dense path cuts K.
TEST_P(GemmCpu, one_hot_rows_read_back_weights_of_groups_that_cross_slabs) {
  for_each_scheme([&](WeightType weight, ZeroMode zero_mode, ElementType element) {
    if (!is_exact(weight, element)) return;
    for (int64_t group : {int64_t{32}, int64_t{96}, int64_t{2001}}) {
      Case c;
      c.few_bits = group == 32;
      c.m = 34, c.k = 2001, c.n = 20, c.weight = weight, c.group = group;
      c.zero_mode = zero_mode, c.element = element;
      Operands operands(c, 5);
      const auto hot = [&](int64_t i) { return i * (c.k - 1) / (c.m - 1); };
      for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t l = 0; l < c.k; ++l) operands.a.set(i, l, l == hot(i));
      }
      const Matrix d = run(GetParam(), operands, serial_for);
      Matrix w(element, c.n, c.k, 0, 0);
      GemmProblem p = operands.problem();
      p.d = w.data();
      cpu::dequantize_with(*GetParam().kernels, p, element, serial_for);
      for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t j = 0; j < c.n; ++j) {
          ASSERT_EQ(d.get(i, j), w.get(j, hot(i))) << c << " at " << i << ", " << j;
        }
      }
    }
  });
}

TEST_P(GemmCpu, dequantize_writes_every_element_type_and_nothing_else) {
  for_each_scheme([&](WeightType weight, ZeroMode zero_mode, ElementType element) {
    for (ElementType out : kElements) {
      Case c;
      c.n = 65, c.k = 129, c.weight = weight, c.group = 48,
      c.factor = !weight_info(weight).is_integer, c.zero_mode = zero_mode;
      c.element = element, c.misalign = 1;
      const Operands operands(c, 9);
      Matrix w(out, c.n, c.k, 0, 1);
      const auto before = w.bytes();
      GemmProblem p = operands.problem();
      p.d = w.data();
      cpu::dequantize_with(*GetParam().kernels, p, out, serial_for);
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + kBorder + 1, w.bytes().begin()));
      EXPECT_TRUE(std::equal(before.end() - kBorder, before.end(), w.bytes().end() - kBorder));
      const Unit unit = kUnits[static_cast<int>(out)];
      for (int64_t j = 0; j < c.n; ++j) {
        for (int64_t i = 0; i < c.k; ++i) {
          const auto expected = operands.weight(j, i);
          // One rounding to `out`, after at most two in fp32 of the terms.
          const double bound = unit.u * std::fabs(expected.value) * (1 + 0x1p-20) +
                               0x1p-22 * std::sqrt(expected.squared_terms) + unit.tiny;
          ASSERT_NEAR(w.get(j, i), expected.value, bound) << c << " at " << j << ", " << i;
        }
      }
    }
  });
}

TEST_P(GemmCpu, nan_in_one_row_leaves_the_other_rows_bitwise_unchanged) {
  for (ZeroMode zero_mode : kZeroModes) {
    Case c;
    c.m = 21, c.n = 40, c.k = 200, c.group = 64, c.zero_mode = zero_mode;
    Operands operands(c, 2);
    const Matrix clean = run(GetParam(), operands, serial_for);
    constexpr int64_t kRow = 2;
    for (int64_t l = 0; l < c.k; ++l) operands.a.set(kRow, l, l % 3 ? NAN : INFINITY);
    const Matrix d = run(GetParam(), operands, serial_for);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        if (i == kRow) {
          ASSERT_TRUE(std::isnan(d.get(i, j)));
        } else {
          ASSERT_EQ(d.get(i, j), clean.get(i, j)) << i << ", " << j;
        }
      }
    }
  }
}

// Infinite scales of the last, ragged group: padding must not turn an infinity into a NaN.
TEST_P(GemmCpu, padding_contributes_nothing_even_at_infinite_scale) {
  for (ElementType element : kElements) {
    Case c;
    c.m = 3, c.n = 20, c.k = 70, c.weight = WeightType::kInt8, c.group = 64, c.element = element;
    Operands operands(c, 4);
    for (auto& value : operands.q) value = 1;
    operands.pack();
    for (int64_t j = 0; j < c.n; ++j) operands.scales.set(1, j, INFINITY);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t l = 0; l < c.k; ++l) operands.a.set(i, l, 1);
    }
    const Matrix d = run(GetParam(), operands, serial_for);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) ASSERT_EQ(d.get(i, j), INFINITY);
    }
  }
}

TEST_P(GemmCpu, result_does_not_depend_on_the_threads) {
  for (WeightType weight : kIntegers) {
    Case c;
    c.m = 19, c.n = 200, c.k = 600, c.weight = weight, c.group = 32, c.zero_mode = ZeroMode::kAdd;
    c.bias = c.pre_scale = true;
    const Operands operands(c, 6);
    EXPECT_EQ(run(GetParam(), operands, serial_for).bytes(),
              run(GetParam(), operands, scattered_for).bytes());
  }
}

TEST_P(GemmCpu, k_zero_gives_the_activated_bias) {
  Case c;
  c.m = 2, c.n = 20, c.k = 1, c.group = 16, c.bias = true, c.activation = Activation::kRelu;
  const Operands operands(c, 8);
  Matrix d(c.element, c.m, c.n, 0, 0);
  GemmProblem p = operands.problem();
  p.k = 0, p.d = d.data();
  GetParam()(p, serial_for);
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      EXPECT_EQ(d.get(i, j), std::max(0., operands.bias.get(0, j)));
    }
  }
}

TEST(CpuInstructionSet, selection_goes_down_to_the_limit_and_refuses_unknown_names) {
  const auto supported = cpu::supported_kernels();
  ASSERT_FALSE(supported.empty());
  EXPECT_STREQ(supported.front()->name, "portable");
  EXPECT_EQ(&cpu::select_kernels(""), supported.back());
  for (const auto* kernels : supported) EXPECT_EQ(&cpu::select_kernels(kernels->name), kernels);
  EXPECT_THROW(cpu::select_kernels("sse9"), std::invalid_argument);
}

TEST(CpuOperands, only_bfloat16_as_it_came_goes_through_pairs) {
  GemmProblem p;
  const float pre_scale = 1;
  for (const cpu::CpuKernels* kernels : tested_kernels()) {
    for (ElementType element : kElements) {
      p.element = element;
      p.pre_scale = nullptr;
      const bool pairs = element == ElementType::kBFloat16 && kernels->bf16_pairs;
      EXPECT_EQ(cpu::CallShape::operands_for(p, *kernels).dense.depth, pairs ? 2 : 1)
          << kernels->name;
      p.pre_scale = &pre_scale;
      EXPECT_EQ(cpu::CallShape::operands_for(p, *kernels).dense.depth, 1) << kernels->name;
    }
  }
}

TEST(CpuEntry, path_goes_from_fused_over_dense_to_tiles_with_the_rows) {
  for (const cpu::CpuKernels* kernels : tested_kernels()) {
    for (WeightType weight : kIntegers) {
      GemmProblem p;
      p.scheme.weight = weight;
      cpu::GemmPath last = cpu::GemmPath::kFused;
      for (p.m = 1; p.m < 100; ++p.m) {
        const cpu::GemmPath path = cpu::choose_path(*kernels, p);
        EXPECT_LE(last, path) << kernels->name << ", " << p.m << " rows";
        last = path;
      }
      EXPECT_EQ(last, kernels->tiles ? cpu::GemmPath::kTiles : cpu::GemmPath::kDense);
      p.m = 1;
      EXPECT_EQ(cpu::choose_path(*kernels, p), cpu::GemmPath::kFused);
    }
  }
}

TEST(CpuEntry, gemm_cpu_is_the_chosen_path_of_the_active_kernels) {
  const cpu::CpuKernels& kernels = cpu::active_kernels();
  EXPECT_EQ(cpu_instruction_set(), kernels.name);
  for (ElementType element : kElements) {
    Case c;
    c.n = 70, c.k = 130, c.group = 64, c.element = element;
    GemmProblem p;
    p.element = element;
    p.scheme.weight = c.weight;
    for (int64_t m : {1, 4, 5, 8, 9, 20, 21, 40}) {
      c.m = m;
      const Operands operands(c, 1);
      Matrix d(c.element, c.m, c.n, 0, 0);
      p = operands.problem();
      p.d = d.data();
      gemm_cpu(p, serial_for);
      EXPECT_EQ(d.bytes(),
                run({&kernels, cpu::choose_path(kernels, p)}, operands, serial_for).bytes());
    }
  }
}

}  // namespace
}  // namespace mixed_gemm::test
