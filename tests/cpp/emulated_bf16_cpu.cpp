// The avx512_bf16 kernels with the dot product emulated, for machines that lack the instruction.
// Compiled with the flags of csrc/cpu/kernels_avx512.cpp.

#include "cpu/quiet_avx512.h"

#include "emulated_bf16_cpu.h"

#include "cpu/vector_bf16_pairs.h"
#include "cpu/vector_dense.h"

namespace mixed_gemm::test {
namespace {

// VDPBF16PS as the Intel SDM writes it: the odd elements first, then the even ones, each a fused
// multiply-add to nearest even, subnormal inputs and results replaced by zero.
struct EmulatedDot {
  static __m512 flushed(__m512 x) {
    const __m512 least = _mm512_set1_ps(0x1p-126f);
    const __mmask16 subnormal = _mm512_cmp_ps_mask(_mm512_abs_ps(x), least, _CMP_LT_OQ);
    return _mm512_mask_mov_ps(x, subnormal, _mm512_setzero_ps());
  }
  static __m512 even(__m512i x) { return flushed(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16))); }
  static __m512 odd(__m512i x) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    return flushed(_mm512_castsi512_ps(_mm512_and_si512(x, mask)));
  }
  static __m512 dot(__m512i w, __m512i a, __m512 sum) {
    sum = flushed(_mm512_fmadd_ps(odd(w), odd(a), flushed(sum)));
    return flushed(_mm512_fmadd_ps(even(w), even(a), sum));
  }
  static __m512 dot_word(__m512i w, const uint32_t* a, __m512 sum) {
    return dot(w, _mm512_set1_epi32(static_cast<int>(*a)), sum);
  }
};

constexpr cpu::OperandKernels kPairs = cpu::make_operand_kernels<cpu::Bf16Pairs<EmulatedDot>>();

}  // namespace

const cpu::CpuKernels& emulated_bf16_kernels() {
  static const cpu::CpuKernels kKernels =
      cpu::avx512_kernels().with("avx512_bf16_emulated", &cpu::CpuKernels::bf16_pairs, &kPairs);
  return kKernels;
}

}  // namespace mixed_gemm::test
