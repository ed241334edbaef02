// A remembered choice is the choice: problems that differ in any one thing, in turns on one thread,
// get what they would get if nothing were remembered.
#include "dispatch/select.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dispatch/tuned_table.h"
#include "problem/gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {
namespace {

// 99 KB of shared memory and 228, and with wgmma.
const DeviceInfo kGpus[] = {with_default_rates({80, 108, 166912, 0, 0}),
                            with_default_rates({86, 72, 101376, 0, 0}),
                            with_default_rates({90, 132, 232448, 0, 0})};

GemmProblem gemm(int64_t m, int64_t n, int64_t k, int64_t group_size) {
  GemmProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.scheme = integer_scheme(WeightType::kInt4, group_size, ZeroMode::kNone);
  p.scale_stride = n;
  return p;
}

std::string chosen(const GemmProblem& p, const DeviceInfo& gpu) {
  return config_name<GemmProblem>(select(p, gpu, ranked(p, gpu)).choice);
}

// Chooses for each problem with and without one change, often enough that the second finds the
// first remembered and the other way round.
void expect_told_apart(const std::function<void(GemmProblem&)>& change, const char* what) {
  int differ = 0;
  for (const DeviceInfo& gpu : kGpus) {
    for (const int64_t m : {1, 7, 16, 40, 130, 1024}) {
      for (const int64_t k : {4096, 11008}) {
        const GemmProblem one = gemm(m, 4096, k, 128);
        GemmProblem other = one;
        change(other);
        for (const GemmProblem& p : {one, other, one}) {
          EXPECT_EQ(config_name<GemmProblem>(*choose(p, gpu)), chosen(p, gpu))
              << what << ", m = " << m;
        }
        differ += chosen(one, gpu) != chosen(other, gpu);
      }
    }
  }
  EXPECT_GT(differ, 0) << what << " never makes a difference: nothing was tested";
}

TEST(Select, RememberedChoicesTellProblemsApart) {
  expect_told_apart([](GemmProblem& p) { p.m += 200; }, "m");
  expect_told_apart([](GemmProblem& p) { p.n *= 4; }, "n");
  expect_told_apart([](GemmProblem& p) { p.k *= 4; }, "k");
  expect_told_apart([](GemmProblem& p) { p.scheme.weight = WeightType::kInt8; }, "int8");
  expect_told_apart([](GemmProblem& p) { p.scheme.scales.group = 16; }, "a group of 16");
  expect_told_apart([](GemmProblem& p) { p.scheme.scales.group = p.k; }, "one group");
  expect_told_apart([](GemmProblem& p) { p.scheme.scales.zeros = ZeroMode::kSub; }, "zero points");
  expect_told_apart([](GemmProblem& p) { p.element = ElementType::kFloat32; }, "float32");
  expect_told_apart([](GemmProblem& p) { p.scale_stride = int64_t{1} << 40; }, "scale_stride");
}

TEST(Select, RememberedChoicesTellDevicesApart) {
  for (const int64_t m : {1, 16, 130, 1024}) {
    const GemmProblem p = gemm(m, 4096, 4096, 128);
    for (int turn = 0; turn < 2; ++turn) {
      for (const DeviceInfo& gpu : kGpus) {
        EXPECT_EQ(config_name<GemmProblem>(*choose(p, gpu)), chosen(p, gpu))
            << gpu.sm << ", m = " << m;
      }
    }
  }
}

TEST(Select, RememberedChoicesEndWithTheTable) {
  const DeviceInfo& gpu = kGpus[2];
  const GemmProblem p = gemm(64, 5120, 2560, 128);
  const std::string predicted = config_name<GemmProblem>(*choose(p, gpu));
  const std::string tuned = "multistage_m32n128s4_parallel12";
  ASSERT_NE(predicted, tuned);
  const std::string line = "90 132 float16 4 128 0 5120 2560 64 " + tuned + " 12.5\n";
  ASSERT_TRUE(set_tuned_table(line).empty());
  EXPECT_EQ(config_name<GemmProblem>(*choose(p, gpu)), tuned);
  ASSERT_TRUE(set_tuned_table("").empty());
  EXPECT_EQ(config_name<GemmProblem>(*choose(p, gpu)), predicted);
}

TEST(Select, RememberedChoicesTellScaledProblemsApart) {
  int differ = 0;
  for (const DeviceInfo& gpu : kGpus) {
    for (const int64_t m : {1, 16, 130, 1024}) {
      ScaledMmProblem one;
      one.m = m;
      one.n = 4096;
      one.k = m == 16 ? 4104 : 4096;  // no whole vectors: kernels of either operand alone remain
      std::vector<ScaledMmProblem> others(4, one);
      others[0].m += 300;
      others[1].n *= 4;
      others[2].k *= 4;
      others[3].operand = OperandType::kFloat8E4M3;
      for (const ScaledMmProblem& other : others) {
        for (const ScaledMmProblem& p : {one, other, one}) {
          EXPECT_EQ(config_name<ScaledMmProblem>(*choose(p, gpu)),
                    config_name<ScaledMmProblem>(ranked(p, gpu).front()));
        }
        differ += config_name<ScaledMmProblem>(ranked(one, gpu).front()) !=
                  config_name<ScaledMmProblem>(ranked(other, gpu).front());
      }
    }
  }
  EXPECT_GT(differ, 0);
}

}  // namespace
}  // namespace mixed_gemm
