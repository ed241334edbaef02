#include "cutlass/cutlass.h"
#include "grid/launch.cuh"
#include "grouped/row_blocks.cuh"

namespace mixed_gemm {

int launch_row_blocks(const RowBlocksArgs& args) {
  constexpr int64_t kZeroedByBlock = 64 * 1024;  // bytes
  constexpr int64_t kMostBlocks = 128;
  KernelLaunch shape;
  const int64_t zeroing = ceil_div(args.rows * args.row_bytes, kZeroedByBlock);
  shape.grid = dim3(static_cast<unsigned>(1 + std::min(zeroing, kMostBlocks)));
  shape.threads = kRowBlockThreads;
  shape.stream = args.stream;
  shape.uses_pdl = args.pdl.sms > 0;
  return launch_kernel(row_blocks_kernel, shape, args);
}

}  // namespace mixed_gemm
