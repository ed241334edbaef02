#include "cpu/epilogue_cpu.h"
#include "cpu/gemm/activation_panel.h"
#include "cpu/gemm/paths.h"

namespace mixed_gemm::cpu {

// One task is one unit of columns over all of K: the packed weight is read from memory once, and
// the second and later row blocks find it in the cache.
void gemm_fused(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for) {
  const CallShape shape(problem, kernels);
  const ActivationPanel a(shape, 0, problem.m, parallel_for);
  const EpilogueCpu epilogue(shape);
  const int64_t lanes = kernels.lanes, unit_work = lanes * shape.tiles * kTileK * problem.m;
  // Rows of `scales` lie on different pages, so the page walks are shared by as many units as 128
  // KB of scratch allow: 16 units instead of 4 took 8 % off M = 1, K = 4096, group 128.
  const int64_t units_per_load = std::clamp<int64_t>(32768 / (shape.groups_pad * lanes), 1, 16);
  parallel_for(0, shape.units(), CallShape::grain(unit_work), [&](int64_t begin, int64_t end) {
    UnitScales scales(shape, units_per_load);
    alignas(64) float sums[kMaxRows * kMaxLanes];
    for (int64_t unit = begin; unit < end; ++unit) {
      if ((unit - begin) % units_per_load == 0) {
        scales.load(unit, std::min(unit + units_per_load, end));
      }
      const ColumnScales unit_scales = scales.at(unit);
      const PackedColumns columns = shape.columns(unit);
      for (int64_t i = 0; i < a.num_blocks(); ++i) {
        const auto block = a.block(i);
        shape.operands.fused[block.choice][shape.weight()](
            columns, unit_scales, block.from(0, shape.depth()), shape.tiles, sums);
        epilogue.finish(sums, lanes, block.first, block.real, unit * lanes, lanes);
      }
    }
  });
}

}  // namespace mixed_gemm::cpu
