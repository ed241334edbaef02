// The kernels of block_quant_gemm as plain functions. All return a cudaError_t and never
// synchronise.
#pragma once
#include <array>

#include "block_gemm/args.h"
#include "grid/work.h"

namespace mixed_gemm {

// m is at least 1.
int launch_block_prepare(const BlockPrepareArgs& args, void* stream);

// The launcher of each row of kBlockTileConfigs; mode: an index into kBlockModes.
using BlockGemmLaunch = int (*)(const BlockGemmProblem& problem, const BlockOperands& operands,
                                const Work& work);
using BlockLaunchers = std::array<BlockGemmLaunch, kNumBlockTileConfigs>;
const BlockLaunchers& block_gemm_launchers(int mode);

}  // namespace mixed_gemm
