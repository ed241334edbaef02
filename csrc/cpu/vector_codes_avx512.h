// The numbers of packed codes in vectors of 16 columns (F, BW, VL, DQ): a word holds codes of one
// column. CodesAvx512<Weight>::fp32<slot> makes the fp32 numbers of a slot, bf16_pair<slot> the
// bf16 numbers of slot and of the one 16 bits above it, the two members of a pair. A weight type
// that has none is left to the portable kernels. vector_kernels.h explains the unnamed namespace.
#pragma once
#include <immintrin.h>

#include "cpu/vector_kernels.h"
#include "dequant/book.h"

namespace mixed_gemm::cpu {
namespace {

struct TableFp32 {
  alignas(64) float values[32];
};
struct TableBf16 {
  alignas(64) uint16_t values[32];
};

// The numbers of the codes below 16, by the code. Permutations read as many bits of an index as
// their table needs: those of 16 words 4, those of 32 halves 5, of which the top one is another
// code's.
template <typename Weight>
struct Book {
  static constexpr TableFp32 fp32() {
    TableFp32 table{};
    for (uint32_t i = 0; i < 32; ++i) table.values[i] = Weight::value(i % 16);
    return table;
  }
  static constexpr TableBf16 bf16() {
    TableBf16 table{};
    for (uint32_t i = 0; i < 32; ++i)
      table.values[i] = encode_constant<BFloat16>(Weight::value(i % 16));
    return table;
  }
  static constexpr TableFp32 kFp32 = fp32();
  static constexpr TableBf16 kBf16 = bf16();

  [[gnu::always_inline]] static __m512 fp32_at(__m512i index) {
    return _mm512_permutexvar_ps(index, _mm512_load_ps(kFp32.values));
  }
  [[gnu::always_inline]] static __m512i bf16_at(__m512i index) {
    return _mm512_permutexvar_epi16(index, _mm512_load_si512(kBf16.values));
  }
};

template <typename Weight>
struct CodesAvx512;

template <>
struct CodesAvx512<Int8> {
  template <int kSlot>
  [[gnu::always_inline]] static __m512 fp32(__m512i word) {
    using Magic = MantissaField<Int8::kBits, kSlot>;
    const __m512i shifted = _mm512_srli_epi32(word, Magic::kShift);
    const __m512i in_mantissa =
        _mm512_ternarylogic_epi32(shifted, _mm512_set1_epi32(Magic::kMask),
                                  _mm512_set1_epi32(Magic::kBits), 0xea);  // (a & b) | c
    return _mm512_sub_ps(_mm512_castsi512_ps(in_mantissa), _mm512_set1_ps(Magic::kSubtrahend));
  }
  // Through fp32, whose low half is zero for an 8-bit integer: the high half is its bf16.
  template <int kSlot>
  [[gnu::always_inline]] static __m512i bf16_pair(__m512i word) {
    const __m512i first = _mm512_castps_si512(fp32<kSlot>(word));
    const __m512i second = _mm512_castps_si512(fp32<kSlot + 16 / Int8::kBits>(word));
    return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
  }
};

template <>
struct CodesAvx512<Int4> {
  template <int kSlot>
  [[gnu::always_inline]] static __m512 fp32(__m512i word) {
    return Book<Int4>::fp32_at(_mm512_srli_epi32(word, 4 * kSlot));
  }
  template <int kSlot>
  [[gnu::always_inline]] static __m512i bf16_pair(__m512i word) {
    return Book<Int4>::bf16_at(_mm512_srli_epi32(word, 4 * kSlot));
  }
};

// Code books. The members of a pair are neighbours in a byte, so the second is moved up.
template <typename Weight>
struct BookCodesAvx512 {
  template <int kSlot>
  [[gnu::always_inline]] static __m512 fp32(__m512i word) {
    return Book<Weight>::fp32_at(_mm512_srli_epi32(word, Places<Weight>::at(kSlot)));
  }
  template <int kSlot>
  [[gnu::always_inline]] static __m512i bf16_pair(__m512i word) {
    constexpr int kFirst = Places<Weight>::at(kSlot), kUp = 16 - Places<Weight>::at(kSlot + 4);
    constexpr __mmask32 kUpper = 0xaaaaaaaa;
    const __m512i first = _mm512_srli_epi32(word, kFirst);
    const __m512i second = kUp >= 0 ? _mm512_slli_epi32(word, kUp) : _mm512_srli_epi32(word, -kUp);
    return Book<Weight>::bf16_at(_mm512_mask_mov_epi16(first, kUpper, second));
  }
};
template <>
struct CodesAvx512<NF4> : BookCodesAvx512<NF4> {};
template <>
struct CodesAvx512<FP4> : BookCodesAvx512<FP4> {};

// The 32 numbers of a code of E2M1 in 5 bits: a magnitude and above it the sign, with a bit between
// other fields on top; and, where kSignFirst, the sign and that bit below the magnitude.
template <bool kSignFirst>
struct E2M1Window {
  static constexpr float at(uint32_t bits) {
    return E2M1::value(kSignFirst ? (bits & 1) << 3 | bits >> 2 : bits & 15);
  }
  static constexpr TableFp32 fp32() {
    TableFp32 table{};
    for (uint32_t i = 0; i < 32; ++i) table.values[i] = at(i);
    return table;
  }
  static constexpr TableBf16 bf16() {
    TableBf16 table{};
    for (uint32_t i = 0; i < 32; ++i) table.values[i] = encode_constant<BFloat16>(at(i));
    return table;
  }
  static constexpr TableFp32 kFp32 = fp32();
  static constexpr TableBf16 kBf16 = bf16();
};

template <>
struct CodesAvx512<E2M1> {
  // Where the code of pair kPair lies once its sign was moved beside its magnitude: in 5 bits from
  // kFirst on, the sign at kSign. One move serves both halves of a word, and pairs 0 and 2
  // together.
  template <int kPair>
  struct Window : E2M1Window<kPair == 2> {
    static constexpr int kMagnitude = Places<E2M1>::magnitude_at(kPair);
    static constexpr int kFirst = kPair == 2 ? kMagnitude - 2 : kMagnitude;
    static constexpr int kSign = kPair == 2 ? kFirst : kMagnitude + 3;
    static constexpr int kShift = Places<E2M1>::sign_at(kPair) - kSign;
    static constexpr int kMask = 1 << kSign | 1 << (kSign + 16);
  };
  static_assert(Window<0>::kShift == Window<2>::kShift, "moved together");
  static_assert(Window<0>::kSign + 1 == Window<2>::kSign, "outside of both magnitudes");

  template <int kSlot>
  [[gnu::always_inline]] static __m512 fp32(__m512i word) {
    // The permutation of two registers reads the low 5 bits of each index.
    using Of = Window<kSlot % 4>;
    const __m512i index =
        _mm512_srli_epi32(beside_signs<kSlot % 4>(word), Of::kFirst + kSlot / 4 * 16);
    return _mm512_permutex2var_ps(_mm512_load_ps(Of::kFp32.values), index,
                                  _mm512_load_ps(Of::kFp32.values + 16));
  }
  template <int kSlot>
  [[gnu::always_inline]] static __m512i bf16_pair(__m512i word) {
    using Of = Window<kSlot>;
    return _mm512_permutexvar_epi16(_mm512_srli_epi32(beside_signs<kSlot>(word), Of::kFirst),
                                    _mm512_load_si512(Of::kBf16.values));
  }

 private:
  // A word with the sign of pair kPair where Window has it; the magnitude that lay there is lost.
  template <int kPair>
  [[gnu::always_inline]] static __m512i beside_signs(__m512i word) {
    constexpr int kMask =
        kPair % 2 == 0 ? Window<0>::kMask | Window<2>::kMask : Window<kPair>::kMask;
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(kMask),
                                     _mm512_srli_epi32(word, Window<kPair>::kShift), word,
                                     0xca);  // a ? b : c
  }
};

// A magnitude above the subnormal ones is bf16's with another bias; these are looked up. Pairs are
// made first, and each serves two slots of fp32.
template <>
struct CodesAvx512<E4M3> {
  template <int kSlot>
  [[gnu::always_inline]] static __m512 fp32(__m512i word) {
    const __m512i pair = bf16_pair<kSlot % 2>(word);
    return _mm512_castsi512_ps(
        kSlot < 2 ? _mm512_slli_epi32(pair, 16)
                  : _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  template <int kSlot>
  [[gnu::always_inline]] static __m512i bf16_pair(__m512i word) {
    constexpr int kAt = Places<E4M3>::magnitude_at(kSlot), kSign = Places<E4M3>::sign_at(kSlot);
    constexpr int kMantissa = 7, kMore = kMantissa - E4M3::kMantissaBits;
    constexpr int kBias = 127 - E4M3::kExponentBias;
    constexpr int kExponent = ((1 << E4M3::kExponentBits) - 1) << E4M3::kMantissaBits;
    const __m512i moved =
        kMore >= kAt ? _mm512_slli_epi16(word, kMore - kAt) : _mm512_srli_epi16(word, kAt - kMore);
    const __m512i field = _mm512_and_si512(moved, _mm512_set1_epi16(0x7f << kMore));
    const __m512i normal = _mm512_add_epi16(field, _mm512_set1_epi16(kBias << kMantissa));
    const __mmask32 is_small =
        _mm512_testn_epi16_mask(word, _mm512_set1_epi16(static_cast<int16_t>(kExponent << kAt)));
    // vpermw reads 5 bits of an index, of which two are of the exponent: 0 where it counts.
    const __m512i magnitude =
        _mm512_mask_permutexvar_epi16(normal, is_small, _mm512_srli_epi16(word, kAt),
                                      _mm512_load_si512(Book<E4M3>::kBf16.values));
    return _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(word, 15 - kSign),
                                     _mm512_set1_epi16(static_cast<int16_t>(0x8000)),
                                     0xf8);  // a | (b & c)
  }
};

}  // namespace
}  // namespace mixed_gemm::cpu
