// One compiled scaled GEMM as a type: operand type and a row of kScaledTileConfigs.
#pragma once
#include "core/scaled_tile_config.h"
#include "cutlass/arch/mma.h"
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/arch/mma_sm89.h"
#include "mainloop/warp_tiling.cuh"

namespace mixed_gemm {

struct ScaledTiles {
  static constexpr const TileConfig& row(int i) { return kScaledTileConfigs[i]; }
};

template <typename Operand, typename Sum_, typename Operator, int kRow>
struct ScaledMmConfig : WarpTiling<ScaledTiles, kRow> {
  using Sum = Sum_;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 32>, 32, Operand,
                                 cutlass::layout::RowMajor, Operand, cutlass::layout::ColumnMajor,
                                 Sum, cutlass::layout::RowMajor, Operator>;
};

// Saturates, but dispatch/ limits K so that int32 always suffices.
template <int kRow>
using Int8Config = ScaledMmConfig<int8_t, int32_t, cutlass::arch::OpMultiplyAddSaturate, kRow>;

template <int kRow>
using Fp8Config = ScaledMmConfig<cutlass::float_e4m3_t, float, cutlass::arch::OpMultiplyAdd, kRow>;

}  // namespace mixed_gemm
