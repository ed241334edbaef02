// int8 products in int16 pairs (VPMADDWD): |a0 b0 + a1 b1| <= 2^15, exact in int32. See
// vector_integer.h.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "cpu/integer_epilogue.h"
#include "cpu/vector_integer.h"

namespace mixed_gemm::cpu {
namespace {

struct IntegerAvx2 {
  using Words = __m256i;
  static constexpr int kStep = 16;
  static constexpr int kABytes = 2;

  [[gnu::always_inline]] static Words zero() { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static Words load_b(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static Words load_b(const int8_t* p, int count) {
    alignas(16) int8_t bytes[kStep] = {};
    std::memcpy(bytes, p, static_cast<size_t>(count));
    return load_b(bytes);
  }
  [[gnu::always_inline]] static Words load_a(const void* p) {
    return _mm256_loadu_si256(static_cast<const Words*>(p));
  }
  [[gnu::always_inline]] static Words dot(Words sum, Words b, Words a) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(b, a));
  }
  [[gnu::always_inline]] static void prepare(const int8_t* a, int count, void* to) {
    _mm256_storeu_si256(static_cast<Words*>(to), count < kStep ? load_b(a, count) : load_b(a));
  }
  [[gnu::always_inline]] static void add_across(Words a, Words b, Words c, Words d, int32_t* to) {
    const Words quads = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    const __m128i total =
        _mm_add_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(to), total);
  }
};

IntegerKernels::Range range_avx2(const float* row, int64_t k) {
  const float first = k > 0 ? row[0] : 0;
  __m256 low = _mm256_set1_ps(first), high = low, nan = _mm256_setzero_ps();
  IntegerKernels::Range result = {first, first, false};
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    const __m256 x = _mm256_loadu_ps(row + i);
    low = _mm256_min_ps(x, low);
    high = _mm256_max_ps(x, high);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  alignas(32) float lows[8], highs[8];
  _mm256_store_ps(lows, low);
  _mm256_store_ps(highs, high);
  for (int j = 0; j < 8; ++j) {
    result.low = lows[j] < result.low ? lows[j] : result.low;
    result.high = highs[j] > result.high ? highs[j] : result.high;
  }
  result.nan = _mm256_movemask_ps(nan) != 0;
  for (; i < k; ++i) {
    result.low = row[i] < result.low ? row[i] : result.low;
    result.high = row[i] > result.high ? row[i] : result.high;
    result.nan |= row[i] != row[i];
  }
  return result;
}

void round_avx2(const float* row, int64_t k, float inverse, int32_t azp, int8_t* q) {
  const __m256 least = _mm256_set1_ps(static_cast<float>(-128 - azp));
  const __m256 most = _mm256_set1_ps(static_cast<float>(127 - azp));
  const auto eight = [&](const float* from) {
    const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(from), _mm256_set1_ps(inverse));
    const __m256 number = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
    const __m256 inside = _mm256_min_ps(_mm256_max_ps(number, least), most);
    const __m256i whole = _mm256_add_epi32(_mm256_cvtps_epi32(inside), _mm256_set1_epi32(azp));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    return _mm_packs_epi16(words, words);
  };
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) _mm_storel_epi64(reinterpret_cast<__m128i*>(q + i), eight(row + i));
  if (i == k) return;
  alignas(32) float last[8] = {};
  alignas(16) int8_t bytes[16];
  std::memcpy(last, row + i, static_cast<size_t>(k - i) * sizeof(float));
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), eight(last));
  std::memcpy(q + i, bytes, static_cast<size_t>(k - i));
}

// 16 registers hold 8 sums and 2 columns of B.
constexpr IntegerKernels kIntegerAvx2 = {
    IntegerAvx2::kStep,
    IntegerAvx2::kABytes,
    4,
    false,
    4,
    prepare_row<IntegerAvx2>,
    {shape<IntegerAvx2, 1, 4>(), shape<IntegerAvx2, 2, 4>(), shape<IntegerAvx2, 4, 2>(), {}},
    range_avx2,
    round_avx2,
    real_sums,
    scale_row};

}  // namespace
}  // namespace mixed_gemm::cpu
