// Vectors of 8 columns (AVX2, FMA, F16C). See vector_kernels.h for the unnamed namespace.
#pragma once
#include <immintrin.h>

#include "cpu/vector_codes_avx2.h"

namespace mixed_gemm::cpu {
namespace {

struct Avx2 {
  using Floats = __m256;
  using Words = __m256i;
  using Operand = Floats;
  static constexpr int kDepth = 1;
  static constexpr int kLanes = 8;
  static constexpr int kDenseRows = 4;  // 8 accumulators of 16 registers
  static constexpr int kChains = 8;     // an fma takes 4 cycles
  static constexpr int kBlockRows = 8;
  // 4096 x 4096 on a Cascade Lake, int4: fused 0.8 ms a row, dense 3 ms and 0.52 a row.
  static constexpr int64_t kMaxFusedRows[kNumWeights] = {8, 8, 8, 8, 8, 8};

  [[gnu::always_inline]] static Floats zero() { return _mm256_setzero_ps(); }
  [[gnu::always_inline]] static Floats load(const float* p) { return _mm256_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, Floats x) { _mm256_storeu_ps(p, x); }
  [[gnu::always_inline]] static Floats broadcast(float x) { return _mm256_set1_ps(x); }
  [[gnu::always_inline]] static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  [[gnu::always_inline]] static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  [[gnu::always_inline]] static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static Floats fma(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static Floats fnma(Floats a, Floats b, Floats c) {
    return _mm256_fnmadd_ps(a, b, c);
  }

  [[gnu::always_inline]] static Operand load_operand(const uint32_t* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
  [[gnu::always_inline]] static Operand broadcast_operand(const uint32_t* p) {
    float x;
    __builtin_memcpy(&x, p, sizeof(x));
    return _mm256_set1_ps(x);
  }
  [[gnu::always_inline]] static Floats dot(Operand w, Operand a, Floats sum) {
    return _mm256_fmadd_ps(w, a, sum);
  }

  [[gnu::always_inline]] static Floats dot_word(Operand w, const uint32_t* a, Floats sum) {
    return dot(w, broadcast_operand(a), sum);
  }

  template <typename Weight>
  static constexpr bool kDecodes = kIsDefined<CodesAvx2<Weight>>;

  // words[j] = word j of the 8 columns.
  template <typename Weight>
  [[gnu::always_inline]] static void load_words(const uint8_t* tile, int64_t group_stride,
                                                Words* words) {
    constexpr int kColumnBytes = kTileK * Weight::kBits / 8, kColumns = kTileBytes / kColumnBytes;
    for (int part = 0; part < kColumnBytes / 32; ++part) {
      Words in[8];
      for (int c = 0; c < 8; ++c) {
        const uint8_t* column =
            tile + c / kColumns * group_stride + c % kColumns * kColumnBytes + 32 * part;
        in[c] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(column));
      }
      transpose(in, words + 8 * part);
    }
  }

  template <typename Weight, int kSlot>
  [[gnu::always_inline]] static Floats decode(Words word) {
    return CodesAvx2<Weight>::template fp32<kSlot>(word);
  }

  template <ElementType kElement>
  [[gnu::always_inline]] static Floats widen(const void* p) {
    if constexpr (kElement == ElementType::kFloat32) {
      return _mm256_loadu_ps(static_cast<const float*>(p));
    } else {
      const __m128i half = _mm_loadu_si128(static_cast<const __m128i*>(p));
      if constexpr (kElement == ElementType::kFloat16) return _mm256_cvtph_ps(half);
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    }
  }

  template <ElementType kElement>
  [[gnu::always_inline]] static void narrow(Floats x, void* p) {
    if constexpr (kElement == ElementType::kFloat32) {
      _mm256_storeu_ps(static_cast<float*>(p), x);
    } else if constexpr (kElement == ElementType::kFloat16) {
      _mm_storeu_si128(static_cast<__m128i*>(p),
                       _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else {
      // Nearest even: add 0x7fff plus the bit that becomes the last; a NaN keeps its quiet bit.
      const Words bits = _mm256_castps_si256(x);
      const Words odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const Words rounded =
          _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
      const Words quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
      const Words kept = _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded),
                                                              _mm256_castsi256_ps(quiet),
                                                              _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
      const Words high = _mm256_srli_epi32(kept, 16);  // below 2^16: packus does not saturate
      _mm_storeu_si128(
          static_cast<__m128i*>(p),
          _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
    }
  }

 private:
  [[gnu::always_inline]] static void transpose(const Words (&in)[8], Words* out) {
    Words pairs[8], quads[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_epi32(in[i], in[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_epi32(in[i], in[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + 2 + j]);
        quads[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + 2 + j]);
      }
    }
    for (int j = 0; j < 4; ++j) {
      out[j] = _mm256_permute2x128_si256(quads[j], quads[4 + j], 0x20);
      out[4 + j] = _mm256_permute2x128_si256(quads[j], quads[4 + j], 0x31);
    }
  }
};

}  // namespace
}  // namespace mixed_gemm::cpu
