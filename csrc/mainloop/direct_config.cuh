// One compiled GEMM of 8-bit operands as a type: operand type and a row of a table of tiles.
#pragma once
#include "cutlass/arch/mma.h"
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/arch/mma_sm89.h"
#include "mainloop/warp_tiling.cuh"

namespace mixed_gemm {

template <typename Operand, typename Sum_, typename Operator, typename Tiles, int kRow>
struct DirectConfig : WarpTiling<Tiles, kRow> {
  using Sum = Sum_;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 32>, 32, Operand,
                                 cutlass::layout::RowMajor, Operand, cutlass::layout::ColumnMajor,
                                 Sum, cutlass::layout::RowMajor, Operator>;
};

// Saturates, but dispatch/ limits K so that int32 always suffices.
template <typename Tiles, int kRow>
using DirectInt8Config =
    DirectConfig<int8_t, int32_t, cutlass::arch::OpMultiplyAddSaturate, Tiles, kRow>;

template <typename Tiles, int kRow>
using DirectFp8Config =
    DirectConfig<cutlass::float_e4m3_t, float, cutlass::arch::OpMultiplyAdd, Tiles, kRow>;

}  // namespace mixed_gemm
