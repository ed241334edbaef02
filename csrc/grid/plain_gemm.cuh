// CUTLASS's own kernel for a family, whatever the mainloop (grid/threadblock_mma.cuh) and the
// epilogue: its type, its parameters, its launch.
#pragma once
#include "core/quant_scheme.h"
#include "cutlass/gemm/kernel/gemm_universal_with_visitor.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"
#include "grid/launch.cuh"

namespace mixed_gemm {

// Mma: a ThreadblockMma. Epilogue: the type that the kernel calls behind it.
template <typename Mma, typename Epilogue>
using PlainKernel = cutlass::gemm::kernel::GemmWithEpilogueVisitor<
    Mma, Epilogue, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>>;

// The parameters of a PlainKernel for a product of m x n x k. epilogue: the arguments of its tree.
template <typename Kernel, typename MainloopParams>
typename Kernel::Params plain_params(int m, int n, int k,
                                     const typename Kernel::FusionCallbacks::Arguments& epilogue,
                                     const MainloopParams& mainloop) {
  constexpr int kAnySms = 1, kAnyOccupancy = 1;  // stream-K's, which nobody asks for
  typename Kernel::Params params(
      typename Kernel::Arguments(cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k}, 1, epilogue,
                                 nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0, int64_t{k},
                                 int64_t{k}, int64_t{n}, int64_t{n}),
      kAnySms, kAnyOccupancy);
  params.params_B.mainloop = mainloop;
  return params;
}

// Whether the grid of a PlainKernel holds n columns: its swizzle has those of tiles along y.
template <typename Config>
bool fits_plain_grid(int64_t n) {
  constexpr int64_t kMaxGridY = 65535;
  return ceil_div(n, Config::kTile.n) <= kMaxGridY;
}

// entry: the __global__ function that runs a PlainKernel.
template <typename Config, typename Params>
int launch_plain_kernel(void (*entry)(Params), const Params& params, const Work& work,
                        int smem_bytes) {
  KernelLaunch shape = launch_of(work, 1, Config::kThreads, smem_bytes);
  shape.grid = params.get_grid_dims();
  shape.even = work.pdl;
  return launch_kernel(entry, shape, params);
}

}  // namespace mixed_gemm
