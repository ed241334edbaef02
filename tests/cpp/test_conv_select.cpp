// Which kernels run a convolution, on GPUs that are not here: names, constraints, the choice.
#include "dispatch/conv_select.h"

#include <gtest/gtest.h>

#include "core/conv_config.h"
#include "dispatch/cost_model.h"

namespace mixed_gemm {
namespace {

const DeviceInfo kDevices[] = {with_default_rates({80, 108, 166912, 0, 0}),
                               with_default_rates({86, 72, 101376, 0, 0}),
                               with_default_rates({90, 132, 232448, 0, 0})};
const DeviceInfo& kHopper = kDevices[2];

// A square layer whose padding keeps the size of the image.
ConvProblem layer(int64_t images, int64_t in_c, int64_t side, int64_t out_c, int64_t kernel,
                  int64_t stride = 1) {
  ConvProblem p;
  ConvShape& s = p.shape;
  s.images = images;
  s.in_c = in_c;
  s.in_h = s.in_w = side;
  s.out_c = out_c;
  s.kernel_h = s.kernel_w = kernel;
  s.stride_h = s.stride_w = stride;
  s.padding_h = s.padding_w = kernel / 2;
  s.out_h = s.out_w = conv_out_extent(side, kernel, stride, kernel / 2, 1);
  p.block_size = in_c % 64 == 0 ? 64 : in_c;
  return p;
}

int k_slices(const ConvCandidate& c) {
  return c.kind == ConvKind::kImplicit ? kConvTileConfigs[c.row].k_slices : 1;
}

TEST(ConvSelect, NamesOfAllCandidatesParse) {
  int sliced = 0;
  for (const ConvCandidate& c : ranked_conv(layer(1, 256, 14, 256, 3), kHopper)) {
    const auto parsed = parse_conv_config(config_name(c));
    ASSERT_TRUE(parsed) << config_name(c);
    EXPECT_EQ(config_name(*parsed), config_name(c));
    EXPECT_TRUE(parsed->kind == c.kind && parsed->row == c.row && parsed->split == c.split &&
                parsed->slices == c.slices);
    sliced += k_slices(c) > 1;
  }
  EXPECT_GT(sliced, 10);
  EXPECT_TRUE(parse_conv_config("implicit_m16n64s3k8_cluster2"));
  for (const char* name : {"implicit_m16n64s3", "implicit_m16n64s3k4", "implicit_m16n64s3k8k8",
                           "multistage_m64n128s4"}) {
    EXPECT_FALSE(parse_conv_config(name)) << name;
  }
}

TEST(ConvSelect, WarpsThatShareOutKHaveNoStreamK) {
  const ConvProblem p = layer(1, 256, 14, 256, 3);
  const auto stream = parse_conv_config("implicit_m16n32s3k8_streamk1");
  ASSERT_TRUE(stream);
  EXPECT_EQ(why_not_conv_candidate(*stream, p, kHopper),
            "has warps that share out K, and no stream-K");
  EXPECT_EQ(why_not_conv_candidate(*parse_conv_config("implicit_m32n64s4_streamk1"), p, kHopper),
            "");
}

TEST(ConvSelect, EveryDeviceHasTilesThatShareOutKAndOthers) {
  for (const DeviceInfo& device : kDevices) {
    for (const int bits : {4, 8}) {
      ConvProblem p = layer(1, 256, 14, 256, 3);
      p.bits = bits;
      int sliced = 0, whole = 0;
      for (const ConvCandidate& c : ranked_conv(p, device)) {
        if (c.kind != ConvKind::kImplicit) continue;
        ++(k_slices(c) > 1 ? sliced : whole);
        EXPECT_LE(conv_smem_bytes(kConvTileConfigs[c.row], bits, ScaleMode::kCoarse),
                  device.smem_bytes);
        EXPECT_TRUE(c.split != SplitK::kCluster || device.sm >= 90);
      }
      EXPECT_GT(sliced, 0) << device.sm << " " << bits;
      EXPECT_GT(whole, 0) << device.sm << " " << bits;
    }
  }
}

// As seen on an H200 (notes/kernels_h200.md).
TEST(ConvSelect, SingleImagesShareOutKInsideOfABlock) {
  for (const ConvProblem& p : {layer(1, 128, 28, 128, 3), layer(1, 256, 14, 256, 3),
                               layer(1, 512, 7, 512, 3), layer(1, 1024, 14, 2048, 1, 2)}) {
    const ConvCandidate c = select_conv(p, kHopper);
    EXPECT_EQ(k_slices(c), 8) << config_name(c);
  }
  EXPECT_EQ(k_slices(select_conv(layer(1, 64, 56, 64, 1), kHopper)), 1);
  EXPECT_EQ(select_conv(layer(32, 256, 14, 256, 3), kHopper).kind, ConvKind::kDense);
}

}  // namespace
}  // namespace mixed_gemm
