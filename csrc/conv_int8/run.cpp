#include "conv_int8/family.h"

#include "conv_int8/launchers.h"
#include "grid/device_query.h"
#include "grid/run_split.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

Status ConvInt8::run(const Choice& c, const ConvInt8Problem& p, const RunContext& context) {
  const ConvShape& s = p.shape;
  const int64_t channels = p.input_strides.w;  // of a pixel, and so of a tap
  ConvInt8Args args;
  args.shape = s;
  args.pixels = p.input;
  args.pixel_channels = static_cast<int>(channels);
  args.tap_channels = static_cast<int>(channels);
  args.padding = static_cast<int8_t>(p.input_zero_point);
  args.clamp_min = p.clamp_min;
  args.clamp_max = p.clamp_max;
  args.d = p.d;
  args.stream = context.stream;

  RequantizationArgs constants;
  constants.weight = p.weight;
  constants.channels = s.out_c;
  constants.k = s.taps() * s.in_c;
  constants.weight_scale = p.weight_scale;
  constants.weight_scale_stride = p.weight_scale_stride;
  constants.bias = p.bias;
  constants.input_scale = p.input_scale;
  constants.output_scale = p.output_scale;
  constants.input_zero_point = p.input_zero_point;
  constants.output_zero_point = p.output_zero_point;
  constants.out = static_cast<Requantization*>(
      context.allocate(s.out_c * static_cast<int64_t>(sizeof(Requantization))));
  constants.stream = context.stream;
  args.channels = constants.out;
  Status status = cuda_status(launch_requantization(constants), "summing weights");
  if (status.ok()) status = stage_taps(p, channels, args.weight, context);
  Shares shares;
  if (status.ok()) {
    status = share_out(c, kConvInt8TileConfigs[c.row], s.rows(), s.out_c,
                       ceil_div(s.taps() * channels, kScaledTileK), context, shares);
  }
  if (!status.ok()) return status;
  args.split = shares.split;
  args.slices = shares.slices;
  args.partials = shares.partials;
  args.flags = shares.flags;
  return cuda_status(conv_int8_launchers()[c.row](args), "launching the convolution");
}

}  // namespace mixed_gemm
