// One K has one meaning: the K that a kernel is told (a multiple of 8) agrees with the K that it
// was chosen and sized by (the problem's), for every K and every group.

#include <gtest/gtest.h>

#include <vector>

#include "mainloop/multistage_stage.h"
#include "multistage/config.h"
#include "problem/gemm.h"
#include "wgmma/staged_rows.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kMostK = 1100;

GemmProblem problem_of(int64_t k, int64_t group_size, ZeroMode zero_mode,
                       WeightType weight = WeightType::kInt4) {
  static const int kNothing = 0;
  GemmProblem p;
  p.m = 1;
  p.n = 64;
  p.k = k;
  p.scheme = integer_scheme(weight, group_size, zero_mode);
  p.scales = &kNothing;
  p.zeros = zero_mode == ZeroMode::kNone ? nullptr : &kNothing;
  return p;
}

constexpr struct {
  WeightType weight;
  ZeroMode mode;
} kKinds[] = {{WeightType::kInt4, ZeroMode::kNone},
              {WeightType::kInt4, ZeroMode::kSub},
              {WeightType::kInt4, ZeroMode::kAdd},
              {WeightType::kE2M1, ZeroMode::kNone}};

// Checks every K up to kMostK with one group, and with groups that divide it or not.
template <typename Check>
void for_all(const Check& check) {
  for (const auto& [weight, mode] : kKinds) {
    for (int64_t k = 1; k <= kMostK; ++k) {
      std::vector<int64_t> groups = {k};
      for (const int64_t group : {16, 32, 48, 64, 80, 96, 128, 192, 256, 512}) {
        if (group <= k) groups.push_back(group);
      }
      for (const int64_t group : groups) {
        const GemmProblem p = problem_of(k, group, mode, weight);
        SCOPED_TRACE(testing::Message()
                     << weight_info(weight).name << ", K " << k << ", groups of " << group
                     << ", zeros " << kZeroModeNames[static_cast<int>(mode)]);
        check(p, kernel_extents(p));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(KernelExtents, StagesOfWgmmaHoldTheRowsThatTheirKernelCopies) {
  for_all([](const GemmProblem& p, const KernelExtents& e) {
    const StagedRows rows(e.group_size, e.k);
    ASSERT_EQ(rows.of_tile, wgmma_scale_rows(p.scheme.scales.group, p.k));
  });
}

TEST(KernelExtents, EveryPartOfKHasTheGroupOfTheProblem) {
  for_all([](const GemmProblem& p, const KernelExtents& e) {
    ASSERT_EQ(e.groups, num_groups(p));
    const int64_t steps_per_group = ceil_div(e.group_size, kMmaK);
    for (int64_t k = 0; k < p.k; k += kMmaK) {
      ASSERT_EQ(k / kMmaK / steps_per_group, k / p.scheme.scales.group) << k;
    }
  });
}

TEST(KernelExtents, TheChosenKernelsTakeThem) {
  for_all([](const GemmProblem& p, const KernelExtents&) {
    const ScaleMode mode = scale_mode(p.scheme, p.k);
    ASSERT_TRUE(scales_fit(p, mode.zeros, scale_rows(mode) ? kTileK / scale_rows(mode) : 0));
    const int wgmma = wgmma_mode(p.scheme, p.k);
    ASSERT_GE(wgmma, 0);
    ASSERT_EQ(is_scaled(kWgmmaModes[wgmma]), is_scaled(mode));
  });
}

// Kernels of other schemes refuse them.
TEST(KernelExtents, OthersRefuseThem) {
  const GemmProblem coarse = problem_of(256, 64, ZeroMode::kNone);
  EXPECT_TRUE(scales_fit(coarse, false, 64));
  EXPECT_TRUE(scales_fit(coarse, false, 16));
  EXPECT_FALSE(scales_fit(coarse, false, 128));
  EXPECT_FALSE(scales_fit(coarse, false, 0));
  EXPECT_FALSE(scales_fit(coarse, true, 64));
  EXPECT_FALSE(scales_fit(problem_of(256, 64, ZeroMode::kAdd), false, 64));
}

}  // namespace
}  // namespace mixed_gemm
