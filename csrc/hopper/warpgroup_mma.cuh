// The instructions of the wgmma kernels, from CUTLASS, on arrays of registers.
#pragma once
#include <utility>

#include "core/half_arithmetic.h"
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cutlass/cutlass.h"

namespace mixed_gemm {

// wgmma.m64nMk16 with the 64-row operand in registers: 16-bit floats, fp32 sums.
template <typename Format, int kTokens>
struct WarpgroupInstruction;
#define MIXED_GEMM_WGMMA(TOKENS)                                                                  \
  template <>                                                                                     \
  struct WarpgroupInstruction<Half, TOKENS> {                                                     \
    using Type = cute::SM90::GMMA::MMA_64x##TOKENS##x16_F32F16F16_RS<cute::SM90::GMMA::Major::K,  \
                                                                     cute::SM90::GMMA::Major::K>; \
  };                                                                                              \
  template <>                                                                                     \
  struct WarpgroupInstruction<BFloat16, TOKENS> {                                                 \
    using Type =                                                                                  \
        cute::SM90::GMMA::MMA_64x##TOKENS##x16_F32BF16BF16_RS<cute::SM90::GMMA::Major::K,         \
                                                              cute::SM90::GMMA::Major::K>;        \
  };
MIXED_GEMM_WGMMA(16)
MIXED_GEMM_WGMMA(32)
MIXED_GEMM_WGMMA(64)
MIXED_GEMM_WGMMA(128)
MIXED_GEMM_WGMMA(256)
#undef MIXED_GEMM_WGMMA

template <typename Format, int kTokens>
struct WarpgroupMma {
  using Instruction = typename WarpgroupInstruction<Format, kTokens>::Type;
  static constexpr int kSums = kTokens / 2;  // of a thread

  // sums += weights * tokens of 16 k, or without `add` sums = weights * tokens; runs on while the
  // thread goes on.
  static __device__ void multiply(float* sums, const uint32_t (&weights)[4], uint64_t tokens,
                                  bool add) {
    multiply(sums, weights, tokens, add, std::make_index_sequence<kSums>());
  }

 private:
  template <size_t... kI>
  static __device__ void multiply(float* sums, const uint32_t (&w)[4], uint64_t tokens, bool add,
                                  std::index_sequence<kI...>) {
    using Scale = cute::SM90::GMMA::ScaleOut;
    Instruction::fma(w[0], w[1], w[2], w[3], tokens, sums[kI]..., add ? Scale::One : Scale::Zero);
  }
};

// wgmma.m64nNk32: int8, int32 sums, both operands in shared memory.
template <int kColumns>
struct WarpgroupInt8Instruction;
#define MIXED_GEMM_WGMMA(COLUMNS)                                       \
  template <>                                                           \
  struct WarpgroupInt8Instruction<COLUMNS> {                            \
    using Type = cute::SM90::GMMA::MMA_64x##COLUMNS##x32_S32S8S8_SS_TN; \
  };
MIXED_GEMM_WGMMA(32)
MIXED_GEMM_WGMMA(64)
MIXED_GEMM_WGMMA(128)
MIXED_GEMM_WGMMA(256)
#undef MIXED_GEMM_WGMMA

template <int kColumns>
struct WarpgroupInt8Mma {
  static __device__ void multiply(int32_t* sums, uint64_t rows, uint64_t columns) {
    multiply(reinterpret_cast<uint32_t*>(sums), rows, columns,
             std::make_index_sequence<kColumns / 2>());
  }

 private:
  template <size_t... kI>
  static __device__ void multiply(uint32_t* sums, uint64_t rows, uint64_t columns,
                                  std::index_sequence<kI...>) {
    WarpgroupInt8Instruction<kColumns>::Type::fma(rows, columns, sums[kI]...);
  }
};

// wgmma.m64nNk32: float8 e4m3, both operands in shared memory. Sums are stored as fp32, but within
// an instruction, and from one to the next, the tensor core keeps about 14 bits of them.
template <int kColumns>
struct WarpgroupFp8Instruction;
#define MIXED_GEMM_WGMMA(COLUMNS)                                             \
  template <>                                                                 \
  struct WarpgroupFp8Instruction<COLUMNS> {                                   \
    using Type = cute::SM90::GMMA::MMA_64x##COLUMNS##x32_F32E4M3E4M3_SS_TN<>; \
  };
MIXED_GEMM_WGMMA(32)
MIXED_GEMM_WGMMA(64)
MIXED_GEMM_WGMMA(128)
#undef MIXED_GEMM_WGMMA

template <int kColumns>
struct WarpgroupFp8Mma {
  static constexpr int kSums = kColumns / 2;  // of a thread

  // sums += rows * columns of 32 k, or without `add` sums = rows * columns.
  static __device__ void multiply(float* sums, uint64_t rows, uint64_t columns, bool add) {
    multiply(sums, rows, columns, add, std::make_index_sequence<kSums>());
  }

 private:
  template <size_t... kI>
  static __device__ void multiply(float* sums, uint64_t rows, uint64_t columns, bool add,
                                  std::index_sequence<kI...>) {
    using Scale = cute::SM90::GMMA::ScaleOut;
    WarpgroupFp8Instruction<kColumns>::Type::fma(rows, columns, sums[kI]...,
                                                 add ? Scale::One : Scale::Zero);
  }
};

// The descriptor of rows of 128 bytes along K as TMA leaves them, swizzled within 1024 bytes
// (layout/swizzled_lines.h). An instruction takes 32 bytes of each.
__device__ inline uint64_t swizzled_descriptor(uint32_t address) {
  constexpr uint64_t kOctetStride = 1024 >> 4, kSwizzle128 = 1;
  return ((address >> 4) + (1u << 16)) | kOctetStride << 32 | kSwizzle128 << 62;
}
constexpr uint64_t kDescriptorStep = 32 >> 4, kDescriptor64Rows = 64 * 128 >> 4;

// 8 x 8 matrices of 16-bit values from addresses in shared memory (CUTLASS's functions take
// pointers, whose addresses are made again for every stage).
__device__ inline void load_matrices(uint32_t address, uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_transposed(uint32_t address, uint32_t (&matrices)[1]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(matrices[0])
               : "r"(address)
               : "memory");
}
__device__ inline void load_transposed(uint32_t address, uint32_t (&matrices)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(address)
               : "memory");
}

// The compiler must not move accesses of registers that a running wgmma uses across this.
template <int kCount, typename T>
__device__ void pin(T* registers) {
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kCount; ++i) cute::warpgroup_fence_operand(registers[i]);
}

}  // namespace mixed_gemm
