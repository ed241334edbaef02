#include "dispatch/scaled_runner_cuda.h"

#include <cuda_runtime_api.h>

#include "dispatch/workspace_cuda.h"
#include "scaled/launchers.h"
#include "scaled_wgmma/launchers.h"
#include "transform/launchers.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kVectorBytes = 16;  // cp.async moves 16 bytes
constexpr int64_t kSumBytes = 4;

// Rows that start on 16 bytes: those given, or a copy.
Status align_rows(const void*& rows, int64_t& stride, int64_t count, int64_t k, bool wgmma,
                  const Allocate& allocate, void* stream) {
  const bool aligned = reinterpret_cast<uintptr_t>(rows) % kVectorBytes == 0;
  const bool apart = !wgmma || stride >= k;  // the copy engine takes no rows that overlap
  if (aligned && ((stride % kVectorBytes == 0 && apart) || count == 1)) {
    if (count == 1) stride = 0;
    return Status();
  }
  CopyRowsArgs copy;
  copy.src = rows;
  copy.src_stride = stride;
  copy.rows = count;
  copy.k = k;
  copy.dst_stride = round_up(k, kVectorBytes);
  copy.dst = allocate(count * copy.dst_stride);
  copy.stream = stream;
  rows = copy.dst;
  stride = copy.dst_stride;
  return cuda_status(launch_copy_rows(copy), "copying rows");
}

EpilogueKind epilogue_kind(const ScaledMmProblem& p) {
  if (p.azp_adj == nullptr) return p.bias ? EpilogueKind::kBias : EpilogueKind::kScaled;
  return p.azp ? EpilogueKind::kAzpPerToken : EpilogueKind::kAzp;
}

ScaledEpilogueArgs epilogue_args(const ScaledMmProblem& p) {
  ScaledEpilogueArgs args;
  args.kind = epilogue_kind(p);
  args.scale_a = {p.scale_a, static_cast<int>(p.scale_a_stride)};
  args.scale_b = {p.scale_b, static_cast<int>(p.scale_b_stride)};
  args.bias = p.bias;
  args.azp_adj = p.azp_adj;
  args.azp = p.azp;
  args.out_type = p.out;
  return args;
}

struct Kernels {
  const ScaledLaunchers* launchers;  // null where why_not_operand refuses
  int (*reduce)(const ScaledReduceArgs&);
};

Kernels kernels_of(OperandType operand) {
  if (operand == OperandType::kInt8) return {&int8_scaled_launchers(), launch_int8_scaled_reduce};
#if defined(MIXED_GEMM_WITH_FP8)
  return {&fp8_scaled_launchers(), launch_fp8_scaled_reduce};
#else
  return {nullptr, nullptr};
#endif
}

ScaledMmLaunch launcher_of(const ScaledCandidate& c, const Kernels& kernels) {
#if defined(MIXED_GEMM_WITH_WGMMA)
  if (c.wgmma) return wgmma_int8_launchers()[c.row];
#endif
  return (*kernels.launchers)[c.row];
}

}  // namespace

Status run_scaled(const ScaledCandidate& c, const ScaledMmProblem& p, const Allocate& allocate,
                  void* stream) {
  ScaledMmArgs args;
  args.m = static_cast<int>(p.m);
  args.n = static_cast<int>(p.n);
  args.k = static_cast<int>(p.k);
  args.a = p.a;
  args.a_stride = p.lda;
  args.b = p.b;
  args.b_stride = p.ldb;
  args.epilogue = epilogue_args(p);
  args.d = p.d;
  args.split = c.split;
  args.slices = c.slices;
  args.stream = stream;

  DeviceInfo device;
  Status status = current_device(device);
  if (status.ok() && p.k > 0)
    status = align_rows(args.a, args.a_stride, p.m, p.k, c.wgmma, allocate, stream);
  if (status.ok() && p.k > 0)
    status = align_rows(args.b, args.b_stride, p.n, p.k, c.wgmma, allocate, stream);
  if (status.ok() && c.split == SplitK::kStreamK) {
    StreamKSlots slots;
    status = stream_k_slots(tile_of(c), p.m, p.n, ceil_div(p.k, kScaledTileK), c.slices, allocate,
                            stream, slots);
    args.slices = slots.workers;
    args.partials = slots.sums;
    args.flags = slots.flags;
  }
  if (!status.ok()) return status;
  const int64_t partial_stride = round_up(p.n, 8);
  if (c.split == SplitK::kParallel) {
    args.partials = allocate(c.slices * p.m * partial_stride * kSumBytes);
  }
  args.resident = device.sm_count * tile_of(c).min_blocks;
  args.early_start = device.early_start();
  const Kernels kernels = kernels_of(p.operand);
  status = cuda_status(launcher_of(c, kernels)(args), "launching the GEMM");
  if (!status.ok() || c.split != SplitK::kParallel) return status;

  ScaledReduceArgs reduce;
  reduce.epilogue = args.epilogue;
  reduce.partials = args.partials;
  reduce.partial_stride = partial_stride;
  reduce.slices = c.slices;
  reduce.m = args.m;
  reduce.n = args.n;
  reduce.d = args.d;
  reduce.early_start = device.early_start();
  reduce.stream = stream;
  return cuda_status(kernels.reduce(reduce), "reducing partial sums");
}

}  // namespace mixed_gemm
