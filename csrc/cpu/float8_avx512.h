// float8 e4m3 on 64-byte vectors, by fp16. See vector_float8.h.
//
// A code s eeee mmm is moved to the upper byte of a word and right by one; less the copies of the
// sign that makes the fp16 number s 0eeee mmm0000000: 2^-8 times the value, subnormals included.
// F16C converts it to fp32 exactly. The even codes of a vector are the low bytes of its words and
// the odd ones the high bytes, so that nothing has to be unpacked.
#pragma once
#include <immintrin.h>

#include "cpu/vector_float8.h"

namespace mixed_gemm::cpu {
namespace {

struct Float8Avx512 {
  using Floats = __m512;
  using Operand = __m512;
  static constexpr int kStep = 64, kParts = 4, kABytes = 4;

  // The largest code without its sign: 0x7f, the NaN, would be 480 * 2^-8.
  struct Seen {
    __m512i largest = _mm512_setzero_si512();
    [[gnu::always_inline]] bool nan() const {
      return _mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(0x7f)) != 0;
    }
  };

  [[gnu::always_inline]] static Floats zero() { return _mm512_setzero_ps(); }

  [[gnu::always_inline]] static void decode(const uint8_t* p, Operand* parts, Seen& seen) {
    split(_mm512_loadu_si512(p), parts, seen);
  }
  [[gnu::always_inline]] static void decode(const uint8_t* p, int count, Operand* parts,
                                            Seen& seen) {
    split(_mm512_maskz_loadu_epi8(~uint64_t{0} >> (64 - count), p), parts, seen);
  }
  // 2^16 for the 2^-8 of either operand.
  [[gnu::always_inline]] static void store_a(const Operand* parts, void* to, const Seen& seen,
                                             int /*codes*/) {
    // A NaN spoils all of its row, whichever element of the step it is stored to.
    const float factor = seen.nan() ? __builtin_nanf("") : 65536.f;
    for (int i = 0; i < kParts; ++i) {
      _mm512_storeu_ps(static_cast<float*>(to) + 16 * i,
                       _mm512_mul_ps(parts[i], _mm512_set1_ps(factor)));
    }
  }
  [[gnu::always_inline]] static Floats dot(Operand b, const void* a, Floats sum) {
    return _mm512_fmadd_ps(b, _mm512_loadu_ps(a), sum);
  }
  [[gnu::always_inline]] static Floats scaled_sum(Floats sum, float scale, Floats before) {
    return _mm512_fmadd_ps(sum, _mm512_set1_ps(scale), before);
  }
  [[gnu::always_inline]] static Floats add_first(float x, Floats before) {
    return _mm512_add_ps(before, _mm512_maskz_mov_ps(1, _mm512_set1_ps(x)));
  }
  // Two unpack stages leave the sums a, b, c, d side by side in each 128-bit lane.
  [[gnu::always_inline]] static void add_across(Floats a, Floats b, Floats c, Floats d, float* to) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512 quads = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    const __m256 half =
        _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
    _mm_store_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }

 private:
  [[gnu::always_inline]] static void split(__m512i codes, Operand* parts, Seen& seen) {
    seen.largest = _mm512_max_epu8(seen.largest, _mm512_and_si512(codes, _mm512_set1_epi8(0x7f)));
    const __m512i even = as_halves(_mm512_slli_epi16(codes, 8)), odd = as_halves(codes);
    parts[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(even));
    parts[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1));
    parts[2] = _mm512_cvtph_ps(_mm512_castsi512_si256(odd));
    parts[3] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1));
  }
  [[gnu::always_inline]] static __m512i as_halves(__m512i high_bytes) {
    return _mm512_and_si512(_mm512_srai_epi16(high_bytes, 1),
                            _mm512_set1_epi16(static_cast<int16_t>(0xbf80)));
  }
};

[[gnu::always_inline]] inline __mmask16 lanes_of(int64_t count) {
  return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1);
}

// The largest magnitude, as an integer maximum of bits without sign: NaN is above infinity.
float largest_avx512(const float* x, int64_t count) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes_of(count - i), x + i));
    largest = _mm512_max_epi32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  const int bits = _mm512_reduce_max_epi32(largest);
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

// Rounds as encode_e4m3 in core/float8.h does: to multiples of 2^-9 below 2^-6, by adding 2^14,
// whose last bit weighs as much; else to the upper bits, ties to even.
void round_float8_avx512(const float* x, int64_t count, float scale, uint8_t* q) {
  const __m512i exponents = _mm512_set1_epi32(120 << 3);
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = lanes_of(count - i);
    const __m512 y = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, x + i), _mm512_set1_ps(scale));
    const __m512i bits = _mm512_castps_si512(y);
    const __mmask16 nan = _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q);
    const __m512 magnitude =
        _mm512_min_ps(_mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff))),
                      _mm512_set1_ps(448.f));
    const __m512i word = _mm512_castps_si512(magnitude);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(word, 20), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(word, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff)));
    const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(rounded, 20), exponents);
    const __m512i shifted = _mm512_castps_si512(_mm512_add_ps(magnitude, _mm512_set1_ps(0x1p14f)));
    const __mmask16 small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);
    __m512i code = _mm512_mask_and_epi32(normal, small, shifted, _mm512_set1_epi32(0xff));
    code = _mm512_mask_mov_epi32(code, nan, _mm512_set1_epi32(0x7f));
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    _mm512_mask_cvtepi32_storeu_epi8(q + i, lanes, _mm512_or_si512(code, sign));
  }
}

// 32 registers hold up to 16 sums, the 4 parts of a column and the constants of decoding.
constexpr Float8Kernels kFloat8Avx512 = {
    Float8Avx512::kStep,
    Float8Avx512::kABytes,
    8,
    prepare_float8<Float8Avx512>,
    {float8_shape<Float8Avx512, 1, 8>(), float8_shape<Float8Avx512, 2, 8>(),
     float8_shape<Float8Avx512, 4, 4>(), float8_shape<Float8Avx512, 8, 2>()},
    largest_avx512,
    round_float8_avx512};

}  // namespace
}  // namespace mixed_gemm::cpu
