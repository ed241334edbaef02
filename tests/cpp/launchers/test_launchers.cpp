// The tables of launchers against the rules that say what is compiled, in a build with kernels.
// Nothing is launched. There is a launcher exactly where why_not accepts.
#include <gtest/gtest.h>

#include <set>

#include "conv/launchers.h"
#include "core/build.h"
#include "grid/launcher_table.h"
#include "grouped_multistage/launchers.h"
#include "grouped_skinny/launchers.h"
#include "grouped_wgmma/launchers.h"
#include "multistage/launchers.h"
#include "skinny/launchers.h"
#include "wgmma/launchers.h"

namespace mixed_gemm {
namespace {

constexpr ElementType kHalves[] = {ElementType::kFloat16, ElementType::kBFloat16};

// Compares the launchers with `wanted`, which says for (weight, mode, row) whether there is one;
// returns how many there are.
template <typename Kernels, typename Wanted>
int expect_launchers(const Wanted& wanted) {
  int count = 0;
  for (const ElementType element : kHalves) {
    for (int w = 0; w < kNumWeights; ++w) {
      const auto weight = static_cast<WeightType>(w);
      for (int mode = 0; mode < Kernels::kModes; ++mode) {
        const auto& launchers = launchers_of<Kernels>(element, weight, mode);
        for (int row = 0; row < static_cast<int>(launchers.size()); ++row) {
          EXPECT_EQ(launchers[row] != nullptr, wanted(weight, mode, row))
              << kElementTypeNames[static_cast<int>(element)] << ", " << weight_info(weight).name
              << ", mode " << mode << ", row " << row;
          count += launchers[row] != nullptr;
        }
      }
    }
  }
  return count;
}

TEST(Launchers, OfMultistageAreThoseThatAreCompiled) {
  EXPECT_GT(expect_launchers<MultistageKernels>([](WeightType weight, int mode, int) {
              return is_multistage_compiled(weight, mode);
            }),
            0);
}

TEST(Launchers, OfSkinnyAreThoseThatAreCompiled) {
  EXPECT_GT(expect_launchers<SkinnyKernels>([](WeightType weight, int mode, int row) {
              return is_skinny_compiled(kSkinnyConfigs[row], weight, mode);
            }),
            0);
}

TEST(Launchers, OfWgmmaAreThoseThatAreCompiled) {
  const int count = expect_launchers<WgmmaKernels>([](WeightType weight, int mode, int) {
    return this_build().wgmma && is_wgmma_compiled(weight, mode);
  });
  EXPECT_EQ(count > 0, this_build().wgmma);
}

TEST(Launchers, OfExpertsAreThoseThatAreCompiled) {
  EXPECT_GT(expect_launchers<GroupedSkinnyKernels>([](WeightType weight, int mode, int row) {
              return is_grouped_skinny_compiled(row, weight, mode);
            }),
            0);
  EXPECT_GT(expect_launchers<GroupedMultistageKernels>([](WeightType weight, int mode, int) {
              return is_grouped_multistage_compiled(weight, mode);
            }),
            0);
  const int count = expect_launchers<GroupedWgmmaKernels>([](WeightType weight, int mode, int) {
    return this_build().wgmma && is_grouped_wgmma_compiled(weight, mode);
  });
  EXPECT_EQ(count > 0, this_build().wgmma);
}

TEST(Launchers, OfConvolutionsAreThoseThatAreCompiled) {
  EXPECT_GT(expect_launchers<ConvKernels>(
                [](WeightType weight, int mode, int) { return is_conv_compiled(weight, mode); }),
            0);
}

// The table is that of the instantiation file of its element and weight, and of its mode.
template <typename Kernels, ElementType kElement, WeightType kWeight>
void expect_own() {
  for (int mode = 0; mode < Kernels::kModes; ++mode) {
    EXPECT_EQ(&launchers_of<Kernels>(kElement, kWeight, mode),
              (&Kernels::template launchers<kElement, kWeight>(mode)))
        << mode;
  }
}
template <typename Kernels>
void expect_own_of_all() {
  expect_own<Kernels, ElementType::kFloat16, WeightType::kInt4>();
  expect_own<Kernels, ElementType::kFloat16, WeightType::kInt8>();
  expect_own<Kernels, ElementType::kBFloat16, WeightType::kInt4>();
  expect_own<Kernels, ElementType::kBFloat16, WeightType::kInt8>();
}
TEST(Launchers, AreFoundByElementWeightAndMode) {
  expect_own_of_all<MultistageKernels>();
  expect_own_of_all<SkinnyKernels>();
  expect_own_of_all<ConvKernels>();
}

// All launchers of skinny tables and of convolutions differ: each has a kernel of its own.
template <typename Kernels>
void expect_different() {
  std::set<const void*> seen;
  int count = 0;
  for (const ElementType element : kHalves) {
    for (const WeightType weight : {WeightType::kInt4, WeightType::kInt8}) {
      for (int mode = 0; mode < Kernels::kModes; ++mode) {
        for (const auto launcher : launchers_of<Kernels>(element, weight, mode)) {
          if (launcher == nullptr) continue;
          seen.insert(reinterpret_cast<const void*>(launcher));
          ++count;
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), count);
}
TEST(Launchers, OfDifferentModesAndRowsDiffer) {
  expect_different<SkinnyKernels>();
  expect_different<ConvKernels>();
}

// A problem of each mode: a multistage launcher takes the scales of its own mode alone, and refuses
// before it launches where zero points or groups do not fit.
GemmProblem problem_of(const ScaleMode& mode) {
  static const int kNothing = 0;
  GemmProblem p;
  p.m = 1, p.n = 64, p.k = 256;
  const int64_t group = is_scaled(mode) ? mode.row_k : p.k;
  p.scheme =
      integer_scheme(WeightType::kInt4, group, mode.zeros ? ZeroMode::kSub : ZeroMode::kNone);
  p.scales = &kNothing;
  p.zeros = mode.zeros ? &kNothing : nullptr;
  return p;
}

TEST(Launchers, OfMultistageRefuseScalesOfFinerModes) {
  constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue
  for (int of = 0; of < kNumMultistageModes; ++of) {
    const GemmProblem p = problem_of(kMultistageModes[of]);
    ASSERT_EQ(multistage_mode(p.scheme, p.k), of);
    for (int mode = 0; mode < kNumMultistageModes; ++mode) {
      const ScaleMode &has = kMultistageModes[mode], &needs = kMultistageModes[of];
      const bool fits = has.zeros == needs.zeros &&
                        (!is_scaled(needs) || (is_scaled(has) && has.row_k <= needs.row_k));
      if (fits) continue;  // it would launch
      const auto& launchers =
          launchers_of<MultistageKernels>(ElementType::kFloat16, WeightType::kInt4, mode);
      EXPECT_EQ(launchers[0](p, Work()), kInvalidValue) << "mode " << mode << ", scales of " << of;
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
