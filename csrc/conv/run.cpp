#include "conv/family.h"

#include <cuda_runtime_api.h>

#include "conv/launchers.h"
#include "grid/device_query.h"
#include "grid/run_split.h"
#include "layout/conv_layout.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {
namespace {

Status zero(void* p, int64_t bytes, void* stream, const char* what) {
  return cuda_status(
      cudaMemsetAsync(p, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)), what);
}

}  // namespace

Status ImplicitGemm::run(const Choice& c, const ConvProblem& problem, const RunContext& context) {
  const GemmProblem gemm = gemm_of(problem);
  const ScaleMode mode = conv_scale_mode(gemm.scheme.scales.zeros, problem.block_size,
                                         problem.shape.in_c, channels_per_tap(problem.shape.in_c));
  ConvProblem p = problem;
  Status status =
      stage_scales(p.element, p.blocks(), gemm.n, p.scales, p.offsets, p.scale_stride, context);
  if (status.ok() && mode.zeros && p.offsets == nullptr) {
    const int64_t bytes = p.blocks() * p.scale_stride * 2;
    void* offsets = context.allocate(bytes);
    status = zero(offsets, bytes, context.stream, "zeroing offsets");
    p.offsets = offsets;
  }
  if (!status.ok()) return status;
  Work work;
  status = share_out(c, kConvTileConfigs[c.row], gemm.m, gemm.n, ceil_div(gemm.k, kTileK), context,
                     work);
  if (!status.ok()) return status;
  status =
      cuda_status(conv_launchers(p.element, p.weight, mode_index(kConvModes, mode))[c.row](p, work),
                  "launching the convolution");
  if (!status.ok()) return status;
  return reduce_partials(work, {p.element, gemm.m, gemm.n, {}, p.bias, p.activation, p.d}, context);
}

}  // namespace mixed_gemm
