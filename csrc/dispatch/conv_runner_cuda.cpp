#include "dispatch/conv_runner_cuda.h"

#include <cuda_runtime_api.h>

#include "conv/launchers.h"
#include "conv_int8/launchers.h"
#include "dispatch/workspace_cuda.h"
#include "grid/grid.h"
#include "layout/conv_layout.h"
#include "transform/launchers.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kVectorBytes = 16;  // cp.async moves 16 bytes

Status zero(void* p, int64_t bytes, void* stream, const char* what) {
  return cuda_status(
      cudaMemsetAsync(p, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)), what);
}

// Rows of the filter with the channels of every tap padded to `tap_channels`.
Status pad_taps(const ConvInt8Problem& p, int64_t tap_channels, const void*& weight,
                const Allocate& allocate, void* stream) {
  const ConvShape& s = p.shape;
  weight = p.weight;
  if (tap_channels == s.in_c && reinterpret_cast<uintptr_t>(weight) % kVectorBytes == 0) {
    return Status();
  }
  CopyRowsArgs copy;
  copy.src = weight;
  copy.src_stride = s.in_c;
  copy.rows = s.out_c * s.taps();
  copy.k = s.in_c;
  copy.dst_stride = tap_channels;
  copy.dst = allocate(copy.rows * tap_channels);
  copy.stream = stream;
  weight = copy.dst;
  return cuda_status(launch_copy_rows(copy), "copying the filter");
}

}  // namespace

Status run_conv(const ConvCandidate& c, const ConvProblem& p, const Pixels& pixels, void* d,
                const Allocate& allocate, void* stream) {
  const ConvShape& s = p.shape;
  const GemmProblem gemm = gemm_of(p);
  const int64_t channels = channels_per_tap(s.in_c);
  const ScaleMode mode = conv_scale_mode(gemm.scheme.zero_mode, p.block_size, s.in_c, channels);

  ConvArgs conv;
  conv.shape = s;
  conv.pixel_channels = static_cast<int>(pixels.channels);
  conv.channels_per_tap = static_cast<int>(channels);
  GemmArgs& args = conv.gemm;
  args.m = static_cast<int>(gemm.m);
  args.n = static_cast<int>(gemm.n);
  args.k = static_cast<int>(gemm.k);
  args.a = pixels.data;
  args.b_packed = p.weight_packed;
  args.groups = static_cast<int>(p.blocks());
  args.group_size = static_cast<int>(p.block_size);
  args.zero_mode = gemm.scheme.zero_mode;
  args.bias = p.bias;
  args.activation = p.activation;
  args.d = d;
  args.split = c.split;
  args.slices = c.slices;
  args.stream = stream;

  args.scales = p.scales;
  args.zeros = p.offsets;
  args.scale_stride = p.scale_stride;
  DeviceInfo device;
  Status status = current_device(device);
  args.early_start = device.early_start();
  if (status.ok()) {
    status = align_scales(p.element, p.blocks(), s.out_c, args.scales, args.zeros,
                          args.scale_stride, allocate, stream);
  }
  if (status.ok() && has_zeros(mode) && args.zeros == nullptr) {
    const int64_t bytes = p.blocks() * args.scale_stride * 2;
    void* offsets = allocate(bytes);
    status = zero(offsets, bytes, stream, "zeroing offsets");
    args.zeros = offsets;
    args.zero_mode = ZeroMode::kAdd;
  }
  if (status.ok() && c.split == SplitK::kStreamK) {
    StreamKSlots slots;
    status = stream_k_slots(kConvTileConfigs[c.row], gemm.m, gemm.n, ceil_div(gemm.k, kTileK),
                            c.slices, allocate, stream, slots);
    args.slices = slots.workers;
    args.partials = static_cast<float*>(slots.sums);
    args.flags = slots.flags;
  }
  if (!status.ok()) return status;
  const int64_t partial_stride = round_up(gemm.n, 8);
  if (c.split == SplitK::kParallel) {
    args.partials = static_cast<float*>(allocate(c.slices * gemm.m * partial_stride * 4));
  }
  status = cuda_status(conv_launchers(p.element, p.bits, mode)[c.row](conv),
                       "launching the convolution");
  if (!status.ok() || c.split != SplitK::kParallel) return status;

  ReduceArgs reduce;
  reduce.element = p.element;
  reduce.partials = args.partials;
  reduce.partial_stride = partial_stride;
  reduce.slices = c.slices;
  reduce.m = gemm.m;
  reduce.n = gemm.n;
  reduce.bias = p.bias;
  reduce.activation = p.activation;
  reduce.d = d;
  reduce.early_start = device.early_start();
  reduce.stream = stream;
  return cuda_status(launch_reduce_partials(reduce), "reducing partial sums");
}

Status run_conv_int8(const ConvCandidate& c, const ConvInt8Problem& p, const Pixels& pixels,
                     int8_t* d, const Allocate& allocate, void* stream) {
  const ConvShape& s = p.shape;
  ConvInt8Args args;
  args.shape = s;
  args.pixels = pixels.data;
  args.pixel_channels = static_cast<int>(pixels.channels);
  args.tap_channels = static_cast<int>(pixels.channels);
  args.padding = static_cast<int8_t>(p.input_zero_point);
  args.clamp_min = p.clamp_min;
  args.clamp_max = p.clamp_max;
  args.d = d;
  args.split = c.split;
  args.slices = c.slices;
  args.stream = stream;

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
      allocate(s.out_c * static_cast<int64_t>(sizeof(Requantization))));
  constants.stream = stream;
  args.channels = constants.out;
  Status status = cuda_status(launch_requantization(constants), "summing weights");
  if (status.ok()) status = pad_taps(p, pixels.channels, args.weight, allocate, stream);
  if (status.ok() && c.split == SplitK::kStreamK) {
    StreamKSlots slots;
    status = stream_k_slots(kConvInt8TileConfigs[c.row], s.rows(), s.out_c,
                            ceil_div(s.taps() * pixels.channels, kScaledTileK), c.slices, allocate,
                            stream, slots);
    args.slices = slots.workers;
    args.partials = slots.sums;
    args.flags = slots.flags;
  }
  if (!status.ok()) return status;
  return cuda_status(conv_int8_launchers()[c.row](args), "launching the convolution");
}

}  // namespace mixed_gemm
