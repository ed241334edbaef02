// Compiled with the flags of kernels_avx512.cpp and -mavx512vnni; reached only after CPUID says so.
// int8 goes through the byte dot product, everything else through the AVX-512 kernels.

#include "cpu/quiet_avx512.h"

#include "cpu/cpu_kernels.h"
#include "cpu/integer_avx512.h"

namespace mixed_gemm::cpu {
namespace {

// VPDPBUSD multiplies unsigned by signed bytes, so B is read as b + 128 (its sign bit flipped).
// That adds 128 times the row of A, which is subtracted before (IntegerKernels::b_shifted). Sums
// wrap modulo 2^32 on the way and are right at the end.
struct IntegerVnni : IntegerLanes512 {
  static constexpr int kStep = 64;
  static constexpr int kABytes = 1;

  [[gnu::always_inline]] static Words load_b(const int8_t* p) {
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128));
  }
  [[gnu::always_inline]] static Words load_b(const int8_t* p, int count) {
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask(count), p), _mm512_set1_epi8(-128));
  }
  // In assembly, since GCC 12 moves all sums to memory and back around the intrinsic. A row of A is
  // loaded once for all columns: as an operand in memory it took a load for each product, and those
  // were the limit (4096 x 4096, M = 64 to 1024, 2 threads of a Zen 5: 16 to 20 %).
  [[gnu::always_inline]] static Words dot(Words sum, Words b, Words a) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(b), "v"(a));
    return sum;
  }
  [[gnu::always_inline]] static void prepare(const int8_t* a, int count, void* to) {
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi8(mask(count), a));
  }

 private:
  [[gnu::always_inline]] static __mmask64 mask(int count) { return ~uint64_t{0} >> (64 - count); }
};

constexpr IntegerKernels kIntegerVnni = make_integer_avx512<IntegerVnni>(true);

}  // namespace

const CpuKernels& avx512_vnni_kernels() {
  static const CpuKernels kKernels =
      avx512_kernels().with("avx512_vnni", &CpuKernels::int8, &kIntegerVnni);
  return kKernels;
}

}  // namespace mixed_gemm::cpu
