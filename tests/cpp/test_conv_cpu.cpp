// The convolutions and the block GEMM at the ends of their pages: one byte read or written behind
// an operand is a crash. Values are compared in tests/python; here with sums that are easy to
// count.
#include <gtest/gtest.h>

#include <thread>

#include "cpu/block_gemm/block_gemm_cpu.h"
#include "cpu/conv/conv_cpu.h"
#include "guarded_bytes.h"
#include "layout/conv_layout.h"
#include "layout/pack_weight.h"

namespace mixed_gemm::test {
namespace {

void two_threads(int64_t begin, int64_t end, int64_t, const LoopBody& body) {
  const int64_t middle = begin + (end - begin) / 2;
  std::thread other([&] { serial_for(middle, end, 1, body); });
  serial_for(begin, middle, 1, body);
  other.join();
}

ConvShape shape_of(int64_t in_c, int64_t kernel, int64_t stride, int64_t padding) {
  ConvShape s;
  s.images = 2, s.in_c = in_c, s.in_h = 5, s.in_w = 7, s.out_c = 21;
  s.kernel_h = s.kernel_w = kernel;
  s.stride_h = s.stride_w = stride;
  s.padding_h = s.padding_w = padding;
  s.out_h = conv_out_extent(s.in_h, kernel, stride, padding, 1);
  s.out_w = conv_out_extent(s.in_w, kernel, stride, padding, 1);
  return s;
}

ImageStrides strides_of(int64_t c, int64_t h, int64_t w, bool channels_last) {
  if (channels_last) return {h * w * c, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

// Pixels of the image under the kernel at output (y, x).
int64_t covered(const ConvShape& s, int64_t y, int64_t x) {
  int64_t count = 0;
  for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
    for (int64_t kx = 0; kx < s.kernel_w; ++kx) {
      const int64_t iy = y * s.stride_h - s.padding_h + ky, ix = x * s.stride_w - s.padding_w + kx;
      count += iy >= 0 && iy < s.in_h && ix >= 0 && ix < s.in_w;
    }
  }
  return count;
}

// An image of ones and a filter of threes in blocks of scale 1/2 and offset 1: 2.5 for each weight
// and pixel that the kernel covers.
void expect_counts(const ConvShape& s, bool channels_last, const ParallelFor& parallel_for) {
  const int64_t k = conv_k(s.in_c, s.taps()), inputs = s.images * s.in_c * s.in_h * s.in_w;
  const int64_t block = s.in_c > 16 ? 16 : s.in_c, blocks = ceil_div(s.in_c, block);
  const GuardedBytes input(4 * inputs), scales(4 * blocks * s.out_c), offsets(4 * blocks * s.out_c);
  const GuardedBytes packed(WeightLayout<Int4>::packed_bytes(s.out_c, k)),
      d(4 * s.rows() * s.out_c);
  std::fill_n(input.as<float>(), inputs, 1.f);
  std::fill_n(scales.as<float>(), blocks * s.out_c, 0.5f);
  std::fill_n(offsets.as<float>(), blocks * s.out_c, 1.f);
  const std::vector<int8_t> q(s.out_c * k, 3);
  pack_weight(WeightType::kInt4, q.data(), k, s.out_c, k, packed.as<uint8_t>(), serial_for);
  ConvProblem p;
  p.shape = s;
  p.element = ElementType::kFloat32;
  p.weight = WeightType::kInt4;
  p.block_size = block;
  p.input = input.as<void>();
  p.input_strides = strides_of(s.in_c, s.in_h, s.in_w, true);
  p.weight_packed = packed.as<uint8_t>();
  p.scales = scales.as<void>();
  p.offsets = offsets.as<void>();
  p.scale_stride = s.out_c;
  p.d = d.as<void>();
  p.d_channels_last = channels_last;
  p.d_strides = strides_of(s.out_c, s.out_h, s.out_w, channels_last);
  conv_cpu(p, parallel_for);
  const ImageStrides& at = p.d_strides;
  for (int64_t y = 0; y < s.out_h; ++y) {
    for (int64_t x = 0; x < s.out_w; ++x) {
      const double want = 2.5 * static_cast<double>(s.in_c * covered(s, y, x));
      for (int64_t o : {int64_t{0}, s.out_c - 1}) {
        ASSERT_EQ(d.as<float>()[at.image + o * at.c + y * at.h + x * at.w], want);
      }
    }
  }
}

TEST(ConvCpu, stays_inside_its_operands) {
  for (int64_t in_c : {1, 3, 17, 40, 65, 130}) {
    for (bool channels_last : {false, true}) {
      expect_counts(shape_of(in_c, 1, 1, 0), channels_last, serial_for);
      expect_counts(shape_of(in_c, 1, 2, 0), channels_last, two_threads);
      expect_counts(shape_of(in_c, 3, 1, 1), channels_last, two_threads);
      expect_counts(shape_of(in_c, 3, 2, 4), channels_last, serial_for);
    }
  }
}

TEST(ConvInt8Cpu, stays_inside_its_operands) {
  for (int64_t in_c : {1, 3, 17, 40, 130}) {
    for (int64_t kernel : {1, 3}) {
      const ConvShape s = shape_of(in_c, kernel, 1, kernel / 2);
      const int64_t k = in_c * s.taps(), inputs = s.images * in_c * s.in_h * s.in_w;
      const GuardedBytes input(inputs), weight(s.out_c * k), d(s.rows() * s.out_c), scale(4);
      const GuardedBytes sums(4 * s.out_c);
      std::fill_n(input.as<int8_t>(), inputs, int8_t{5});
      std::fill_n(weight.as<int8_t>(), s.out_c * k, int8_t{-1});
      std::fill_n(sums.as<int32_t>(), s.out_c, static_cast<int32_t>(-k));
      *scale.as<float>() = 1;
      ConvInt8Problem p;
      p.shape = s;
      p.input_zero_point = 4;
      p.output_scale = static_cast<double>(in_c);
      p.input = input.as<int8_t>();
      p.input_strides = strides_of(in_c, s.in_h, s.in_w, true);
      p.weight = weight.as<int8_t>();
      p.weight_scale = scale.as<float>();
      p.d = d.as<int8_t>();
      p.d_channels_last = true;
      p.d_strides = strides_of(s.out_c, s.out_h, s.out_w, true);
      for (const bool given : {false, true}) {
        p.weight_sums = given ? sums.as<int32_t>() : nullptr;
        conv_int8_cpu(p, two_threads);
        for (int64_t y = 0; y < s.out_h; ++y) {
          for (int64_t x = 0; x < s.out_w; ++x) {
            const int8_t* pixel = p.d + p.d_strides.image + y * p.d_strides.h + x * p.d_strides.w;
            ASSERT_EQ(pixel[s.out_c - 1], -covered(s, y, x));
          }
        }
      }
    }
  }
}

TEST(BlockGemmCpu, stays_inside_its_operands) {
  for (int64_t m : {1, 3, 66}) {
    for (int64_t n : {1, 50}) {
      for (int64_t k : {1, 31, 130}) {
        const int64_t block = std::min<int64_t>(k, 16), blocks = ceil_div(k, block);
        const GuardedBytes a(4 * m * k), b(n * k), scale(4 * blocks * n), offset(4 * blocks * n);
        const GuardedBytes d(4 * m * n), sums(4 * blocks * n);
        std::fill_n(a.as<float>(), m * k, -1.5f);
        std::fill_n(b.as<int8_t>(), n * k, int8_t{4});
        std::fill_n(scale.as<float>(), blocks * n, 0.25f);
        std::fill_n(offset.as<float>(), blocks * n, 1.f);
        for (int64_t g = 0; g < blocks; ++g) {
          const int64_t size = std::min(block, k - g * block);
          std::fill_n(sums.as<int32_t>() + g * n, n, static_cast<int32_t>(4 * size));
        }
        BlockGemmProblem p;
        p.m = m, p.n = n, p.k = k;
        p.element = ElementType::kFloat32;
        p.block_size = block;
        p.a = a.as<void>(), p.lda = k;
        p.b = b.as<int8_t>(), p.ldb = k;
        p.scale_b = scale.as<void>(), p.offset_b = offset.as<void>(), p.scale_stride = n;
        p.d = d.as<void>();
        for (const bool given : {false, true}) {
          p.b_sums = given ? sums.as<int32_t>() : nullptr;
          block_gemm_cpu(p, two_threads);
          EXPECT_EQ(d.as<float>()[0], -3.f * static_cast<float>(k));
          EXPECT_EQ(d.as<float>()[m * n - 1], -3.f * static_cast<float>(k));
        }
      }
    }
  }
}

}  // namespace
}  // namespace mixed_gemm::test
