// float8 e4m3 on 32-byte vectors, by fp16 as float8_avx512.h has it. See vector_float8.h.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "cpu/vector_float8.h"

namespace mixed_gemm::cpu {
namespace {

struct Float8Avx2 {
  using Floats = __m256;
  using Operand = __m256;
  static constexpr int kStep = 32, kParts = 4, kABytes = 4;

  // The largest code without its sign: 0x7f, the NaN, would be 480 * 2^-8.
  struct Seen {
    __m256i largest = _mm256_setzero_si256();
    [[gnu::always_inline]] bool nan() const {
      return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, _mm256_set1_epi8(0x7f))) != 0;
    }
  };

  [[gnu::always_inline]] static Floats zero() { return _mm256_setzero_ps(); }

  [[gnu::always_inline]] static void decode(const uint8_t* p, Operand* parts, Seen& seen) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    seen.largest = _mm256_max_epu8(seen.largest, _mm256_and_si256(codes, _mm256_set1_epi8(0x7f)));
    const __m256i even = as_halves(_mm256_slli_epi16(codes, 8)), odd = as_halves(codes);
    parts[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(even));
    parts[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1));
    parts[2] = _mm256_cvtph_ps(_mm256_castsi256_si128(odd));
    parts[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1));
  }
  [[gnu::always_inline]] static void decode(const uint8_t* p, int count, Operand* parts,
                                            Seen& seen) {
    alignas(32) uint8_t bytes[kStep] = {};
    std::memcpy(bytes, p, static_cast<size_t>(count));
    decode(bytes, parts, seen);
  }
  // 2^16 for the 2^-8 of either operand.
  [[gnu::always_inline]] static void store_a(const Operand* parts, void* to, const Seen& seen,
                                             int /*codes*/) {
    // A NaN spoils all of its row, whichever element of the step it is stored to.
    const float factor = seen.nan() ? __builtin_nanf("") : 65536.f;
    for (int i = 0; i < kParts; ++i) {
      _mm256_storeu_ps(static_cast<float*>(to) + 8 * i,
                       _mm256_mul_ps(parts[i], _mm256_set1_ps(factor)));
    }
  }
  [[gnu::always_inline]] static Floats dot(Operand b, const void* a, Floats sum) {
    return _mm256_fmadd_ps(b, _mm256_loadu_ps(static_cast<const float*>(a)), sum);
  }
  [[gnu::always_inline]] static Floats scaled_sum(Floats sum, float scale, Floats before) {
    return _mm256_fmadd_ps(sum, _mm256_set1_ps(scale), before);
  }
  [[gnu::always_inline]] static Floats add_first(float x, Floats before) {
    return _mm256_add_ps(before, _mm256_setr_ps(x, 0, 0, 0, 0, 0, 0, 0));
  }
  [[gnu::always_inline]] static void add_across(Floats a, Floats b, Floats c, Floats d, float* to) {
    const __m256 quads = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_store_ps(to, _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1)));
  }

 private:
  [[gnu::always_inline]] static __m256i as_halves(__m256i high_bytes) {
    return _mm256_and_si256(_mm256_srai_epi16(high_bytes, 1),
                            _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  }
};

// The largest magnitude, as an integer maximum of bits without sign: NaN is above infinity.
float largest_avx2(const float* x, int64_t count) {
  __m256i largest = _mm256_setzero_si256();
  const auto add = [&](const float* from) __attribute__((always_inline)) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(from));
    largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  };
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) add(x + i);
  if (i < count) {
    alignas(32) float last[8] = {};
    std::memcpy(last, x + i, static_cast<size_t>(count - i) * sizeof(float));
    add(last);
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  int32_t most = 0;
  for (const int32_t lane : lanes) most = lane > most ? lane : most;
  float result;
  std::memcpy(&result, &most, sizeof(result));
  return result;
}

// Rounds as round_float8_avx512 does.
[[gnu::always_inline]] inline __m256i round_eight(const float* x, float scale) {
  const __m256 y = _mm256_div_ps(_mm256_loadu_ps(x), _mm256_set1_ps(scale));
  const __m256i bits = _mm256_castps_si256(y);
  const __m256 magnitude =
      _mm256_min_ps(_mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff))),
                    _mm256_set1_ps(448.f));
  const __m256i word = _mm256_castps_si256(magnitude);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, 20), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(word, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
  const __m256i normal =
      _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3));
  const __m256i shifted =
      _mm256_and_si256(_mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_set1_ps(0x1p14f))),
                       _mm256_set1_epi32(0xff));
  const __m256 small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
  const __m256 finite =
      _mm256_blendv_ps(_mm256_castsi256_ps(normal), _mm256_castsi256_ps(shifted), small);
  const __m256 code = _mm256_blendv_ps(finite, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f)),
                                       _mm256_cmp_ps(y, y, _CMP_UNORD_Q));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  return _mm256_or_si256(_mm256_castps_si256(code), sign);
}

void round_float8_avx2(const float* x, int64_t count, float scale, uint8_t* q) {
  for (int64_t i = 0; i < count; i += 8) {
    const auto left = static_cast<size_t>(count - i < 8 ? count - i : 8);
    alignas(32) float last[8] = {};
    if (left < 8) std::memcpy(last, x + i, left * sizeof(float));
    const __m256i codes = round_eight(left < 8 ? last : x + i, scale);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    alignas(16) uint8_t bytes[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm_packus_epi16(words, words));
    std::memcpy(q + i, bytes, left);
  }
}

// 16 registers hold up to 8 sums, the 4 parts of a column and the constants of decoding.
constexpr Float8Kernels kFloat8Avx2 = {Float8Avx2::kStep,
                                       Float8Avx2::kABytes,
                                       4,
                                       prepare_float8<Float8Avx2>,
                                       {float8_shape<Float8Avx2, 1, 4>(),
                                        float8_shape<Float8Avx2, 2, 4>(),
                                        float8_shape<Float8Avx2, 4, 2>(),
                                        {}},
                                       largest_avx2,
                                       round_float8_avx2};

}  // namespace
}  // namespace mixed_gemm::cpu
