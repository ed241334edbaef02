#include "cpu/gemm/fused.h"

#include "cpu/gemm/paths.h"

namespace mixed_gemm::cpu {

// One task is one unit of columns over all of K: the packed weight is read from memory once, and
// the second and later row blocks find it in the cache.
void FusedGemm::run(int64_t unit_begin, int64_t unit_end) const {
  const int64_t lanes = shape_.kernels.lanes;
  // Rows of `scales` lie on different pages, so the page walks are shared by as many units as 128
  // KB of scratch allow: 16 units instead of 4 took 8 % off M = 1, K = 4096, group 128.
  const int64_t units_per_load = std::clamp<int64_t>(32768 / (shape_.groups_pad * lanes), 1, 16);
  UnitScales scales(shape_, units_per_load);
  alignas(64) float sums[kMaxRows * kMaxLanes];
  for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
    if ((unit - unit_begin) % units_per_load == 0) {
      scales.load(unit, std::min(unit + units_per_load, unit_end));
    }
    const ColumnScales unit_scales = scales.at(unit);
    const PackedColumns columns = shape_.columns(unit);
    for (int64_t i = 0; i < a_.num_blocks(); ++i) {
      const auto block = a_.block(i);
      shape_.operands.fused[block.choice][shape_.weight()](
          columns, unit_scales, block.from(0, shape_.depth()), shape_.tiles, sums);
      epilogue_.finish(sums, lanes, block.first, block.real, unit * lanes, lanes);
    }
  }
}

void gemm_fused(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for) {
  const FusedGemm gemm(kernels, problem, parallel_for);
  parallel_for(0, gemm.units(), CallShape::grain(gemm.unit_work()),
               [&](int64_t begin, int64_t end) { gemm.run(begin, end); });
}

}  // namespace mixed_gemm::cpu
