// The K order of packed filters, as the CPU and the CUDA kernels assume it for taps and blocks.
#include <gtest/gtest.h>

#include "layout/conv_layout.h"
#include "problem/block_gemm.h"
#include "problem/conv.h"

namespace mixed_gemm::test {
namespace {

TEST(ConvLayout, a_k_tile_holds_one_tap_or_whole_taps) {
  for (int64_t in_c = 1; in_c <= 1200; ++in_c) {
    const int64_t channels = channels_per_tap(in_c);
    EXPECT_GE(channels, in_c);
    EXPECT_LT(channels, std::max<int64_t>(9, 2 * in_c));
    EXPECT_TRUE(channels % kPadK == 0 || kPadK % channels == 0) << in_c;
    EXPECT_EQ(channels % 8, 0);  // 16 bytes of fp16 belong to one tap
    // The packed bytes of a one-tap filter are those of its matrix.
    EXPECT_EQ(WeightLayout<Int4>::packed_bytes(5, conv_k(in_c, 1)),
              WeightLayout<Int4>::packed_bytes(5, in_c));
  }
}

TEST(ConvLayout, every_channel_of_a_group_is_in_its_block) {
  for (int64_t in_c = 1; in_c <= 300; ++in_c) {
    for (int64_t block = 16; block <= in_c + 16; block += 16) {
      const int64_t size = std::min(block, in_c), channels = channels_per_tap(in_c), taps = 3;
      const ConvGroups groups(in_c, taps, size);
      ASSERT_EQ(groups.count * groups.size, taps * channels);
      ASSERT_TRUE(groups.count == 1 || groups.size % 16 == 0) << in_c << " " << size;
      ASSERT_TRUE(groups.count > 1 || size == in_c) << in_c << " " << size;
      for (int64_t k = 0; k < taps * channels; ++k) {
        const int64_t channel = k % channels;
        if (channel >= in_c) continue;
        ASSERT_EQ(groups.block_of_group(k / groups.size), channel / size) << in_c << " " << size;
      }
    }
  }
}

TEST(ConvLayout, groups_beyond_the_channels_have_no_block) {
  const ConvGroups groups(100, 9, 48);  // 128 channels in a tap, of which 100 exist
  EXPECT_EQ(groups.size, 16);
  EXPECT_EQ(groups.block_of_group(6), 2);   // channels 96..111
  EXPECT_EQ(groups.block_of_group(7), -1);  // channels 112..127
  EXPECT_EQ(groups.block_of_group(8), 0);   // the next tap
}

TEST(ConvShape, output_extent_counts_the_places_of_the_kernel) {
  for (int64_t in = 0; in <= 9; ++in) {
    for (int64_t kernel = 1; kernel <= 4; ++kernel) {
      for (int64_t stride = 1; stride <= 3; ++stride) {
        for (int64_t padding = 0; padding <= 3; ++padding) {
          for (int64_t dilation = 1; dilation <= 3; ++dilation) {
            int64_t places = 0;
            const int64_t span = dilation * (kernel - 1) + 1;
            for (int64_t first = 0; first + span <= in + 2 * padding; first += stride) ++places;
            EXPECT_EQ(conv_out_extent(in, kernel, stride, padding, dilation), places);
          }
        }
      }
    }
  }
}

// Sums and products of such settings once wrapped around, now to nothing and now to many places.
TEST(ConvShape, output_extent_of_settings_beyond_all_bounds_is_0) {
  constexpr int64_t kHuge[] = {int64_t{1} << 31, int64_t{1} << 62, INT64_MAX, -1, INT64_MIN};
  for (const int64_t huge : kHuge) {
    EXPECT_EQ(conv_out_extent(9, huge, 1, 0, 1), 0) << huge;
    EXPECT_EQ(conv_out_extent(9, 3, huge, 0, 1), 0) << huge;
    EXPECT_EQ(conv_out_extent(9, 3, 1, huge, 1), 0) << huge;
    EXPECT_EQ(conv_out_extent(9, 3, 1, 0, huge), 0) << huge;
  }
  EXPECT_EQ(conv_out_extent(9, 3, 0, 0, 1), 0);
  EXPECT_EQ(conv_out_extent(9, kMaxConvSetting, 1, kMaxConvSetting, kMaxConvSetting), 0);
  EXPECT_GT(conv_out_extent(INT64_MAX, 1, 1, kMaxConvSetting, 1), int64_t{1} << 61);
}

ConvShape valid_shape() {
  ConvShape s;
  s.images = 2, s.in_c = 40, s.in_h = s.in_w = 8, s.out_c = 24, s.out_h = s.out_w = 8;
  s.kernel_h = s.kernel_w = 3, s.padding_h = s.padding_w = 1;
  return s;
}

TEST(ConvSupport, says_what_is_wrong_with_numbers) {
  EXPECT_EQ(why_not_conv(valid_shape(), 16), "");
  EXPECT_NE(why_not_conv(valid_shape(), 24).find("block_size=32 is accepted"), std::string::npos);
  EXPECT_NE(why_not_conv(valid_shape(), 48).find("block_size=-1 is accepted"), std::string::npos);
  ConvShape s = valid_shape();
  s.stride_w = 0;
  EXPECT_NE(why_not_conv_shape(s).find("stride must be in 1..2147483647, got (1, 0)"),
            std::string::npos);
  s = valid_shape();
  s.images = 1 << 24;
  EXPECT_NE(why_not_conv_shape(s).find("got 42949672960 of (16777216, 40, 8, 8)"),
            std::string::npos);
  s = valid_shape();
  s.out_h = int64_t{1} << 40, s.out_w = int64_t{1} << 40;
  EXPECT_NE(why_not_conv_shape(s).find("got 2^63 or more"), std::string::npos);
}

TEST(ConvSupport, the_last_element_below_the_limit_is_accepted) {
  ConvShape s;
  s.images = s.in_c = s.out_c = 1, s.in_h = s.out_h = 1, s.in_w = s.out_w = 2147483647;
  EXPECT_EQ(why_not_conv_shape(s), "");
  s.in_w = s.out_w = 2147483648;
  EXPECT_NE(why_not_conv_shape(s), "");
}

}  // namespace
}  // namespace mixed_gemm::test
