// Vectors of 16 columns (F, BW, VL, DQ). See vector_kernels.h for the unnamed namespace.
#pragma once
#include <immintrin.h>

#include "cpu/vector_codes_avx512.h"

namespace mixed_gemm::cpu {
namespace {

struct Avx512 {
  using Floats = __m512;
  using Words = __m512i;
  using Operand = Floats;
  static constexpr int kDepth = 1;
  static constexpr int kLanes = 16;
  static constexpr int kDenseRows = 8;  // 16 accumulators of 32 registers
  static constexpr int kChains = 8;     // an fma takes 4 cycles
  static constexpr int kBlockRows = 16;
  // A million weights on a Cascade Lake, int4 / int8: fused 25 / 38 us a row in blocks of 8 rows,
  // dense 200 / 290 us and 17 us a row (N = 1024, K = 4096, one thread): level at 20 and 12 rows.
  // Blocks of 16 decode half as often, which was measured on a Zen 5 (kernels_avx512_bf16.cpp).
  static constexpr int64_t kMaxFusedRows[kNumWeights] = {40, 24, 40, 24, 40, 40};

  [[gnu::always_inline]] static Floats zero() { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static Floats load(const float* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
  [[gnu::always_inline]] static Floats broadcast(float x) { return _mm512_set1_ps(x); }
  [[gnu::always_inline]] static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  [[gnu::always_inline]] static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static Floats fma(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static Floats fnma(Floats a, Floats b, Floats c) {
    return _mm512_fnmadd_ps(a, b, c);
  }

  [[gnu::always_inline]] static Operand load_operand(const uint32_t* p) {
    return _mm512_loadu_ps(p);
  }
  [[gnu::always_inline]] static Operand broadcast_operand(const uint32_t* p) {
    float x;
    __builtin_memcpy(&x, p, sizeof(x));
    return _mm512_set1_ps(x);
  }
  [[gnu::always_inline]] static Floats dot(Operand w, Operand a, Floats sum) {
    return _mm512_fmadd_ps(w, a, sum);
  }

  [[gnu::always_inline]] static Floats dot_word(Operand w, const uint32_t* a, Floats sum) {
    return dot(w, broadcast_operand(a), sum);
  }

  template <typename Weight>
  static constexpr bool kDecodes = kIsDefined<CodesAvx512<Weight>>;

  // words[j] = word j of the 16 columns.
  template <typename Weight>
  [[gnu::always_inline]] static void load_words(const uint8_t* tile, int64_t group_stride,
                                                Words* words) {
    if constexpr (Weight::kBits == 4) {
      load_4_bits(tile, group_stride, words);
    } else {
      load_8_bits(tile, group_stride, words);
    }
  }

  template <typename Weight, int kSlot>
  [[gnu::always_inline]] static Floats decode(Words word) {
    return CodesAvx512<Weight>::template fp32<kSlot>(word);
  }

  template <ElementType kElement>
  [[gnu::always_inline]] static Floats widen(const void* p) {
    if constexpr (kElement == ElementType::kFloat32) {
      return _mm512_loadu_ps(p);
    } else {
      const __m256i half = _mm256_loadu_si256(static_cast<const __m256i*>(p));
      if constexpr (kElement == ElementType::kFloat16) return _mm512_cvtph_ps(half);
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
  }

  template <ElementType kElement>
  [[gnu::always_inline]] static void narrow(Floats x, void* p) {
    if constexpr (kElement == ElementType::kFloat32) {
      _mm512_storeu_ps(p, x);
    } else if constexpr (kElement == ElementType::kFloat16) {
      _mm256_storeu_si256(static_cast<__m256i*>(p),
                          _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else {
      // Nearest even: add 0x7fff plus the bit that becomes the last; a NaN keeps its quiet bit.
      const Words bits = _mm512_castps_si512(x);
      const Words odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      const Words rounded =
          _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
      const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
      const Words kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
      _mm256_storeu_si256(static_cast<__m256i*>(p),
                          _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
    }
  }

 private:
  // Register i holds columns 2i and 2i + 1, 8 words each. Two unpack stages trade word bits 1 and 0
  // for column bits 1 and 2; the last stage, a two-source permute, trades word bit 2 for column bit
  // 3 and puts the lanes in column order.
  [[gnu::always_inline]] static void load_4_bits(const uint8_t* tile, int64_t group_stride,
                                                 Words* words) {
    Words in[8], pairs[8], quads[8];
    for (int i = 0; i < 8; ++i) {
      in[i] = _mm512_loadu_si512(tile + i / 2 * group_stride + i % 2 * 64);
    }
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm512_unpacklo_epi32(in[i], in[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_epi32(in[i], in[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm512_unpacklo_epi64(pairs[i + j], pairs[i + 2 + j]);
        quads[i + 2 * j + 1] = _mm512_unpackhi_epi64(pairs[i + j], pairs[i + 2 + j]);
      }
    }
    // quads[4 c3 + j]: lane 8 c0 + 4 (word / 4) + 2 c2 + c1 holds word % 4 = j.
    const Words low = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    const Words high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
    for (int j = 0; j < 4; ++j) {
      words[j] = _mm512_permutex2var_epi32(quads[j], low, quads[4 + j]);
      words[4 + j] = _mm512_permutex2var_epi32(quads[j], high, quads[4 + j]);
    }
  }

  // A 16 x 16 transpose: a register is one column.
  [[gnu::always_inline]] static void load_8_bits(const uint8_t* tile, int64_t group_stride,
                                                 Words* words) {
    Words in[16], pairs[16], quads[16], eights[16];
    for (int i = 0; i < 16; ++i) {
      in[i] = _mm512_loadu_si512(tile + i / 2 * group_stride + i % 2 * 64);
    }
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_epi32(in[i], in[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_epi32(in[i], in[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm512_unpacklo_epi64(pairs[i + j], pairs[i + 2 + j]);
        quads[i + 2 * j + 1] = _mm512_unpackhi_epi64(pairs[i + j], pairs[i + 2 + j]);
      }
    }
    // quads[4 c + j]: 128-bit lane b holds word 4 b + j of columns 4 c .. 4 c + 3.
    for (int j = 0; j < 4; ++j) {
      for (int c = 0; c < 2; ++c) {
        eights[8 * c + j] = _mm512_shuffle_i32x4(quads[8 * c + j], quads[8 * c + 4 + j], 0x88);
        eights[8 * c + 4 + j] = _mm512_shuffle_i32x4(quads[8 * c + j], quads[8 * c + 4 + j], 0xdd);
      }
    }
    for (int j = 0; j < 4; ++j) {
      const Words even = eights[j], even_high = eights[8 + j];     // words j, 8 + j
      const Words odd = eights[4 + j], odd_high = eights[12 + j];  // words 4 + j, 12 + j
      words[j] = _mm512_shuffle_i32x4(even, even_high, 0x88);
      words[8 + j] = _mm512_shuffle_i32x4(even, even_high, 0xdd);
      words[4 + j] = _mm512_shuffle_i32x4(odd, odd_high, 0x88);
      words[12 + j] = _mm512_shuffle_i32x4(odd, odd_high, 0xdd);
    }
  }
};

}  // namespace
}  // namespace mixed_gemm::cpu
