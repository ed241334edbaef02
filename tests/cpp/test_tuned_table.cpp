// Lines of the tuned table: both formats, and the words in which others are refused.
#include "dispatch/tuned_table.h"

#include <gtest/gtest.h>

#include <string>

#include "dispatch/select.h"

namespace mixed_gemm {
namespace {

const DeviceInfo kTunedGpu = with_default_rates({90, 132, 232448, 0, 0});
constexpr const char* kTunedConfig = "multistage_m32n128s4_parallel12";

class TunedTable : public testing::Test {
 protected:
  void TearDown() override { set_tuned_table(""); }

  static GemmProblem problem(WeightType weight, int64_t group, ZeroMode zeros) {
    GemmProblem p;
    p.m = 64, p.n = 5120, p.k = 2560;
    p.scheme = integer_scheme(weight, group, zeros);
    return p;
  }
  static std::string refusal(const std::string& line) {
    const auto refused = set_tuned_table(line);
    return refused.empty() ? "" : refused.front();
  }
};

TEST_F(TunedTable, FindsWhatBothFormatsSay) {
  const std::string rest = std::string(" 0 5120 2560 64 ") + kTunedConfig + " 12.5";
  for (const std::string& line :
       {"90 132 float16 4 128" + rest, "gemm 90 132 float16 int4 same 128" + rest}) {
    ASSERT_EQ(refusal(line), "");
    const auto point = find_tuned(problem(WeightType::kInt4, 128, ZeroMode::kNone), kTunedGpu);
    ASSERT_TRUE(point) << line;
    EXPECT_EQ(config_name<GemmProblem>(point->choice), kTunedConfig);
    EXPECT_EQ(point->us, 12.5);
    EXPECT_FALSE(find_tuned(problem(WeightType::kInt8, 128, ZeroMode::kNone), kTunedGpu)) << line;
    EXPECT_FALSE(find_tuned(problem(WeightType::kInt4, 64, ZeroMode::kNone), kTunedGpu)) << line;
    EXPECT_FALSE(find_tuned(problem(WeightType::kInt4, 128, ZeroMode::kSub), kTunedGpu)) << line;
  }
}

TEST_F(TunedTable, FindsOtherWeightsAndZeroPoints) {
  const std::string line =
      std::string("gemm 90 132 float16 int8 same -1 1 5120 2560 64 ") + kTunedConfig;
  ASSERT_EQ(refusal(line + " 12.5"), "");
  EXPECT_TRUE(find_tuned(problem(WeightType::kInt8, 2560, ZeroMode::kAdd), kTunedGpu));
  EXPECT_FALSE(find_tuned(problem(WeightType::kInt4, 2560, ZeroMode::kAdd), kTunedGpu));
}

TEST_F(TunedTable, RefusesInWords) {
  const std::string end = std::string(" 128 0 5120 2560 64 ") + kTunedConfig + " 12.5";
  EXPECT_EQ(refusal("gemm 90 132 float16 int4 same 128"),
            "line 1 is not: op sm sms dtype weight scales group_size zeros n k m config us");
  EXPECT_EQ(refusal("90 132 float16 4 128"),
            "line 1 is not: sm sms dtype bits group_size zeros n k m config us");
  EXPECT_EQ(refusal("gems 90 132 float16 int4 same" + end), "line 1 has the unknown op gems");
  EXPECT_EQ(refusal("gemm 90 132 float17 int4 same" + end), "line 1 has the unknown dtype float17");
  EXPECT_EQ(refusal("gemm 90 132 float16 int5 same" + end), "line 1 has the unknown weight int5");
  EXPECT_EQ(refusal("gemm 90 132 float16 int4 some" + end), "line 1 has the unknown scales some");
  EXPECT_EQ(refusal("gemm 90 132 float16 int4 e8m0" + end),
            "line 1 is of no scheme: integers have scales of the activations' type");
  EXPECT_EQ(refusal("90 132 float16 5" + end), "line 1 has a number out of range");
  EXPECT_EQ(refusal("gemm 70 132 float16 int4 same" + end), "line 1 has a number out of range");
}

}  // namespace
}  // namespace mixed_gemm
