// Compiled with the flags of kernels_avx512.cpp and -mavx512bf16; reached only after CPUID says so.
// bf16 activations go through the bf16 dot product, everything else through the kernels of
// kernels_avx512_vnni.cpp (every processor with this instruction has that one).

#include "cpu/quiet_avx512.h"

#include "cpu/vector_bf16_pairs.h"
#include "cpu/vector_dense.h"

namespace mixed_gemm::cpu {
namespace {

// sum + w[k + 1] * a[k + 1], then + w[k] * a[k], each rounded to nearest; subnormal inputs and
// results count as zero (Intel SDM, VDPBF16PS).
struct DotInstruction {
  [[gnu::always_inline]] static __m512 dot(__m512i w, __m512i a, __m512 sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(a));
  }
  // Multiplies one word of A in all lanes. GCC 12 loads it apart: 5 to 8 % at 16 rows.
  [[gnu::always_inline]] static __m512 dot_word(__m512i w, const uint32_t* a, __m512 sum) {
    asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*a));
    return sum;
  }
};

constexpr OperandKernels kPairs = make_operand_kernels<Bf16Pairs<DotInstruction>>();

}  // namespace

const CpuKernels& avx512_bf16_kernels() {
  static const CpuKernels kKernels = [] {
    CpuKernels kernels =
        avx512_vnni_kernels().with("avx512_bf16", &CpuKernels::bf16_pairs, &kPairs);
    // fp32 words there, fused / dense: int4 0.65, 0.82, 0.90, 0.95 and 0.97 at 16, 32, 48, 64 and
    // 80 rows; int8 0.65, 0.86, 0.95 and 1.01 at 16, 32, 48 and 64.
    int64_t(&rows)[kNumWeights] = kernels.fp32.max_fused_rows;
    for (int weight = 0; weight < kNumWeights; ++weight) {
      rows[weight] = bits_of(static_cast<WeightType>(weight)) == 4 ? 64 : 48;
    }
    return kernels;
  }();
  return kKernels;
}

}  // namespace mixed_gemm::cpu
