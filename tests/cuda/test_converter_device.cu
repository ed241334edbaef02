// The host twins are only worth something if the device agrees with them bit for bit. Exit code 77:
// no GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "dequant/apply_scale.h"
#include "dequant/column_pair.h"
#include "dequant/integer_converter.h"

namespace mixed_gemm {
namespace {

template <typename Function>
__global__ void map_words(Function function, const uint32_t* in, uint32_t* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) function(in + 3 * i, out + 4 * i);
}

// Runs `function` (3 words in, 4 words out) on the host and on the device and compares every word.
template <typename Function>
void expect_device_equals_twin(Function function, const std::vector<uint32_t>& in) {
  const int count = static_cast<int>(in.size() / 3);
  std::vector<uint32_t> expected(4 * count), actual(4 * count, 0xdeadbeef);
  for (int i = 0; i < count; ++i) function(&in[3 * i], &expected[4 * i]);
  uint32_t *device_in, *device_out;
  ASSERT_EQ(cudaMalloc(&device_in, in.size() * 4), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&device_out, actual.size() * 4), cudaSuccess);
  cudaMemcpy(device_in, in.data(), in.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(device_out, actual.data(), actual.size() * 4, cudaMemcpyHostToDevice);
  map_words<<<(count + 255) / 256, 256>>>(function, device_in, device_out, count);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  cudaMemcpy(actual.data(), device_out, actual.size() * 4, cudaMemcpyDeviceToHost);
  cudaFree(device_in);
  cudaFree(device_out);
  for (int i = 0; i < 4 * count; ++i) {
    ASSERT_EQ(actual[i], expected[i])
        << "word " << i % 4 << " of input " << std::hex << in[i / 4 * 3] << " " << in[i / 4 * 3 + 1]
        << " " << in[i / 4 * 3 + 2];
  }
}

template <typename Format, typename Weight>
struct Convert {
  MIXED_GEMM_HOST_DEVICE void operator()(const uint32_t* in, uint32_t* out) const {
    uint32_t pairs[2 * kStepsPerWord<Weight>];
    convert_word<Format, Weight>(in[0], pairs);
    for (int i = 0; i < 4; ++i) out[i] = i < 2 * kStepsPerWord<Weight> ? pairs[i] : 0;
  }
};

template <typename Format>
struct Arithmetic {
  MIXED_GEMM_HOST_DEVICE void operator()(const uint32_t* in, uint32_t* out) const {
    out[0] = fma_x2<Format>(in[0], in[1], in[2]);
    out[1] = sub_x2<Format>(in[0], in[1]);
    out[2] = apply_scale<Format>(in[0], in[1]);
    out[3] = apply_scale_and_zero<Format>(in[0], in[1], in[2], 0);
  }
};

// Weights of one column of a pair, with and without zero points: in[1] are scales, in[2] zeros.
template <typename Format, typename Weight>
struct Fold {
  ZeroMode mode;
  MIXED_GEMM_HOST_DEVICE void operator()(const uint32_t* in, uint32_t* out) const {
    ColumnPair<Format, Weight, ZeroPoints::kAny> zeros;
    ColumnPair<Format, Weight, ZeroPoints::kNone> none;
    zeros.loaded[0] = none.loaded[0] = in[1], zeros.loaded[1] = in[2];
    zeros.fold(ZeroFolding::of<FoldingConverter<Format, Weight>>(mode));
    uint32_t pairs[2], others[2];
    const FoldingConverter<Format, Weight> converter;
    zeros.convert_step(converter, in[0], 0, 0, pairs);
    none.convert_step(converter, in[0], kStepsPerWord<Weight> - 1, 1, others);
    out[0] = pairs[0], out[1] = pairs[1], out[2] = others[0], out[3] = others[1];
  }
};

struct BitOps {
  MIXED_GEMM_HOST_DEVICE void operator()(const uint32_t* in, uint32_t* out) const {
    out[0] = prmt<0x5250>(in[0], in[1]);
    out[1] = prmt<0xf8c4>(in[0], in[1]);  // sign replication too
    out[2] = lop3<kLutAndOr>(in[0], in[1], in[2]);
    out[3] = lop3<kLutNotAndOr>(in[0], in[1], in[2]);
  }
};

// All 2^16 values of either half, the other half their complement: every field of a word takes
// every value.
std::vector<uint32_t> all_halves() {
  std::vector<uint32_t> in;
  for (uint32_t v = 0; v < 65536; ++v) in.insert(in.end(), {v | (~v << 16), 0, 0});
  return in;
}

bool is_nan(uint32_t half, int mantissa_bits) {
  const uint32_t infinity = (0x7fffu >> mantissa_bits) << mantissa_bits;
  return (half & 0x7fff) > infinity;
}

// Random bit patterns without NaNs: the payload of a NaN result is not part of the promise.
template <typename Format>
std::vector<uint32_t> random_numbers(int count) {
  std::mt19937 random(1);
  std::vector<uint32_t> in;
  while (static_cast<int>(in.size()) < 3 * count) {
    const uint32_t word = random();
    constexpr int kBits = Format::kMantissaBits;
    // Infinities make NaN (inf - inf): leave the top exponent out altogether.
    const uint32_t top = ((0x7fffu >> kBits) << kBits) * 0x10001u;
    const uint32_t exponents = word & top;
    if ((exponents & 0xffff) == (top & 0xffff) || (exponents >> 16) == (top >> 16)) continue;
    if (is_nan(word & 0xffff, kBits) || is_nan(word >> 16, kBits)) continue;
    in.push_back(word);
  }
  return in;
}

TEST(DeviceConverter, Int4ToHalf) {
  expect_device_equals_twin(Convert<Half, Int4>(), all_halves());
}
TEST(DeviceConverter, Int8ToHalf) {
  expect_device_equals_twin(Convert<Half, Int8>(), all_halves());
}
TEST(DeviceConverter, Int4ToBFloat16) {
  expect_device_equals_twin(Convert<BFloat16, Int4>(), all_halves());
}
TEST(DeviceConverter, Int8ToBFloat16) {
  expect_device_equals_twin(Convert<BFloat16, Int8>(), all_halves());
}

// Operands near each other, so that sums round and cancel, as well as anywhere.
TEST(DeviceArithmetic, Half) {
  expect_device_equals_twin(Arithmetic<Half>(), random_numbers<Half>(1 << 20));
}
TEST(DeviceArithmetic, BFloat16) {
  // Large exponents overflow to infinity in products and then cancel to NaN: keep to a quarter of
  // the range.
  auto in = random_numbers<BFloat16>(1 << 20);
  for (uint32_t& word : in) word = (word & 0x8fff8fffu) | 0x30003000u;
  expect_device_equals_twin(Arithmetic<BFloat16>(), in);
}
// Scales and zero points of moderate size, integral or not: no infinity, no NaN.
template <typename Format>
std::vector<uint32_t> words_and_columns(int count) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> real(-20, 20);
  const auto pair = [&](bool integral) {
    const double low = real(random), high = real(random);
    return encode<Format>(integral ? std::round(low) : low) |
           static_cast<uint32_t>(encode<Format>(integral ? std::round(high) : high)) << 16;
  };
  std::vector<uint32_t> in;
  for (int i = 0; i < count; ++i) {
    in.push_back(random());
    in.push_back(pair(false));
    in.push_back(pair(i % 2 == 0));
  }
  return in;
}

TEST(DeviceColumnPair, EveryConverterAndZeroMode) {
  for (const ZeroMode mode : {ZeroMode::kSub, ZeroMode::kAdd}) {
    const auto halves = words_and_columns<Half>(1 << 18);
    expect_device_equals_twin(Fold<Half, Int4>{mode}, halves);
    expect_device_equals_twin(Fold<Half, Int8>{mode}, halves);
    const auto bfloats = words_and_columns<BFloat16>(1 << 18);
    expect_device_equals_twin(Fold<BFloat16, Int4>{mode}, bfloats);
    expect_device_equals_twin(Fold<BFloat16, Int8>{mode}, bfloats);
  }
}
TEST(DeviceBitOps, PrmtAndLop3) {
  std::mt19937 random(2);
  std::vector<uint32_t> in(3 << 16);
  for (uint32_t& word : in) word = random();
  expect_device_equals_twin(BitOps(), in);
}

}  // namespace
}  // namespace mixed_gemm

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: skipped\n");
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
