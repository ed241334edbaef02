// The numbers of packed codes in vectors of 8 columns (AVX2): a word holds codes of one column,
// and CodesAvx2<Weight>::fp32<slot> makes the fp32 numbers of a slot. A weight type that has none
// is left to the portable kernels. vector_kernels.h explains the unnamed namespace.
#pragma once
#include <immintrin.h>

#include "cpu/vector_kernels.h"

namespace mixed_gemm::cpu {
namespace {

template <typename Weight>
struct CodesAvx2;

template <typename Weight>
struct IntegerCodesAvx2 {
  template <int kSlot>
  [[gnu::always_inline]] static __m256 fp32(__m256i word) {
    using Magic = MantissaField<Weight::kBits, kSlot>;
    const __m256i shifted = _mm256_srli_epi32(word, Magic::kShift);
    const __m256i field = _mm256_and_si256(shifted, _mm256_set1_epi32(Magic::kMask));
    const __m256i in_mantissa = _mm256_or_si256(field, _mm256_set1_epi32(Magic::kBits));
    return _mm256_sub_ps(_mm256_castsi256_ps(in_mantissa), _mm256_set1_ps(Magic::kSubtrahend));
  }
};

template <>
struct CodesAvx2<Int4> : IntegerCodesAvx2<Int4> {};
template <>
struct CodesAvx2<Int8> : IntegerCodesAvx2<Int8> {};

// The numbers of the 3-bit codes from kFirst on. vpermps reads only the low 3 bits of each index.
template <typename Weight, uint32_t kFirst>
[[gnu::always_inline]] inline __m256 eighth(__m256i index) {
  constexpr float kV[8] = {Weight::value(kFirst),     Weight::value(kFirst + 1),
                           Weight::value(kFirst + 2), Weight::value(kFirst + 3),
                           Weight::value(kFirst + 4), Weight::value(kFirst + 5),
                           Weight::value(kFirst + 6), Weight::value(kFirst + 7)};
  const __m256 table = _mm256_setr_ps(kV[0], kV[1], kV[2], kV[3], kV[4], kV[5], kV[6], kV[7]);
  return _mm256_permutevar8x32_ps(table, index);
}

// The bit at kAt of each word as the sign of a number.
template <int kAt>
[[gnu::always_inline]] inline __m256i sign_bits(__m256i word) {
  return _mm256_and_si256(_mm256_slli_epi32(word, 31 - kAt),
                          _mm256_set1_epi32(static_cast<int>(0x80000000)));
}

// A magnitude is looked up, and the sign is moved to the sign of the number.
template <>
struct CodesAvx2<E2M1> {
  template <int kSlot>
  [[gnu::always_inline]] static __m256 fp32(__m256i word) {
    constexpr int kSignAt = Places<E2M1>::sign_at(kSlot),
                  kMagnitudeAt = Places<E2M1>::magnitude_at(kSlot);
    const __m256 magnitude = eighth<E2M1, 0>(_mm256_srli_epi32(word, kMagnitudeAt));
    return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign_bits<kSignAt>(word)));
  }
};

// A magnitude above the subnormal ones is fp32's with another bias. The subnormal m 2^-9 reads so
// as the number (8 + m) 2^-10, of which twice less 2^-6 is it. No subnormal of fp32 is met, so
// whether they count as zero makes no difference.
template <>
struct CodesAvx2<E4M3> {
  template <int kSlot>
  [[gnu::always_inline]] static __m256 fp32(__m256i word) {
    constexpr int kAt = Places<E4M3>::magnitude_at(kSlot), kSignAt = Places<E4M3>::sign_at(kSlot);
    constexpr int kMantissa = 23, kMore = kMantissa - E4M3::kMantissaBits;
    constexpr int kBias = 127 - E4M3::kExponentBias;
    constexpr uint32_t kExponent = ((1u << E4M3::kExponentBits) - 1) << E4M3::kMantissaBits;
    const __m256i moved =
        kMore >= kAt ? _mm256_slli_epi32(word, kMore - kAt) : _mm256_srli_epi32(word, kAt - kMore);
    const __m256i field = _mm256_and_si256(moved, _mm256_set1_epi32(0x7f << kMore));
    const __m256 normal =
        _mm256_castsi256_ps(_mm256_add_epi32(field, _mm256_set1_epi32(kBias << kMantissa)));
    const __m256i exponent =
        _mm256_and_si256(word, _mm256_set1_epi32(static_cast<int>(kExponent << kAt)));
    const __m256 is_small =
        _mm256_castsi256_ps(_mm256_cmpeq_epi32(exponent, _mm256_setzero_si256()));
    const __m256 more = _mm256_sub_ps(normal, _mm256_set1_ps(0x1p-6f));
    const __m256 magnitude = _mm256_add_ps(normal, _mm256_and_ps(more, is_small));
    return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign_bits<kSignAt>(word)));
  }
};

// Both halves of the book are looked up by the low 3 bits of a code, and the fourth one chooses.
template <typename Weight>
struct BookCodesAvx2 {
  template <int kSlot>
  [[gnu::always_inline]] static __m256 fp32(__m256i word) {
    constexpr int kAt = Places<Weight>::at(kSlot);
    const __m256i index = _mm256_srli_epi32(word, kAt);
    const __m256i fourth = _mm256_slli_epi32(word, 31 - (kAt + 3));
    return _mm256_blendv_ps(eighth<Weight, 0>(index), eighth<Weight, 8>(index),
                            _mm256_castsi256_ps(fourth));
  }
};
template <>
struct CodesAvx2<NF4> : BookCodesAvx2<NF4> {};
template <>
struct CodesAvx2<FP4> : BookCodesAvx2<FP4> {};

}  // namespace
}  // namespace mixed_gemm::cpu
