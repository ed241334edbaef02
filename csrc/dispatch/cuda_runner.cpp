#include "dispatch/cuda_runner.h"

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

#include "core/mutant.h"
#include "dispatch/cost_model.h"
#include "dispatch/gemm_args_of.h"
#include "dispatch/support.h"
#include "dispatch/workspace_cuda.h"
#include "grid/grid.h"
#include "multistage/launchers.h"
#include "skinny/launchers.h"
#include "transform/launchers.h"
#include "wgmma/launchers.h"

namespace mixed_gemm {
namespace {

constexpr int kMaxDevices = 64;
constexpr int64_t kVectorBytes = 16;  // cp.async moves 16 bytes
constexpr int64_t kVector = kGemmVector;

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0; }
int64_t element_bytes(ElementType element) { return element == ElementType::kFloat32 ? 4 : 2; }

DeviceInfo query_device(int device) {
  const auto attribute = [device](cudaDeviceAttr which) {
    int value = 0;
    cudaDeviceGetAttribute(&value, which, device);
    return value;
  };
  if (MIXED_GEMM_PREPARE_MUTANT() != 0) return DeviceInfo();
  DeviceInfo info;
  info.sm = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
            attribute(cudaDevAttrComputeCapabilityMinor);
  info.sm_count = attribute(cudaDevAttrMultiProcessorCount);
  info.smem_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  // Two transfers per clock; 90 % of the pin rate is what a copy reaches.
  info.dram_gb_per_s = 0.9 * 2e-6 * attribute(cudaDevAttrMemoryClockRate) *
                       attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  return with_default_rates(info);
}

Status stage_activations(GemmProblem& p, int64_t k_multiple, int64_t least_stride,
                         const Allocate& allocate, void* stream) {
  const bool rows_fit = p.m == 1 || (p.a_stride % k_multiple == 0 && p.a_stride >= least_stride);
  const bool in_form = aligned(p.a) && rows_fit && p.k % k_multiple == 0;
  if (in_form && p.pre_scale == nullptr) return Status();
  CopyPaddedArgs copy;
  copy.element = p.element;
  copy.src = p.a;
  copy.src_stride = p.a_stride;
  copy.rows = p.m;
  copy.columns = p.k;
  copy.dst_columns = round_up(p.k, k_multiple);
  copy.pre_scale = p.pre_scale;
  copy.dst = allocate(copy.rows * copy.dst_columns * element_bytes(p.element));
  copy.stream = stream;
  p.a = copy.dst;
  p.a_stride = copy.dst_columns;
  p.pre_scale = nullptr;
  return cuda_status(launch_copy_padded(copy), "copying activations");
}

Status run_skinny(const Candidate& c, GemmProblem p, const Allocate& allocate, void* stream) {
  DeviceInfo device;
  Status status = current_device(device);
  if (status.ok()) status = stage_activations(p, kVector, 0, allocate, stream);
  if (!status.ok()) return status;
  const SkinnyConfig& row = kSkinnyConfigs[c.row];
  const SkinnyMode mode = skinny_mode(row, p.scheme, p.m, p.k);
  int64_t scale_stride = p.scale_stride;
  if (stages_scales(row, mode)) {
    status = align_scales(p.element, num_groups(p), p.n, p.scales, p.zeros, scale_stride, allocate,
                          stream);
    if (!status.ok()) return status;
  }
  GemmArgs args = gemm_args_of(p, scale_stride, stream);
  args.split = c.split;
  args.slices = c.slices;
  args.early_start = device.early_start();
  return cuda_status(skinny_launchers(p.element, p.scheme.bits, mode)[c.row](args),
                     "launching the GEMM");
}

GemmLaunch tiled_launcher(const Candidate& c, const GemmProblem& p) {
  if (c.family == Family::kWgmma)
    return wgmma_launchers(p.element, p.scheme.bits, wgmma_mode(p.scheme, p.k))[c.row];
  return multistage_launchers(p.element, p.scheme.bits, scale_mode(p.scheme, p.k))[c.row];
}

// The families that work by tiles.
Status run_tiled(const Candidate& c, const GemmProblem& original, const Allocate& allocate,
                 void* stream) {
  GemmProblem p = original;
  const GemmLaunch launch = tiled_launcher(c, p);
  const bool per_channel = scale_mode(p.scheme, p.k) == ScaleMode::kPerChannel;
  // The copy engine takes no rows that overlap.
  const int64_t least_stride = c.family == Family::kWgmma ? p.k : 0;
  Status status = stage_activations(p, kVector, least_stride, allocate, stream);
  int64_t scale_stride = p.scale_stride;
  if (!per_channel && status.ok()) {  // the epilogue reads element by element
    status = align_scales(p.element, num_groups(p), p.n, p.scales, p.zeros, scale_stride, allocate,
                          stream);
  }
  if (!status.ok()) return status;

  GemmArgs args = gemm_args_of(p, scale_stride, stream);
  args.split = c.split;
  args.slices = c.slices;
  DeviceInfo device;
  status = current_device(device);
  if (!status.ok()) return status;
  args.resident = device.sm_count * (c.family == Family::kWgmma
                                         ? wgmma_blocks(tile_of(c), wgmma_mode(p.scheme, p.k))
                                         : tile_of(c).min_blocks);
  args.early_start = device.early_start();
  const int64_t partial_stride = round_up(p.n, kVector);
  if (c.split == SplitK::kParallel) {
    args.partials = static_cast<float*>(allocate(c.slices * p.m * partial_stride * 4));
  }
  if (c.split == SplitK::kStreamK) {
    StreamKSlots slots;
    status = stream_k_slots(tile_of(c), p.m, p.n, ceil_div(p.k, unit_k(tile_of(c))), c.slices,
                            allocate, stream, slots);
    if (!status.ok()) return status;
    args.slices = slots.workers;
    args.partials = static_cast<float*>(slots.sums);
    args.flags = slots.flags;
  }
  status = cuda_status(launch(args), "launching the GEMM");
  if (!status.ok() || c.split != SplitK::kParallel) return status;

  ReduceArgs reduce;
  reduce.element = p.element;
  reduce.partials = args.partials;
  reduce.partial_stride = partial_stride;
  reduce.slices = c.slices;
  reduce.m = p.m;
  reduce.n = p.n;
  reduce.channel_scale = per_channel ? p.scales : nullptr;
  reduce.bias = p.bias;
  reduce.activation = p.activation;
  reduce.d = p.d;
  reduce.early_start = device.early_start();
  reduce.stream = stream;
  return cuda_status(launch_reduce_partials(reduce), "reducing partial sums");
}

}  // namespace

Status cuda_status(int error, const char* what) {
  if (error == cudaSuccess) return Status();
  return Status(std::string(what) +
                " failed: " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

Status cuda_device_count(int& count) {
  count = 0;
  return cuda_status(cudaGetDeviceCount(&count), "counting the CUDA devices");
}

const DeviceInfo& cuda_device_info(int device) {
  static std::array<DeviceInfo, kMaxDevices> infos;
  static std::array<std::once_flag, kMaxDevices> once;
  std::call_once(once.at(device), [device] { infos[device] = query_device(device); });
  return infos[device];
}

Status run_fused(const Candidate& c, const GemmProblem& problem, const Allocate& allocate,
                 void* stream) {
  return c.family == Family::kSkinny ? run_skinny(c, problem, allocate, stream)
                                     : run_tiled(c, problem, allocate, stream);
}

}  // namespace mixed_gemm
