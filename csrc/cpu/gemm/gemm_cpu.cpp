#include "cpu/gemm/gemm_cpu.h"

#include "cpu/call_shape.h"
#include "cpu/gemm/paths.h"
#include "cpu/instruction_set.h"

namespace mixed_gemm {
namespace cpu {

GemmPath choose_path(const CpuKernels& kernels, const GemmProblem& problem) {
  const int weight = static_cast<int>(problem.scheme.weight);
  const bool tiles = kernels.tiles && CallShape::takes_pairs(problem, kernels.tiles->dense);
  if (tiles && problem.m >= kernels.tiles->min_rows[weight]) return GemmPath::kTiles;
  const int64_t fused = CallShape::operands_for(problem, kernels).max_fused_rows[weight];
  return problem.m <= fused ? GemmPath::kFused : GemmPath::kDense;
}

void dequantize_with(const CpuKernels& kernels, const GemmProblem& problem, ElementType out_element,
                     const ParallelFor& parallel_for) {
  const CallShape shape(problem, kernels);
  const int64_t lanes = kernels.lanes, unit_work = lanes * problem.k * 8;  // 8: stores, transpose
  parallel_for(0, shape.units(), CallShape::grain(unit_work), [&](int64_t begin, int64_t end) {
    UnitScales scales(shape, 1);
    alignas(64) float panel[kTileK * kMaxLanes], row[kTileK];
    for (int64_t unit = begin; unit < end; ++unit) {
      scales.load(unit, unit + 1);
      const int64_t columns = std::min(lanes, problem.n - unit * lanes);
      for (int64_t tile = 0; tile < shape.tiles; ++tile) {
        kernels.fp32.dense.fill[shape.weight()](shape.columns(unit), scales.at(unit), tile,
                                                tile + 1, panel, lanes);
        const int64_t k = tile * kTileK, count = std::min<int64_t>(kTileK, problem.k - k);
        for (int64_t c = 0; c < columns; ++c) {
          const float factor = problem.factor ? problem.factor[unit * lanes + c] : 1.f;
          for (int64_t j = 0; j < count; ++j) row[j] = panel[j * lanes + c] * factor;
          char* to = static_cast<char*>(problem.d) +
                     ((unit * lanes + c) * problem.k + k) * element_bytes(out_element);
          kernels.from_float(row, count, out_element, to);
        }
      }
    }
  });
}

}  // namespace cpu

void gemm_cpu(const GemmProblem& problem, const ParallelFor& parallel_for) {
  if (problem.m == 0 || problem.n == 0) return;
  const cpu::CpuKernels& kernels = cpu::active_kernels(problem.scheme.weight);
  switch (cpu::choose_path(kernels, problem)) {
    case cpu::GemmPath::kFused:
      return cpu::gemm_fused(kernels, problem, parallel_for);
    case cpu::GemmPath::kDense:
      return cpu::gemm_dense(kernels, problem, parallel_for);
    case cpu::GemmPath::kTiles:
      return cpu::gemm_tiles(kernels, problem, parallel_for);
  }
}

const char* cpu_path(const GemmProblem& problem) {
  static constexpr const char* kNames[] = {"the weight is decoded in vector registers",
                                           "the weight is dequantized to slabs in cache",
                                           "slabs of the weight are multiplied in tile registers"};
  return kNames[static_cast<int>(
      cpu::choose_path(cpu::active_kernels(problem.scheme.weight), problem))];
}

void dequantize_cpu(const GemmProblem& problem, ElementType out_element,
                    const ParallelFor& parallel_for) {
  if (problem.n == 0 || problem.k == 0) return;
  cpu::dequantize_with(cpu::active_kernels(problem.scheme.weight), problem, out_element,
                       parallel_for);
}

}  // namespace mixed_gemm
