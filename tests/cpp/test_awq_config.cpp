// Every AWQ launch that select_awq() makes is one that the kernels take.
#include "awq/config.h"

#include <gtest/gtest.h>

namespace mixed_gemm {
namespace {

// Bytes that the reduction of a block needs (awq/reduction.cuh): an H200 has 227 KB at most, an
// L40S 99.
int64_t smem_bytes(const AwqConfig& config, const AwqChoice& choice) {
  const int64_t outputs = 8 * config.m_tiles * 64 * config.words * config.n_warps;
  return 16 + (choice.warps / config.n_warps + choice.split - 1) * outputs * 4;
}

TEST(AwqConfig, EveryChoiceFitsItsKernelAndTheDevice) {
  for (const auto& [sm, sm_count] : {std::pair{80, 108}, {89, 142}, {90, 132}, {90, 1}}) {
    for (const int64_t m : {1, 8, 9, 16, 17, 32, 33, 64, 96, 128}) {
      for (const int64_t n : {8, 64, 72, 1000, 4096, 6144, 17408, 57344}) {
        for (const int64_t k : {8, 56, 64, 72, 4096, 14336}) {
          for (const bool fine : {false, true}) {
            for (const bool pairs : {false, true}) {
              const AwqChoice c = select_awq(m, n, k, fine, pairs, sm, sm_count);
              SCOPED_TRACE(testing::Message()
                           << "sm_" << sm << " M=" << m << " N=" << n << " K=" << k << " row "
                           << c.row << " of " << c.warps << " warps, split " << c.split);
              ASSERT_GE(c.row, 0);
              ASSERT_LT(c.row, kNumAwqConfigs);
              const AwqConfig& config = kAwqConfigs[c.row];
              EXPECT_TRUE(pairs || config.words == 1);
              EXPECT_GE(c.warps, 1);
              EXPECT_LE(c.warps, awq_max_warps(config, fine));
              EXPECT_EQ(c.warps % config.n_warps, 0);
              EXPECT_TRUE(c.split == 1 || (sm >= 90 && c.split <= kMaxAwqSplit));
              EXPECT_EQ(c.pdl, sm >= 90);
              EXPECT_LE(smem_bytes(config, c), (sm == 89 ? 99 : 163) * 1024);
            }
          }
        }
      }
    }
  }
}

// 64 columns a block: 64 blocks, and each has half of K where there are clusters.
TEST(AwqConfig, NarrowOutputsShareOutK) {
  EXPECT_EQ(select_awq(1, 4096, 4096, false, true, 90, 132).split, 2);
  EXPECT_EQ(select_awq(1, 1024, 4096, false, true, 90, 132).split, 4);
  EXPECT_EQ(select_awq(1, 4096, 4096, false, true, 80, 108).split, 1);
  EXPECT_EQ(select_awq(1, 57344, 8192, false, true, 90, 132).split, 1);
}

// Every warp has a unit, and in a cluster none has many more than the others.
TEST(AwqConfig, WarpsHaveUnits) {
  EXPECT_EQ(select_awq(16, 6144, 64, false, true, 90, 132).warps, 1);
  EXPECT_EQ(select_awq(16, 4096, 4096, false, true, 90, 132).warps, 11);  // 32 units: 11, 11, 10
  EXPECT_EQ(select_awq(1, 4096, 4096, false, true, 90, 132).warps, 11);   // three turns
  EXPECT_EQ(select_awq(16, 6144, 4096, false, true, 90, 132).warps, 12);  // no cluster
  EXPECT_EQ(select_awq(1, 4096, 14336, false, true, 90, 132).warps, 16);  // 112 units
}

}  // namespace
}  // namespace mixed_gemm
