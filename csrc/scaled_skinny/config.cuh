// One compiled skinny scaled GEMM as a type: operand type and a row of kScaledSkinnyConfigs.
#pragma once
#include "cutlass/arch/mma.h"
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/arch/mma_sm89.h"
#include "scaled_skinny/config.h"

namespace mixed_gemm {

template <typename Operand_, typename Sum_, typename Operator, int kRow_>
struct ScaledSkinnyGemmConfig {
  using Operand = Operand_;
  using Sum = Sum_;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 32>, 32, Operand,
                                 cutlass::layout::RowMajor, Operand, cutlass::layout::ColumnMajor,
                                 Sum, cutlass::layout::RowMajor, Operator>;
  static constexpr ScaledSkinnyConfig kRow = kScaledSkinnyConfigs[kRow_];
  static constexpr int kMTiles = kRow.m_tiles, kNTiles = kRow.n_tiles, kWarps = kRow.warps;
  static constexpr int kM = scaled_skinny_tokens(kRow), kN = scaled_skinny_columns(kRow);
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kMinBlocks = kRow.resident_warps / kWarps;
};

// Saturates, but dispatch/ limits K so that int32 always suffices.
template <int kRow>
using SkinnyInt8Config =
    ScaledSkinnyGemmConfig<int8_t, int32_t, cutlass::arch::OpMultiplyAddSaturate, kRow>;
template <int kRow>
using SkinnyFp8Config =
    ScaledSkinnyGemmConfig<cutlass::float_e4m3_t, float, cutlass::arch::OpMultiplyAdd, kRow>;

}  // namespace mixed_gemm
