#include "conv_int8/family.h"

#include "conv_int8/launchers.h"
#include "grid/device_query.h"
#include "grid/run_split.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

Status ConvInt8::run(const Choice& c, const ConvInt8Problem& problem, const RunContext& context) {
  const ConvShape& s = problem.shape;
  auto* channels = static_cast<Requantization*>(
      context.allocate(s.out_c * static_cast<int64_t>(sizeof(Requantization))));
  Status status =
      cuda_status(launch_requantization(problem, channels, context.stream), "summing weights");
  ConvInt8Problem p = problem;
  const int64_t tap_channels = p.input_strides.w;  // as many as a pixel has
  if (status.ok()) status = stage_taps(p, tap_channels, context);
  if (!status.ok()) return status;
  Work work;
  status = share_out(c, kConvInt8TileConfigs[c.row], s.rows(), s.out_c,
                     ceil_div(s.taps() * tap_channels, kScaledTileK), context, work);
  if (!status.ok()) return status;
  return cuda_status(conv_int8_launchers()[c.row](p, channels, work), "launching the convolution");
}

}  // namespace mixed_gemm
