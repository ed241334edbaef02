// The launcher of block_quant_gemm's first kernel.
#include <algorithm>

#include "block_gemm/launchers.h"
#include "block_gemm/prepare.cuh"

namespace mixed_gemm {
namespace {

// The kernels by ElementType.
constexpr void (*kKernels[])(BlockPrepareParams) = {block_prepare_kernel<cutlass::half_t>,
                                                    block_prepare_kernel<cutlass::bfloat16_t>,
                                                    block_prepare_kernel<float>};

// Threads that take a block of a row: about two vectors each, and more only where a block would
// not stay in the registers of a warp.
int lanes_for(int64_t padded) {
  const int64_t vectors = ceil_div(padded, kQuantizeVector);
  if (vectors > 32 * kQuantizeVectors) return kPrepareThreads;
  int lanes = 4;
  while (lanes < 32 && 2 * lanes < vectors) lanes *= 2;
  return lanes;
}

bool blocks_are_aligned(const BlockGemmProblem& p) {
  const int64_t bytes = p.element == ElementType::kFloat32 ? 4 : 2, vector = 16;
  return reinterpret_cast<uintptr_t>(p.a) % vector == 0 &&
         (p.lda * bytes % vector == 0 || p.m == 1) &&
         (p.block_size * bytes % vector == 0 || p.blocks() == 1);
}

int grid_for(int64_t threads) { return static_cast<int>(ceil_div(threads, kPrepareThreads)); }

}  // namespace

int launch_block_prepare(const BlockPrepareArgs& args, void* stream) {
  const BlockOperands& operands = args.operands;
  constexpr int64_t kMaxCopyGrid = 4096;
  const BlockGemmProblem& p = args.problem;
  const int64_t blocks = operands.form.blocks;
  BlockPrepareParams params;
  params.args = args;
  params.lanes = lanes_for(operands.form.padded);
  params.aligned = blocks_are_aligned(p);
  params.blocks = cutlass::FastDivmod(static_cast<int>(std::max<int64_t>(blocks, 1)));
  params.columns = cutlass::FastDivmod(static_cast<int>(p.n));
  params.quantize_grid = grid_for(p.m * blocks * params.lanes);
  params.column_grid = operands.wants_columns() ? grid_for(blocks * p.n) : 0;
  params.padded = cutlass::FastDivmod(static_cast<int>(std::max<int64_t>(operands.form.padded, 1)));
  params.copy_grid =
      operands.b_copy == nullptr ? 0 : static_cast<int>(std::min<int64_t>(kMaxCopyGrid, p.n));
  const int grid = params.quantize_grid + params.column_grid + params.copy_grid;
  if (grid == 0) return cudaSuccess;  // K is 0
  kKernels[static_cast<int>(p.element)]<<<static_cast<unsigned>(grid), kPrepareThreads, 0,
                                          static_cast<cudaStream_t>(stream)>>>(params);
  return cudaGetLastError();
}

}  // namespace mixed_gemm
