// The choice of what runs products of experts: names, the guess of how many row blocks there are,
// and that every choice that is accepted has a mode and rows that its grid can hold.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "dispatch/select.h"
#include "grouped/plan.h"
#include "grouped/row_blocks.h"
#include "grouped_multistage/config.h"
#include "grouped_skinny/config.h"
#include "grouped_wgmma/config.h"

namespace mixed_gemm {
namespace {

const DeviceInfo kGpus[] = {with_default_rates({80, 108, 166912, 0, 0}),
                            with_default_rates({86, 72, 101376, 0, 0}),
                            with_default_rates({90, 132, 232448, 0, 0})};

GroupedGemmProblem problem(WeightType weight, ElementType element, int64_t experts, int64_t m,
                           int64_t k, int64_t group, ZeroMode zeros) {
  GroupedGemmProblem p;
  p.gemm.m = m, p.gemm.n = 136, p.gemm.k = k;
  p.gemm.element = element;
  p.gemm.scheme = {weight, {ScaleType::kActivations, group, zeros}};
  p.gemm.scale_stride = p.gemm.n;
  p.experts = experts;
  return p;
}

TEST(GroupedPlan, OffsetsThatFallOrLeaveTheRowsAreClamped) {
  EXPECT_EQ(end_of_expert(5, 0, 9), 5);
  EXPECT_EQ(end_of_expert(5, 7, 9), 7);
  EXPECT_EQ(end_of_expert(-1, 0, 9), 0);
  EXPECT_EQ(end_of_expert(1 << 30, 3, 9), 9);
}

TEST(GroupedPlan, TheMostRowBlocksAreNeverExceeded) {
  for (const int64_t tile : {8, 16, 128}) {
    for (const std::vector<int64_t>& rows :
         {std::vector<int64_t>{1, 1, 1}, {0, 0, 300}, {9, 17, 129}, {8, 16, 128}, {0, 0, 0}}) {
      int64_t total = 0, blocks = 0;
      for (const int64_t count : rows) {
        total += count;
        blocks += ceil_div(count, tile);
      }
      EXPECT_LE(blocks, most_row_blocks(total, static_cast<int64_t>(rows.size()), tile)) << tile;
    }
  }
}

// The rows of an expert where each row takes one by chance are binomial.
TEST(GroupedPlan, RowBlocksAreGuessedAsChanceMakesThem) {
  for (const int64_t experts : {2, 8, 128}) {
    for (const int64_t rows : {1, 8, 64, 500, 4000}) {
      for (const int64_t tile : {8, 16, 64, 128}) {
        double blocks = 0;
        const double p = 1.0 / static_cast<double>(experts);
        for (int64_t count = 1; count <= rows; ++count) {
          const auto n = static_cast<double>(rows), c = static_cast<double>(count);
          const double log_chance = std::lgamma(n + 1) - std::lgamma(c + 1) -
                                    std::lgamma(n - c + 1) + c * std::log(p) +
                                    (n - c) * std::log1p(-p);
          blocks += static_cast<double>(experts) * std::exp(log_chance) *
                    static_cast<double>(ceil_div(count, tile));
        }
        blocks = std::max(blocks, 1.0);
        EXPECT_NEAR(mean_row_blocks(rows, experts, tile) / blocks, 1, 0.26)
            << rows << " rows, " << experts << " experts, tile " << tile;
      }
    }
  }
  EXPECT_EQ(mean_row_blocks(100, 1, 64), 2);
}

TEST(GroupedPlan, EveryProblemRunsAndEveryNameIsRead) {
  std::set<std::string> families;
  for (const DeviceInfo& gpu : kGpus) {
    for (int w = 0; w < kNumWeights; ++w) {
      const auto weight = static_cast<WeightType>(w);
      for (const ElementType element :
           {ElementType::kFloat16, ElementType::kBFloat16, ElementType::kFloat32}) {
        for (const int64_t k : {0, 64, 96, 1024}) {
          for (const int64_t experts : {0, 1, 64}) {
            for (const int64_t m : {1, 40, 5000}) {
              const auto p = problem(weight, element, experts, m, k,
                                     k > 64 ? 32 : std::max<int64_t>(k, 1), ZeroMode::kNone);
              const std::vector<Choice> all = ranked(p, gpu);
              ASSERT_FALSE(all.empty());
              EXPECT_EQ(config_name<GroupedGemmProblem>(all.back()), "grouped_plain");
              for (const Choice& c : all) {
                const std::string name = config_name<GroupedGemmProblem>(c);
                const auto read = parse_config<GroupedGemmProblem>(name);
                ASSERT_TRUE(read) << name;
                EXPECT_EQ(config_name<GroupedGemmProblem>(*read), name);
                EXPECT_TRUE(c.split == SplitK::kNone || c.split == SplitK::kCluster) << name;
                families.insert(family_of<GroupedGemmProblem>(c).name);
              }
            }
          }
        }
      }
    }
  }
  const std::set<std::string> wanted = {"grouped_multistage", "grouped_plain", "grouped_skinny",
                                        "grouped_wgmma"};
  EXPECT_EQ(families, wanted);
  EXPECT_FALSE(parse_config<GroupedGemmProblem>("skinny_m8n32w8"));
  EXPECT_FALSE(parse_config<GroupedGemmProblem>("grouped_skinny_m8n16w8"));
  EXPECT_FALSE(parse_config<GroupedGemmProblem>("grouped_wgmma_m16n256k128s4_parallel2"));
}

TEST(GroupedPlan, GridsThatCannotHoldAllRowBlocksAreRefused) {
  const auto many =
      problem(WeightType::kInt4, ElementType::kFloat16, 4, 600000, 1024, 32, ZeroMode::kNone);
  const auto narrow = parse_config<GroupedGemmProblem>("grouped_skinny_m8n32w8");
  const std::string reason = why_not(*narrow, many, kGpus[2]);
  EXPECT_EQ(reason, "has up to 75005 blocks of 8 rows, M=600000 of E=4, and a grid holds 65535");
  EXPECT_STREQ(family_of<GroupedGemmProblem>(ranked(many, kGpus[2]).front()).name, "grouped_wgmma");
}

TEST(GroupedPlan, ScalesOfTheNextExpertAreOutOfReach) {
  // A k-tile of wgmma that ends behind K would read them.
  const auto ragged =
      problem(WeightType::kInt4, ElementType::kFloat16, 4, 64, 96, 32, ZeroMode::kNone);
  for (const Choice& c : ranked(ragged, kGpus[2])) {
    EXPECT_NE(std::string(family_of<GroupedGemmProblem>(c).name), "grouped_wgmma");
  }
}

}  // namespace
}  // namespace mixed_gemm
