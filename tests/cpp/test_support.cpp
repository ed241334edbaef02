// Problems that are accepted, on GPUs that are not here: the statements of problem/ and of the
// families for A100, A10, L40S and H200.

#include <gtest/gtest.h>

#include "dispatch/select.h"
#include "mainloop/multistage_stage.h"
#include "multistage/config.h"
#include "problem/extents.h"
#include "problem/integer_bits.h"
#include "skinny/config.h"

namespace mixed_gemm {
namespace {

const DeviceInfo kA100 = with_default_rates({80, 108, 166912, 0, 0});
const DeviceInfo kA10 = with_default_rates({86, 72, 101376, 0, 0});
const DeviceInfo kL40s = with_default_rates({89, 142, 101376, 0, 0});
const DeviceInfo kH200 = with_default_rates({90, 132, 232448, 0, 0});

GemmProblem problem(int64_t m, int64_t n, int64_t k, WeightType weight, int64_t group,
                    ZeroMode zeros) {
  GemmProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.scheme = integer_scheme(weight, group == -1 ? k : group, zeros);
  return p;
}

TEST(WhyNot, AcceptsEveryMultipleOf16UpToK) {
  for (int64_t group = 16; group <= 512; group += 16)
    EXPECT_TRUE(why_not_problem(1, 1, 512, group).empty()) << group;
  EXPECT_TRUE(why_not_problem(0, 1, 1, -1).empty());
}

TEST(WhyNot, WidthsOfIntegersAreThoseOfTheList) {
  for (int64_t bits = -1; bits < 18; ++bits) {
    EXPECT_EQ(why_not_bits(bits).empty(), bits == 4 || bits == 8) << bits;
    EXPECT_EQ(nearest_bits(bits), bits > 6 ? 8 : 4) << bits;
  }
}

TEST(WhyNot, OnlyIntegersHaveZeroPointsAndOnlyFloatsHaveScalesOfAnotherType) {
  constexpr WeightInfo kInteger = weight_info(WeightType::kInt4),
                       kFloat = weight_info(WeightType::kE2M1);
  const ScaleForm plain = {ScaleType::kActivations, 32, ZeroMode::kNone};
  const ScaleForm zeros = {ScaleType::kActivations, 32, ZeroMode::kSub};
  const ScaleForm bytes = {ScaleType::kE8M0, 32, ZeroMode::kNone};
  EXPECT_EQ(why_not_scheme(kInteger, plain), nullptr);
  EXPECT_EQ(why_not_scheme(kInteger, zeros), nullptr);
  EXPECT_STREQ(why_not_scheme(kInteger, bytes), "integers have scales of the activations' type");
  EXPECT_EQ(why_not_scheme(kFloat, plain), nullptr);
  EXPECT_STREQ(why_not_scheme(kFloat, zeros), "only integers have zero points");
  EXPECT_EQ(why_not_scheme(kFloat, bytes), nullptr);
}

TEST(WhyNot, NamesArgumentExpectedAndGot) {
  const auto text = [](const std::vector<std::string>& reasons) {
    return reasons.empty() ? "" : reasons.front();
  };
  EXPECT_EQ(why_not_bits(3), "bits must be 4 or 8, got 3");
  EXPECT_EQ(
      text(why_not_problem(1, 1, 64, 24)),
      "group_size must be -1 (per channel) or a positive multiple of 16, got group_size=24, K=64");
  EXPECT_EQ(
      text(why_not_problem(1, 1, 64, 128)),
      "group_size must not be larger than K, got group_size=128, K=64; use -1 for per channel");
  for (const int64_t group : {int64_t{0}, int64_t{-2}, int64_t{7}, int64_t{1} << 31}) {
    EXPECT_FALSE(why_not_problem(1, 1, 4096, group).empty()) << group;
  }
  EXPECT_FALSE(why_not_problem(int64_t{1} << 31, 1, 64, -1).empty());
}

TEST(WhyNot, NearestGroupSizeIsAccepted) {
  for (int64_t k : {1, 15, 16, 40, 64, 4096}) {
    for (int64_t group = -3; group < 300; ++group) {
      EXPECT_TRUE(why_not_problem(1, 1, k, nearest_group_size(k, group)).empty())
          << k << " " << group;
    }
  }
}

TEST(WhyNot, OldGpusAreRefusedWithTheReason) {
  EXPECT_NE(why_not_device({75, 40, 65536, 0, 0}).find("has 7.5"), std::string::npos);
  for (const DeviceInfo& device : {kA100, kA10, kL40s, kH200})
    EXPECT_EQ(why_not_device(device), "");
}

TEST(WhyNot, GpusWithoutMachineCodeAreRefusedWithTheWayOut) {
  const auto reason = [](const char* archs, int sm) {
    return why_not_device({sm, 100, 101376, 0, 0}, Build{true, true, archs});
  };
  for (int sm : {80, 86, 87, 89, 90, 120, 121}) EXPECT_EQ(reason("80,90,120", sm), "") << sm;
  EXPECT_EQ(reason("80,90,120", 100),
            "this build has machine code for compute capability 8.0, 9.0, 12.0, and this GPU has "
            "10.0, which runs none of it; build with TORCH_CUDA_ARCH_LIST=10.0, or move the "
            "tensors to the CPU");
  EXPECT_NE(reason("80,90,120", 110).find("TORCH_CUDA_ARCH_LIST=11.0"), std::string::npos);
  EXPECT_NE(reason("86", 80), "");
  EXPECT_NE(reason("120a", 121), "");  // a letter: that GPU alone
  EXPECT_EQ(reason("90a,120a", 120), "");
  EXPECT_EQ(reason("120f", 121), "");
  EXPECT_EQ(reason("", 110), "");  // without CUDA it plans for every GPU
}

TEST(WhyNot, SharedMemoryOf99KbRefusesTheLargestTilesOnly) {
  Choice c = *parse_config<GemmProblem>("multistage_m16n128s6");
  c.row = kNumTileConfigs - 1;
  const auto heavy = problem(512, 4096, 4096, WeightType::kInt8, 16, ZeroMode::kSub);
  EXPECT_EQ(why_not(c, heavy, kA10), "needs 110720 bytes of shared memory, the device has 101376");
  EXPECT_EQ(why_not(c, heavy, kH200), "");
  for (c.row = 0; c.row < 5; ++c.row) EXPECT_EQ(why_not(c, heavy, kA10), "") << c.row;
}

TEST(WhyNot, SplitBeyondThePartsOfKIsRefused) {
  Choice c = *parse_config<GemmProblem>("multistage_m16n128s6");
  c.split = SplitK::kParallel;
  c.slices = 5;
  EXPECT_EQ(why_not(c, problem(1, 64, 256, WeightType::kInt4, 64, ZeroMode::kNone), kH200),
            "split_k must not be larger than the number of parts of K, ceil(K / 64) = 4, got 5");
}

TEST(ConfigName, RoundTrips) {
  for (const Choice& c :
       ranked(problem(64, 4096, 4096, WeightType::kInt4, 128, ZeroMode::kNone), kH200)) {
    const auto parsed = parse_config<GemmProblem>(config_name<GemmProblem>(c));
    ASSERT_TRUE(parsed) << config_name<GemmProblem>(c);
    EXPECT_EQ(config_name<GemmProblem>(*parsed), config_name<GemmProblem>(c));
  }
  for (const char* name : {"", "fastest", "multistage_m16n128s6_", "multistage_m16n128s6_streamk",
                           "multistage_m16n128s6_parallel1", "multistage_m16n128s6_streamk2x",
                           "multistage_m17n128s4"}) {
    EXPECT_FALSE(parse_config<GemmProblem>(name)) << name;
  }
}

TEST(ScaleMode, FollowsTheGroup) {
  const auto mode = [](int64_t k, int64_t group, ZeroMode zeros) {
    return scale_mode(integer_scheme(WeightType::kInt4, group, zeros), k);
  };
  const auto rows = [](int k, bool zeros) { return ScaleMode{k, zeros}; };
  EXPECT_TRUE(mode(4096, 4096, ZeroMode::kNone) == kNoScaleRows);
  EXPECT_TRUE(mode(4096, 4096, ZeroMode::kAdd) == rows(64, true));
  EXPECT_TRUE(mode(4096, 128, ZeroMode::kNone) == rows(64, false));
  EXPECT_TRUE(mode(4096, 96, ZeroMode::kNone) == rows(32, false));
  EXPECT_TRUE(mode(100, 32, ZeroMode::kSub) == rows(32, true));
  EXPECT_TRUE(mode(4096, 48, ZeroMode::kNone) == rows(16, false));
  EXPECT_TRUE(mode(100, 16, ZeroMode::kSub) == rows(16, true));
}

TEST(CostModel, EveryGpuHasALegalChoiceForEveryShape) {
  for (const DeviceInfo& device : {kA100, kA10, kL40s, kH200}) {
    for (const int64_t m : {1, 16, 100, 5000}) {
      for (const int64_t n : {1, 64, 4096, 57344}) {
        for (const int64_t k : {16, 4096, 28672}) {
          for (const WeightType weight : {WeightType::kInt4, WeightType::kInt8}) {
            for (const int64_t group : {int64_t{-1}, int64_t{16}}) {
              const auto p = problem(m, n, k, weight, group, ZeroMode::kSub);
              const auto all = ranked(p, device);
              ASSERT_FALSE(all.empty());
              EXPECT_EQ(why_not(all.front(), p, device), "");
              EXPECT_GT(all.front().predicted_us, 0);
            }
          }
        }
      }
    }
  }
}

TEST(CostModel, LargerProblemsAreNotPredictedFaster) {
  Choice c = *parse_config<GemmProblem>("multistage_m16n128s6");
  for (c.row = 0; c.row < kNumTileConfigs; ++c.row) {
    double before = 0;
    for (int64_t m = 1; m <= 8192; m *= 2) {
      const double us =
          predict_us(c, problem(m, 8192, 8192, WeightType::kInt4, 128, ZeroMode::kNone), kH200);
      EXPECT_GE(us, before);
      before = us;
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
