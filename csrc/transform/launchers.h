// The compiled CUDA kernels as plain function pointers: the only thing dispatch/ sees of this
// folder.
#pragma once
#include <array>

#include "core/tile_config.h"
#include "grid/gemm_args.h"
#include "transform/args.h"

namespace mixed_gemm {

using TileLaunchers = std::array<GemmLaunch, kNumTileConfigs>;
using WgmmaLaunchers = std::array<GemmLaunch, kNumWgmmaTileConfigs>;
using SkinnyLaunchers = std::array<GemmLaunch, kNumSkinnyConfigs>;

// The launcher of each row of a table of tiles, by [ElementType][bits == 8][mode].
const TileLaunchers& multistage_launchers(ElementType element, int bits, ScaleMode mode);
const SkinnyLaunchers& skinny_launchers(ElementType element, int bits, SkinnyMode mode);
// In builds with sm_90 (MIXED_GEMM_WITH_WGMMA).
const WgmmaLaunchers& wgmma_launchers(ElementType element, int bits, WgmmaMode mode);

// Kernels around the GEMM. All return a cudaError_t and never synchronise.
int launch_pack(const PackArgs& args);
int launch_unpack(const PackArgs& args);
int launch_repack_awq(const RepackArgs& args);
int launch_repack_gptq(const RepackArgs& args);
int launch_dequantize_awq(const AwqProblem& problem, void* stream);
int launch_dequantize(const DequantizeArgs& args);
int launch_copy_padded(const CopyPaddedArgs& args);
int launch_copy_rows(const CopyRowsArgs& args);
int launch_reduce_partials(const ReduceArgs& args);
int launch_zero_flags(const ZeroFlagsArgs& args);

}  // namespace mixed_gemm
