#include "dequant/with_element.cuh"
#include "grid/launch.cuh"
#include "grouped_plain/kernel.cuh"
#include "grouped_plain/launchers.h"

namespace mixed_gemm {

int launch_grouped_plain(const GroupedGemmProblem& problem, const GroupedWorkload& work) {
  const GemmProblem& p = problem.gemm;
  if (work.most_row_blocks == 0) return cudaSuccess;  // no experts
  KernelLaunch shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, kPlainWarps)),
                    static_cast<unsigned>(work.most_row_blocks));
  shape.threads = 32 * kPlainWarps;
  shape.stream = work.stream;
  const GroupedPlainParams params{p, work.row_blocks, problem.packed_stride(),
                                  problem.scale_stride()};
  return with_element(p.element, [&](auto element) {
    using Element = typename decltype(element)::Type;
    return with_weight(p.scheme.weight, [&](auto weight) {
      return launch_kernel(grouped_plain_kernel<Element, decltype(weight)>, shape, params);
    });
  });
}

}  // namespace mixed_gemm
