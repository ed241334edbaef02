// Vectors of 16 columns, whose words hold the bf16 values of k and k + 1 (cpu_kernels.h). Dot is
// the instruction: AVX512_BF16's in kernels_avx512_bf16.cpp, its emulation in the tests, so that
// all around it is tested on any AVX-512 machine. vector_kernels.h explains the unnamed namespace.
#pragma once
#include "cpu/vector_avx512.h"

namespace mixed_gemm::cpu {
namespace {

// bf16 of -8 .. 7, twice: vpermw reads 5 bits of each index, of which the top one is not ours.
alignas(64) constexpr uint16_t kInt4AsBf16[32] = {
    0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000,
    0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
    0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};

// The tables of SignedWindow in bf16.
constexpr uint16_t kE2M1AsBf16[8] = {0x0000, 0x3f00, 0x3f80, 0x3fc0,
                                     0x4000, 0x4040, 0x4080, 0x40c0};
struct WindowTableBf16 {
  alignas(64) uint16_t values[32];
};
constexpr WindowTableBf16 window_table_bf16(bool sign_first) {
  WindowTableBf16 table{};
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t code = code_in_window(i, sign_first);
    table.values[i] = static_cast<uint16_t>(kE2M1AsBf16[code & 7] | code >> 3 << 15);
  }
  return table;
}
constexpr WindowTableBf16 kSignAboveBf16 = window_table_bf16(false),
                          kSignBelowBf16 = window_table_bf16(true);

template <typename Dot>
struct Bf16Pairs : Avx512 {
  using Operand = __m512i;
  static constexpr int kDepth = 2;
  static constexpr int kChains = 16;  // the instruction takes 6 cycles (Zen 5)
  // 4096 x 4096, group 128, 2 threads of a Zen 5, fused / dense: int4 0.69, 0.83, 0.90, 0.95 and
  // 0.98 at 16, 32, 48, 64 and 80 rows; int8 0.73, 0.90, 1.00 and 1.06 at 16, 32, 48 and 64.
  static constexpr int64_t kMaxFusedRows[kNumWeights] = {64, 32, 64};

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

  // Slot s is the first member of a pair; the second lies 16 bits above (WeightLayout::slot_of).
  template <typename Weight, int kSlot>
  [[gnu::always_inline]] static Operand decode(Words word) {
    constexpr int kSecond = kSlot + 16 / Weight::kBits;
    static_assert(kSecond == WeightLayout<Weight>::slot_of(kSlot, 1), "a pair is 16 bits apart");
    if constexpr (std::is_same_v<Weight, Int4>) {
      return _mm512_permutexvar_epi16(_mm512_srli_epi32(word, 4 * kSlot),
                                      _mm512_load_si512(kInt4AsBf16));
    } else if constexpr (std::is_same_v<Weight, E2M1>) {
      using Window = SignedWindow<kSlot>;
      const auto& table = Window::kSignFirst ? kSignBelowBf16 : kSignAboveBf16;
      return _mm512_permutexvar_epi16(_mm512_srli_epi32(beside_signs<kSlot>(word), Window::kFirst),
                                      _mm512_load_si512(table.values));
    } else {
      // Through fp32, whose low half is zero for an 8-bit integer: the high half is its bf16.
      const Words first = _mm512_castps_si512(Avx512::decode<Weight, kSlot>(word));
      const Words second = _mm512_castps_si512(Avx512::decode<Weight, kSecond>(word));
      return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
    }
  }
};

}  // namespace
}  // namespace mixed_gemm::cpu
