// int8 products on 64-byte vectors: in int16 pairs (VPMADDWD, plain AVX-512), or four at a time
// (VPDPBUSD, a type of kernels_avx512_vnni.cpp). See vector_integer.h.
#pragma once
#include <immintrin.h>

#include "cpu/integer_epilogue.h"
#include "cpu/vector_integer.h"

namespace mixed_gemm::cpu {
namespace {

// The part that both kinds share.
struct IntegerLanes512 {
  using Words = __m512i;
  [[gnu::always_inline]] static Words zero() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static Words load_a(const void* p) { return _mm512_loadu_si512(p); }

  // Two unpack stages leave the sums a, b, c, d side by side in each 128-bit lane.
  [[gnu::always_inline]] static void add_across(Words a, Words b, Words c, Words d, int32_t* to) {
    const Words ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const Words cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const Words quads =
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(quads), _mm512_extracti64x4_epi64(quads, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(to),
                    _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
  }
};

struct IntegerAvx512 : IntegerLanes512 {
  static constexpr int kStep = 32;
  static constexpr int kABytes = 2;

  [[gnu::always_inline]] static Words load_b(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static Words load_b(const int8_t* p, int count) {
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8((1u << count) - 1, p));
  }
  [[gnu::always_inline]] static Words dot(Words sum, Words b, Words a) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(b, a));
  }
  [[gnu::always_inline]] static void prepare(const int8_t* a, int count, void* to) {
    _mm512_storeu_si512(to, count < kStep ? load_b(a, count) : load_b(a));
  }
};

[[gnu::always_inline]] inline __mmask16 first_lanes(int64_t count) {
  return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1);
}

IntegerKernels::Range range_avx512(const float* row, int64_t k) {
  const __m512 first = _mm512_set1_ps(k > 0 ? row[0] : 0);
  __m512 low = first, high = first;
  __mmask16 nan = 0;
  for (int64_t i = 0; i < k; i += 16) {
    const __m512 x = _mm512_mask_loadu_ps(first, first_lanes(k - i), row + i);
    low = _mm512_min_ps(x, low);
    high = _mm512_max_ps(x, high);
    nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  }
  return {_mm512_reduce_min_ps(low), _mm512_reduce_max_ps(high), nan != 0};
}

void round_avx512(const float* row, int64_t k, float inverse, int32_t azp, int8_t* q) {
  const __m512 least = _mm512_set1_ps(static_cast<float>(-128 - azp));
  const __m512 most = _mm512_set1_ps(static_cast<float>(127 - azp));
  for (int64_t i = 0; i < k; i += 16) {
    const __mmask16 lanes = first_lanes(k - i);
    const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, row + i), _mm512_set1_ps(inverse));
    const __m512 number = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    const __m512 inside = _mm512_min_ps(_mm512_max_ps(number, least), most);
    const __m512i whole = _mm512_add_epi32(_mm512_cvtps_epi32(inside), _mm512_set1_epi32(azp));
    _mm512_mask_cvtsepi32_storeu_epi8(q + i, lanes, whole);
  }
}

// 32 registers hold 24 sums and up to 6 columns of B. VPMADDWD and VPDPBUSD take the same shapes.
template <typename V>
constexpr IntegerKernels make_integer_avx512(bool b_shifted) {
  return {V::kStep,
          V::kABytes,
          8,
          b_shifted,
          8,
          prepare_row<V>,
          {shape<V, 1, 8>(), shape<V, 2, 8>(), shape<V, 4, 6>(), shape<V, 8, 3>()},
          range_avx512,
          round_avx512,
          real_sums,
          scale_row};
}

constexpr IntegerKernels kIntegerAvx512 = make_integer_avx512<IntegerAvx512>(false);

}  // namespace
}  // namespace mixed_gemm::cpu
