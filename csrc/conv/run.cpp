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

Status ImplicitGemm::run(const Choice& c, const ConvProblem& p, const RunContext& context) {
  const ConvShape& s = p.shape;
  const GemmProblem gemm = gemm_of(p);
  const int64_t channels = channels_per_tap(s.in_c);
  const ScaleMode mode = conv_scale_mode(gemm.scheme.zero_mode, p.block_size, s.in_c, channels);

  ConvArgs conv;
  conv.shape = s;
  conv.pixel_channels = static_cast<int>(p.input_strides.w);
  conv.channels_per_tap = static_cast<int>(channels);
  GemmArgs& args = conv.gemm;
  args.m = static_cast<int>(gemm.m);
  args.n = static_cast<int>(gemm.n);
  args.k = static_cast<int>(gemm.k);
  args.a = p.input;
  args.b_packed = p.weight_packed;
  args.groups = static_cast<int>(p.blocks());
  args.group_size = static_cast<int>(p.block_size);
  args.zero_mode = gemm.scheme.zero_mode;
  args.bias = p.bias;
  args.activation = p.activation;
  args.d = p.d;
  args.stream = context.stream;

  args.scales = p.scales;
  args.zeros = p.offsets;
  args.scale_stride = p.scale_stride;
  args.early_start = context.device.early_start();
  Status status = stage_scales(p.element, p.blocks(), s.out_c, args.scales, args.zeros,
                               args.scale_stride, context);
  if (status.ok() && has_zeros(mode) && args.zeros == nullptr) {
    const int64_t bytes = p.blocks() * args.scale_stride * 2;
    void* offsets = context.allocate(bytes);
    status = zero(offsets, bytes, context.stream, "zeroing offsets");
    args.zeros = offsets;
    args.zero_mode = ZeroMode::kAdd;
  }
  if (!status.ok()) return status;
  Shares shares;
  status = share_out(c, kConvTileConfigs[c.row], gemm.m, gemm.n, ceil_div(gemm.k, kTileK), context,
                     shares);
  if (!status.ok()) return status;
  args.split = shares.split;
  args.slices = shares.slices;
  args.partials = static_cast<float*>(shares.partials);
  args.flags = shares.flags;
  status = cuda_status(conv_launchers(p.element, p.bits, mode)[c.row](conv),
                       "launching the convolution");
  if (!status.ok()) return status;
  return reduce_partials(shares, {p.element, gemm.m, gemm.n, nullptr, p.bias, p.activation, p.d},
                         context);
}

}  // namespace mixed_gemm
