// Names of configurations, and configurations that a device refuses.

#include <gtest/gtest.h>

#include "dispatch/select.h"
#include "mainloop/multistage_stage.h"
#include "multistage/config.h"
#include "skinny/config.h"
#include "wgmma/config.h"

namespace mixed_gemm {
namespace {

constexpr const char* kNames[] = {"multistage_m64n128s4",
                                  "multistage_m64n128s4_streamk2",
                                  "multistage_m16n256s6_parallel12",
                                  "multistage_m16n256s6_cluster8",
                                  "wgmma_m128n256s5",
                                  "wgmma_m32n128k128s6_parallel3",
                                  "wgmma_m32n256k128s4_streamk1",
                                  "skinny_m8n16w16",
                                  "skinny_m8n32w8_cluster2",
                                  "skinny_m16n64w8_cluster4",
                                  "dequantize_dense"};

constexpr const char* kNoNames[] = {"",
                                    "skinny",
                                    "skinny_m8n32w8_",
                                    "skinny_m8n32w8_cluster",
                                    "skinny_m8n32w8_cluster1",
                                    "skinny_m8n32w8_cluster2x",
                                    "skinny_m8n32w88",
                                    "skinny_m9n32w8",
                                    "multistage_m64n128s4_cluster9",
                                    "multistage_m64n128s4_streamk0",
                                    "multistage_m64n128s4streamk2",
                                    "dequantize_dense_cluster2"};

TEST(Candidate, NamesAreReadBack) {
  for (const char* name : kNames) {
    const auto candidate = parse_config<GemmProblem>(name);
    ASSERT_TRUE(candidate) << name;
    EXPECT_EQ(config_name<GemmProblem>(*candidate), name);
  }
}

TEST(Candidate, OtherTextsAreNoNames) {
  for (const char* name : kNoNames) EXPECT_FALSE(parse_config<GemmProblem>(name)) << name;
}

GemmProblem problem() {
  GemmProblem p;
  p.m = 8;
  p.n = p.k = 4096;
  p.element = ElementType::kFloat16;
  p.scheme = integer_scheme(WeightType::kInt4, 128, ZeroMode::kNone);
  return p;
}

DeviceInfo device(int sm) {
  DeviceInfo info;
  info.sm = sm;
  info.sm_count = 132;
  info.smem_bytes = 232448;
  return with_default_rates(info);
}

std::string why_not(const char* name, int sm) {
  return why_not(*parse_config<GemmProblem>(name), problem(), device(sm));
}

TEST(Candidate, SkinnyClustersNeedHopperAndWideBlocks) {
  EXPECT_EQ(why_not("skinny_m8n32w8_cluster2", 90), "");
  EXPECT_EQ(why_not("skinny_m16n64w8_cluster4", 90), "");
  EXPECT_EQ(why_not("skinny_m8n32w8", 80), "");
  EXPECT_NE(why_not("skinny_m8n32w8_cluster2", 80).find("this device has 8.0"), std::string::npos);
  EXPECT_NE(why_not("skinny_m8n16w8_cluster2", 90).find("16 columns"), std::string::npos);
  EXPECT_NE(why_not("skinny_m8n32w8_cluster8", 90).find("at most 4"), std::string::npos);
  EXPECT_NE(why_not("skinny_m8n32w8_parallel2", 90).find("clusters only"), std::string::npos);
  EXPECT_NE(why_not("skinny_m8n32w8_streamk1", 90).find("clusters only"), std::string::npos);
}

// The place of a mode in the list of the skinny family.
int skinny_place(int blocks, Meets meets, bool zeros) {
  for (int mode = 0; mode < kNumSkinnyModes; ++mode) {
    if (skinny_modes(blocks, meets, zeros) == 1u << mode) return mode;
  }
  return -1;
}

TEST(Candidate, SkinnyModeFollowsWeightsGroupsAndRows) {
  const SkinnyConfig narrow = kSkinnyConfigs[2], wide = kSkinnyConfigs[3],
                     sixteen = kSkinnyConfigs[4];
  const auto mode = [](const SkinnyConfig& t, int bits, int64_t group_size, int64_t m,
                       ZeroMode zero_mode = ZeroMode::kNone) {
    return skinny_mode(t, integer_scheme(*integer_weight(bits), group_size, zero_mode), m, 4096);
  };
  EXPECT_EQ(mode(narrow, 4, 4096, 1), skinny_place(0, Meets::kOutputs, false));
  EXPECT_EQ(mode(narrow, 4, 128, 1), skinny_place(4, Meets::kSums, false));
  EXPECT_EQ(mode(narrow, 4, 64, 1), skinny_place(2, Meets::kSums, false));
  EXPECT_EQ(mode(wide, 4, 64, 2), skinny_place(2, Meets::kSums, false));
  EXPECT_EQ(mode(wide, 4, 32, 2), skinny_place(1, Meets::kSums, false));
  EXPECT_EQ(mode(wide, 4, 32, 3), skinny_place(1, Meets::kWeights, false));
  EXPECT_EQ(mode(sixteen, 4, 64, 2), skinny_place(1, Meets::kWeights, false));
  EXPECT_EQ(mode(narrow, 4, 32, 2, ZeroMode::kSub), skinny_place(1, Meets::kSums, true));
  EXPECT_EQ(mode(narrow, 4, 32, 2, ZeroMode::kAdd), skinny_place(1, Meets::kWeights, true));
  EXPECT_EQ(mode(sixteen, 4, 32, 2), skinny_place(1, Meets::kWeights, false));
  EXPECT_EQ(mode(narrow, 4, 48, 1), skinny_place(kMmaOfBlock, Meets::kWeights, false));
  EXPECT_EQ(mode(narrow, 8, 32, 1), skinny_place(2, Meets::kSums, false));
  EXPECT_EQ(mode(wide, 8, 32, 1), skinny_place(2, Meets::kSums, false));
  EXPECT_EQ(mode(narrow, 8, 48, 9, ZeroMode::kSub), skinny_place(1, Meets::kWeights, true));
}

// Floats are scaled as weights whatever their groups are, and have no zero points.
TEST(Candidate, FloatsAreScaledAsWeights) {
  constexpr QuantScheme kNone[] = {{WeightType::kE2M1, {ScaleType::kActivations, 4096}},
                                   {WeightType::kE4M3, {ScaleType::kActivations, 4096}}};
  for (QuantScheme scheme : kNone) {
    const bool narrow = bits_of(scheme.weight) == 4;
    for (const int64_t group : {16, 32, 48, 64, 128, 4096}) {
      scheme.scales.group = group;
      const bool fine = group % 32 != 0;
      for (const SkinnyConfig& row : kSkinnyConfigs) {
        for (const int64_t m : {1, 2, 9}) {
          EXPECT_EQ(skinny_mode(row, scheme, m, 4096),
                    skinny_place(narrow && fine ? kMmaOfBlock : 1, Meets::kWeights, false));
        }
      }
      EXPECT_EQ(scale_mode(scheme, 4096), (ScaleMode{fine ? kMmaK : kTileK / 2, false}));
      EXPECT_TRUE(is_multistage_compiled(scheme.weight, multistage_mode(scheme, 4096)));
      EXPECT_EQ(kWgmmaModes[wgmma_mode(scheme, 4096)].row_k, fine ? kMmaK : kAnyRow);
      EXPECT_TRUE(is_wgmma_compiled(scheme.weight, wgmma_mode(scheme, 4096)));
    }
  }
}

// Codes that are looked up have groups of whole blocks alone.
TEST(Candidate, BooksTakeGroupsOfThirtyTwo) {
  for (const WeightType weight : {WeightType::kNF4, WeightType::kFP4}) {
    for (const int64_t group : {16, 32, 48, 64, 4096}) {
      const QuantScheme scheme = {weight, {ScaleType::kActivations, group}};
      const bool taken = group % 32 == 0;
      EXPECT_EQ(is_multistage_compiled(weight, multistage_mode(scheme, 4096)), taken) << group;
      EXPECT_EQ(is_wgmma_compiled(weight, wgmma_mode(scheme, 4096)), taken) << group;
      EXPECT_EQ(skinny_mode(kSkinnyConfigs[0], scheme, 1, 4096) >= 0, taken) << group;
    }
  }
}

// Every wgmma tile takes floats in any groups: those of 16 have kernels with a row for each step.
TEST(Candidate, EveryWgmmaTileTakesFloatsInGroupsOfSixteen) {
  for (const char* name : {"wgmma_m16n256k128s4", "wgmma_m32n128k128s6", "wgmma_m256n128s4"}) {
    for (const int64_t group : {16, 32, 4096}) {
      GemmProblem p = problem();
      p.scheme = {WeightType::kE2M1, {ScaleType::kActivations, group}};
      EXPECT_EQ(why_not(*parse_config<GemmProblem>(name), p, device(90)), "") << name << group;
    }
  }
}

// Where cp.async copies scales, rows that it cannot read are copied first.
TEST(Candidate, SkinnyScalesAreStagedInWideBlocksAndWithZeroPoints) {
  const SkinnyConfig narrow = kSkinnyConfigs[0], wide = kSkinnyConfigs[3],
                     sixteen = kSkinnyConfigs[4];
  EXPECT_FALSE(stages_scales(narrow, skinny_place(4, Meets::kSums, false)));
  EXPECT_FALSE(stages_scales(wide, skinny_place(0, Meets::kOutputs, false)));
  for (const int mode :
       {skinny_place(4, Meets::kSums, false), skinny_place(2, Meets::kSums, false),
        skinny_place(1, Meets::kSums, false), skinny_place(1, Meets::kWeights, false)}) {
    EXPECT_TRUE(stages_scales(wide, mode));
  }
  for (const SkinnyConfig& row : {narrow, wide, sixteen}) {
    EXPECT_TRUE(stages_scales(row, skinny_place(4, Meets::kSums, true)));
    EXPECT_FALSE(stages_scales(row, skinny_place(kMmaOfBlock, Meets::kWeights, true)));
  }
}

// With sixteen tokens zero points of whole k-tiles go around the stages, the others through them.
TEST(Candidate, ZeroPointsOfScaledSumsAreNotStaged) {
  const TileConfig sixteen = kTileConfigs[1], more = kTileConfigs[3],
                   slices = Tile(16, 64).warp(16, 64).stages(3).blocks(2).k_warps(8);
  constexpr ScaleMode kWhole = {kTileK, false}, kWholeZero = {kTileK, true},
                      kHalf = {kTileK / 2, false}, kHalfZero = {kTileK / 2, true};
  const int row = 256 * 2;
  const auto bytes = [](const TileConfig& t, const ScaleMode& mode) {
    return stage_bytes(t, WeightType::kInt4, mode);
  };
  EXPECT_TRUE(scales_sums(sixteen, kWhole));
  EXPECT_FALSE(scales_sums(sixteen, kNoScaleRows));
  EXPECT_FALSE(scales_sums(sixteen, kHalfZero));
  EXPECT_FALSE(scales_sums(more, kWhole));
  EXPECT_FALSE(scales_sums(slices, kWholeZero));
  EXPECT_EQ(bytes(sixteen, kWholeZero), bytes(sixteen, kWhole));
  EXPECT_EQ(bytes(sixteen, kHalfZero), bytes(sixteen, kHalf) + 2 * row);
  EXPECT_EQ(bytes(more, kWholeZero), bytes(more, kWhole) + row);
}

TEST(Candidate, ThirtyTwoTokensByWgmmaNeedGroupsOfHalfAKTile) {
  const auto with_groups = [](int64_t group_size, const char* name) {
    GemmProblem p = problem();
    p.scheme.scales.group = group_size;
    return why_not(*parse_config<GemmProblem>(name), p, device(90));
  };
  for (const int64_t group_size : {32, 64, 96, 4096}) {
    EXPECT_EQ(with_groups(group_size, "wgmma_m32n128k128s6"), "") << group_size;
  }
  for (const int64_t group_size : {16, 48, 80}) {
    EXPECT_NE(with_groups(group_size, "wgmma_m32n128k128s6").find("multiple of 32"),
              std::string::npos);
    EXPECT_EQ(with_groups(group_size, "wgmma_m64n128k128s4"), "") << group_size;
  }
}

TEST(Candidate, EveryWgmmaTileFitsAnSm) {
  for (const TileConfig& tile : kWgmmaTileConfigs) {
    for (int w = 0; w < kNumWeights; ++w) {
      const auto weight = static_cast<WeightType>(w);
      for (int mode = 0; mode < kNumWgmmaModes; ++mode) {
        if (!is_wgmma_compiled(weight, mode)) continue;
        EXPECT_LE(wgmma_smem_bytes(tile, weight, kWgmmaModes[mode]), device(90).smem_bytes)
            << tile.m << " x " << tile.n << ", " << weight_info(weight).name << ", mode " << mode;
      }
    }
  }
}

TEST(Candidate, SlicesAreOfWholeStages) {
  const auto with_k = [](int64_t k, const char* name) {
    GemmProblem p = problem();
    p.k = k;
    return why_not(*parse_config<GemmProblem>(name), p, device(90));
  };
  EXPECT_EQ(with_k(513, "wgmma_m32n256k128s4_parallel5"), "");
  EXPECT_NE(with_k(512, "wgmma_m32n256k128s4_parallel5").find("ceil(K / 128) = 4, got 5"),
            std::string::npos);
  EXPECT_EQ(with_k(320, "wgmma_m128n128s6_parallel5"), "");
  EXPECT_NE(with_k(256, "wgmma_m128n128s6_parallel5").find("ceil(K / 64) = 4, got 5"),
            std::string::npos);
}

TEST(Candidate, EveryRankedOneIsLegalAndNamed) {
  for (const int sm : {80, 90}) {
    int clusters = 0;
    for (const Choice& c : ranked(problem(), device(sm))) {
      EXPECT_EQ(why_not(c, problem(), device(sm)), "");
      const auto parsed = parse_config<GemmProblem>(config_name<GemmProblem>(c));
      ASSERT_TRUE(parsed) << config_name<GemmProblem>(c);
      EXPECT_EQ(config_name<GemmProblem>(*parsed), config_name<GemmProblem>(c));
      clusters +=
          std::string(family_of<GemmProblem>(c).name) == "skinny" && c.split == SplitK::kCluster;
    }
    EXPECT_EQ(clusters > 0, sm == 90);
  }
}

}  // namespace
}  // namespace mixed_gemm
