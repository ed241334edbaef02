// One compiled GEMM of 8-bit operands as a type: operand type and a row of a table of tiles.
#pragma once
#include "mainloop/direct_mma.cuh"
#include "mainloop/warp_tiling.cuh"

namespace mixed_gemm {

template <typename Operand, typename Sum_, typename Operator, typename Tiles, int kRow>
struct DirectConfig : WarpTiling<Tiles, kRow> {
  using Sum = Sum_;
  using Mma = DirectMma<Operand, Sum, Operator>;
};

template <typename Tiles, int kRow>
using DirectInt8Config = DirectConfig<int8_t, int32_t, Int8Operator, Tiles, kRow>;
template <typename Tiles, int kRow>
using DirectFp8Config = DirectConfig<cutlass::float_e4m3_t, float, Fp8Operator, Tiles, kRow>;

}  // namespace mixed_gemm
