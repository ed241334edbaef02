// Vectors of 16 columns, whose words hold the bf16 values of k and k + 1 (cpu_kernels.h). Dot is
// the instruction: AVX512_BF16's in kernels_avx512_bf16.cpp, its emulation in the tests, so that
// all around it is tested on any AVX-512 machine. vector_kernels.h explains the unnamed namespace.
#pragma once
#include "cpu/vector_avx512.h"

namespace mixed_gemm::cpu {
namespace {

template <typename Dot>
struct Bf16Pairs : Avx512 {
  using Operand = __m512i;
  static constexpr int kDepth = 2;
  static constexpr int kChains = 16;  // the instruction takes 6 cycles (Zen 5)
  // 4096 x 4096, group 128, 2 threads of a Zen 5, fused / dense: int4 0.69, 0.83, 0.90, 0.95 and
  // 0.98 at 16, 32, 48, 64 and 80 rows; int8 0.73, 0.90, 1.00 and 1.06 at 16, 32, 48 and 64.
  static constexpr int64_t kMaxFusedRows[kNumWeights] = {64, 32, 64, 32, 64, 64};

  [[gnu::always_inline]] static Operand load_operand(const uint32_t* p) {
    return _mm512_loadu_si512(p);
  }
  [[gnu::always_inline]] static void store_operand(uint32_t* p, Operand x) {
    _mm512_storeu_si512(p, x);
  }
  [[gnu::always_inline]] static Operand broadcast_operand(const uint32_t* p) {
    return _mm512_set1_epi32(static_cast<int>(*p));
  }
  [[gnu::always_inline]] static Floats dot(Operand w, Operand a, Floats sum) {
    return Dot::dot(w, a, sum);
  }
  [[gnu::always_inline]] static Floats dot_word(Operand w, const uint32_t* a, Floats sum) {
    return Dot::dot_word(w, a, sum);
  }

  // A pair times a scale, where the products are bf16 numbers.
  [[gnu::always_inline]] static Operand scaled(Operand pair, Floats scale) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const Floats first = mul(_mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)), scale);
    const Floats second = mul(_mm512_castsi512_ps(_mm512_and_si512(pair, upper)), scale);
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                           _mm512_castps_si512(second));
  }

  // Slot s is the first member of a pair; the second lies 16 bits above (WeightLayout::slot_of).
  template <typename Weight, int kSlot>
  [[gnu::always_inline]] static Operand decode(Words word) {
    constexpr int kSecond = kSlot + 16 / Weight::kBits;
    static_assert(kSecond == WeightLayout<Weight>::slot_of(kSlot, 1), "a pair is 16 bits apart");
    return CodesAvx512<Weight>::template bf16_pair<kSlot>(word);
  }
};

}  // namespace
}  // namespace mixed_gemm::cpu
