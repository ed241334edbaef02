// One compiled skinny scaled GEMM as a type: operand type and a row of kScaledSkinnyConfigs.
#pragma once
#include "mainloop/direct_mma.cuh"
#include "scaled_skinny/config.h"

namespace mixed_gemm {

template <typename Operand_, typename Sum_, typename Operator, int kRow_>
struct ScaledSkinnyGemmConfig {
  using Operand = Operand_;
  using Sum = Sum_;
  using Mma = DirectMma<Operand, Sum, Operator>;
  static constexpr ScaledSkinnyConfig kRow = kScaledSkinnyConfigs[kRow_];
  static constexpr int kMTiles = kRow.m_tiles, kNTiles = kRow.n_tiles, kWarps = kRow.warps;
  static constexpr int kM = scaled_skinny_tokens(kRow), kN = scaled_skinny_columns(kRow);
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kMinBlocks = kRow.resident_warps / kWarps;
};

template <int kRow>
using SkinnyInt8Config = ScaledSkinnyGemmConfig<int8_t, int32_t, Int8Operator, kRow>;
template <int kRow>
using SkinnyFp8Config = ScaledSkinnyGemmConfig<cutlass::float_e4m3_t, float, Fp8Operator, kRow>;

}  // namespace mixed_gemm
