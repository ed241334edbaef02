// The kernels that run a convolution, on GPUs that are not here: names, constraints, the choice.

#include <gtest/gtest.h>

#include "conv/config.h"
#include "dispatch/select.h"
#include "dispatch/tuned_table.h"

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

bool is(const Choice& c, const char* family) {
  return std::string(family_of<ConvProblem>(c).name) == family;
}

int k_warps(const Choice& c) { return is(c, "implicit") ? kConvTileConfigs[c.row].k_warps : 1; }

TEST(ConvSelect, NamesOfAllCandidatesParse) {
  int sliced = 0;
  for (const Choice& c : ranked(layer(1, 256, 14, 256, 3), kHopper)) {
    const auto parsed = parse_config<ConvProblem>(config_name<ConvProblem>(c));
    ASSERT_TRUE(parsed) << config_name<ConvProblem>(c);
    EXPECT_EQ(config_name<ConvProblem>(*parsed), config_name<ConvProblem>(c));
    EXPECT_TRUE(parsed->family == c.family && parsed->row == c.row && parsed->split == c.split &&
                parsed->slices == c.slices);
    sliced += k_warps(c) > 1;
  }
  EXPECT_GT(sliced, 10);
  EXPECT_TRUE(parse_config<ConvProblem>("implicit_m16n64s3k8_cluster2"));
  for (const char* name : {"implicit_m16n64s3", "implicit_m16n64s3k4", "implicit_m16n64s3k8k8",
                           "multistage_m64n128s4"}) {
    EXPECT_FALSE(parse_config<ConvProblem>(name)) << name;
  }
}

TEST(ConvSelect, WarpsThatShareOutKHaveNoStreamK) {
  const ConvProblem p = layer(1, 256, 14, 256, 3);
  const auto stream = parse_config<ConvProblem>("implicit_m16n32s3k8_streamk1");
  ASSERT_TRUE(stream);
  EXPECT_EQ(why_not(*stream, p, kHopper), "has warps that share out K, and no stream-K");
  EXPECT_EQ(why_not(*parse_config<ConvProblem>("implicit_m32n64s4_streamk1"), p, kHopper), "");
}

TEST(ConvSelect, EveryDeviceHasTilesThatShareOutKAndOthers) {
  for (const DeviceInfo& device : kDevices) {
    for (const WeightType weight : {WeightType::kInt4, WeightType::kInt8}) {
      ConvProblem p = layer(1, 256, 14, 256, 3);
      p.weight = weight;
      int sliced = 0, whole = 0;
      for (const Choice& c : ranked(p, device)) {
        if (!is(c, "implicit")) continue;
        ++(k_warps(c) > 1 ? sliced : whole);
        EXPECT_LE(conv_smem_bytes(kConvTileConfigs[c.row], weight, kConvModes[0]),
                  device.smem_bytes);
        EXPECT_TRUE(c.split != SplitK::kCluster || device.sm >= 90);
      }
      EXPECT_GT(sliced, 0) << device.sm << " " << weight_info(weight).name;
      EXPECT_GT(whole, 0) << device.sm << " " << weight_info(weight).name;
    }
  }
}

// The choices seen on an H200 (notes/conv.md).
TEST(ConvSelect, SingleImagesShareOutKInsideOfABlock) {
  for (const ConvProblem& p : {layer(1, 128, 28, 128, 3), layer(1, 256, 14, 256, 3),
                               layer(1, 512, 7, 512, 3), layer(1, 1024, 14, 2048, 1, 2)}) {
    const Choice c = *choose(p, kHopper);
    EXPECT_EQ(k_warps(c), 8) << config_name<ConvProblem>(c);
  }
  EXPECT_EQ(k_warps(*choose(layer(1, 64, 56, 64, 1), kHopper)), 1);
  EXPECT_TRUE(is(*choose(layer(32, 256, 14, 256, 3), kHopper), "dequantize_conv"));
}

// Problems that differ in one thing; many of them are the same GEMM.
std::vector<ConvProblem> variations() {
  static const int kSome = 0;
  std::vector<ConvProblem> all;
  const auto add = [&](const auto& change) {
    ConvProblem p = layer(2, 64, 8, 64, 1);
    change(p);
    ConvShape& s = p.shape;
    s.out_h = conv_out_extent(s.in_h, s.kernel_h, s.stride_h, s.padding_h, s.dilation_h);
    s.out_w = conv_out_extent(s.in_w, s.kernel_w, s.stride_w, s.padding_w, s.dilation_w);
    all.push_back(p);
  };
  add([](ConvProblem&) {});
  add([](ConvProblem& p) { p.shape.stride_h = p.shape.stride_w = 2, p.shape.images = 8; });
  add([](ConvProblem& p) { p.shape.stride_h = 2, p.shape.images = 4; });
  add([](ConvProblem& p) { p.shape.padding_h = 1; });
  add([](ConvProblem& p) { p.shape.padding_w = 1, p.shape.in_w = 6; });
  add([](ConvProblem& p) { p.shape.padding_h = 1, p.shape.in_h = 6; });
  add([](ConvProblem& p) { p.shape.in_h = 4, p.shape.in_w = 16; });
  add([](ConvProblem& p) { p.shape.images = 1, p.shape.in_h = 16; });
  add([](ConvProblem& p) { p.shape.kernel_h = 2, p.shape.in_h = 9, p.shape.in_c = 32; });
  add([](ConvProblem& p) { p.shape.kernel_w = 2, p.shape.in_w = 9, p.shape.in_c = 32; });
  add([](ConvProblem& p) {
    p.shape.kernel_w = 2, p.shape.dilation_w = 2, p.shape.in_w = 10, p.shape.in_c = 32;
  });
  add([](ConvProblem& p) { p.shape.out_c = 1024; });
  add([](ConvProblem& p) { p.shape.in_c = 8, p.block_size = 8; });
  add([](ConvProblem& p) { p.block_size = 16; });
  add([](ConvProblem& p) { p.weight = WeightType::kInt8; });
  add([](ConvProblem& p) { p.element = ElementType::kBFloat16; });
  add([](ConvProblem& p) { p.element = ElementType::kFloat32; });
  add([](ConvProblem& p) { p.activation = Activation::kSilu; });
  add([](ConvProblem& p) { p.bias = &kSome; });
  add([](ConvProblem& p) { p.offsets = &kSome; });
  add([](ConvProblem& p) { p.shape.images = 2000; });
  return all;
}

ConvInt8Problem int8_of(const ConvProblem& p) {
  ConvInt8Problem int8;
  int8.shape = p.shape;
  return int8;
}

bool same(const std::optional<Choice>& a, const std::optional<Choice>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return config_name<ConvProblem>(*a) == config_name<ConvProblem>(*b) &&
         a->predicted_us == b->predicted_us;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all(std::begin(kDevices), std::end(kDevices));
  all.push_back(with_default_rates({90, 132, 232448, 3000, 0}));  // Hopper with less bandwidth
  all.push_back(with_default_rates({90, 132, 101376, 0, 0}));
  all.push_back(with_default_rates({90, 132, 1000, 0, 0}));  // no tile fits
  return all;
}

TEST(ConvSelect, WhatWasChosenBeforeDecidesNothing) {
  const std::vector<ConvProblem> problems = variations();
  for (const DeviceInfo& device : devices()) {
    for (const ConvProblem& before : problems) {
      for (const ConvProblem& p : problems) {
        choose(before, device);
        const std::vector<Choice> all = ranked(p, device);
        const auto chosen = choose(p, device);
        ASSERT_TRUE(same(chosen, all.empty() ? std::nullopt : std::optional(all[0])));
        ASSERT_EQ(chosen ? why_not(*chosen, p, device) : "", "");
      }
    }
  }
}

TEST(ConvSelect, NorWhatWasChosenForAnotherDevice) {
  for (const ConvProblem& p : variations()) {
    for (const DeviceInfo& before : devices()) {
      for (const DeviceInfo& device : devices()) {
        choose(p, before);
        choose(int8_of(p), before);
        const auto all = ranked(p, device);
        ASSERT_TRUE(same(choose(p, device), all.empty() ? std::nullopt : std::optional(all[0])));
        const auto int8 = ranked(int8_of(p), device);
        ASSERT_TRUE(
            same(choose(int8_of(p), device), int8.empty() ? std::nullopt : std::optional(int8[0])));
      }
    }
  }
}

// A measured point says which kernel is the fastest, not that its time is none.
TEST(ConvSelect, TunedPointsAreAsLongAsPredicted) {
  const ConvProblem p = layer(2, 64, 8, 64, 1);
  const std::optional<Choice> before = choose(p, kHopper);
  const auto pointwise_us = [&] {
    for (const Choice& c : ranked(p, kHopper)) {
      if (is(c, "pointwise")) return c.predicted_us;
    }
    return -1.0;
  };
  const double untuned_us = pointwise_us();
  const GemmProblem gemm = pointwise_gemm_of(p);
  const auto gemms = ranked(gemm, kHopper);
  const auto table = [](const std::string& config) {
    return "90 132 float16 4 -1 0 64 64 128 " + config + " 0.01\n";
  };
  ASSERT_TRUE(set_tuned_table(table(config_name<GemmProblem>(gemms.front()))).empty());
  EXPECT_EQ(pointwise_us(), untuned_us);
  EXPECT_TRUE(same(choose(p, kHopper), before));
  // A point that takes long makes the choice anew.
  ASSERT_TRUE(set_tuned_table(table(config_name<GemmProblem>(gemms.back()))).empty());
  EXPECT_GT(pointwise_us(), untuned_us);
  const auto now = ranked(p, kHopper);
  EXPECT_TRUE(same(choose(p, kHopper), now.front()));
  set_tuned_table("");
}

}  // namespace
}  // namespace mixed_gemm
