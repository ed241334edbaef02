// The choice of a tile for the 8-bit GEMMs where there is none, and where GPUs differ in their
// rates alone.

#include <gtest/gtest.h>

#include "dispatch/select.h"
#include "hopper/support.h"
namespace mixed_gemm {
namespace {

const DeviceInfo kSmall = with_default_rates({80, 108, 60000, 0, 0});
const DeviceInfo kHopper = with_default_rates({90, 132, 232448, 0, 0});

ScaledMmProblem scaled(int64_t m, int64_t n, int64_t k) {
  ScaledMmProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  return p;
}

TEST(ScaledSelect, NoTileIsNoChoiceAndSaysWhatIsMissing) {
  const ScaledMmProblem p = scaled(16, 4096, 4096);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(choose(p, kSmall));  // remembered as well
  EXPECT_EQ(why_none(p, kSmall),
            "no tile runs this on the device: the smallest, scaled_m16n64s8, needs 82048 bytes of "
            "shared memory, the device has 60000");
  BlockGemmProblem block;
  block.m = block.n = block.k = block.block_size = 64;
  EXPECT_TRUE(ranked(block, kSmall).empty());
  EXPECT_EQ(why_none(block, kSmall),
            "no tile runs this on the device: the smallest, block_m16n64s6, needs 70528 bytes of "
            "shared memory, the device has 60000");
}

TEST(ScaledSelect, MoreTilesThanCanBeCountedAreNoChoice) {
  ScaledMmProblem p = scaled(int64_t{1} << 30, int64_t{1} << 30, 64);
  EXPECT_FALSE(choose(p, kHopper));
  EXPECT_EQ(why_none(p, kHopper),
            "no tile runs this on the device: the largest, scaled_m128n256s4, has 35184372088832 "
            "tiles or parts of them, more than can be counted");
  p.operand = OperandType::kFloat8E4M3;
  p.k =
      int64_t{1} << 30;  // by parts of K it is 2^68: the product must not come round to a small one
  for (const char* name : {"scaled_m16n64s8_streamk1", "scaled_m128n256s4_parallel4"}) {
    EXPECT_NE(why_not(*parse_config<ScaledMmProblem>(name), p, kHopper), "") << name;
  }
  EXPECT_FALSE(choose(p, kHopper));
}

TEST(ScaledSelect, NoBuildPromisesKernelsThatItLacks) {
  Build build;  // for 8.0 alone
  EXPECT_EQ(why_not_operand(OperandType::kInt8, kHopper, build), "");
  const std::string no_fp8 = why_not_operand(OperandType::kFloat8E4M3, kHopper, build);
  EXPECT_NE(no_fp8.find("no kernels in this build"), std::string::npos) << no_fp8;
  const std::string no_wgmma = why_not_wgmma(kHopper, build);
  EXPECT_NE(no_wgmma.find("not in this build"), std::string::npos) << no_wgmma;
  build.fp8 = build.wgmma = true;
  EXPECT_EQ(why_not_operand(OperandType::kFloat8E4M3, kHopper, build), "");
  EXPECT_EQ(why_not_wgmma(kHopper, build), "");
}

TEST(ScaledSelect, ChoicesOfGpusThatDifferInBandwidthAreKeptApart) {
  DeviceInfo fast = kHopper, slow = kHopper;
  fast.dram_gb_per_s = 100000;
  slow.dram_gb_per_s = 50;
  int different = 0;
  for (const int64_t m : {1, 16, 64, 300, 1000, 4096}) {
    const ScaledMmProblem p = scaled(m, 4096, 4096);
    const std::string expected = config_name<ScaledMmProblem>(ranked(p, slow).front());
    different += expected != config_name<ScaledMmProblem>(*choose(p, fast));
    EXPECT_EQ(config_name<ScaledMmProblem>(*choose(p, slow)), expected);
  }
  EXPECT_GT(different, 0);
}

}  // namespace
}  // namespace mixed_gemm
