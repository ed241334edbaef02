// Shared memory that leaves an SM room for an even share of a kernel's blocks, and not for more.
#include <gtest/gtest.h>

#include <string>

#include "core/device.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kBlocks[] = {1, 96, 132, 133, 224, 264, 265, 528, 16 * 132};  // 16: all that fit

class EvenShareTest : public testing::TestWithParam<DeviceInfo> {};

TEST_P(EvenShareTest, OneMoreDoesNotFit) {
  const Pdl gpu = GetParam().pdl();
  const int per_sm = gpu.smem_bytes + Pdl::kReservedSmem;
  for (const int64_t blocks : kBlocks) {
    const int share = gpu.share(blocks);
    EXPECT_GE(int64_t{share} * gpu.sms, blocks);
    EXPECT_LT(int64_t{share - 1} * gpu.sms, blocks);
    const int smem = gpu.smem_of_share(blocks);
    // The driver rounds up to whole granules.
    constexpr int kGranule = Pdl::kSmemGranule;
    const int taken = (smem + kGranule - 1) / kGranule * kGranule + Pdl::kReservedSmem;
    EXPECT_LE(share * taken, per_sm) << blocks;
    EXPECT_GT((share + 1) * (smem + Pdl::kReservedSmem), per_sm) << blocks;
    EXPECT_LE(smem, gpu.smem_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, EvenShareTest,
                         testing::Values(DeviceInfo{90, 132, 232448, 4800, 990},
                                         DeviceInfo{100, 148, 232448, 8000, 2250},
                                         DeviceInfo{120, 170, 101376, 1792, 420}),
                         [](const auto& info) { return "sm_" + std::to_string(info.param.sm); });

TEST(Pdl, NotBeforeHopper) { EXPECT_EQ((DeviceInfo{89, 142, 101376, 864, 360}.pdl().sms), 0); }

}  // namespace
}  // namespace mixed_gemm
