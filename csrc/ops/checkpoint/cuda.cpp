// CUDA kernels of the ops on checkpoint tensors.
#include "awq/family.h"
#include "ops/checkpoint/checks.h"
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "transform/launchers.h"

namespace mixed_gemm {
namespace {

// The kernels read 8 scales at once.
void align_scales(CheckedAwq& checked) {
  AwqProblem& p = checked.problem;
  if (reinterpret_cast<uintptr_t>(p.scales) % 16 == 0) return;
  checked.scales = torch::stable::clone(checked.scales);
  p.scales = checked.scales.const_data_ptr();
}

Tensor dequantize(const CudaCall& call, CheckedAwq& checked) {
  AwqProblem& p = checked.problem;
  align_scales(checked);
  Tensor w = empty_on(checked.scales, {p.k, p.n});
  p.d = w.mutable_data_ptr();
  if (w.numel() > 0) {
    call.require(cuda_status(launch_dequantize_awq(p, call.stream()), "dequantizing"));
  }
  return w;
}

// Few rows: weights go from the checkpoint's tensors straight into mma fragments. Many rows:
// dequantize + dense GEMM. Both have fp32 sums and one rounding.
Tensor awq_gemm_cuda(const Tensor& input, const Tensor& qweight, const Tensor& scales,
                     const Tensor& qzeros, int64_t split_k_iters) {
  CheckedAwq checked = check_awq_gemm(input, qweight, scales, qzeros, split_k_iters);
  CudaCall call("awq_gemm", checked.input);
  Tensor d = empty_on(input, checked.output_sizes);
  if (d.numel() == 0) return d;
  AwqProblem& p = checked.problem;
  if (Awq::takes(p)) {
    align_scales(checked);
    p.d = d.mutable_data_ptr();
    call.require(Awq::run(p, call.context()));
    return d;
  }
  const Tensor w = dequantize(call, checked);
  Tensor out = torch::stable::view(d, {p.m, p.n});
  dense_mm(torch::stable::reshape(checked.input, {p.m, p.k}), w, out);
  return d;
}

Tensor awq_dequantize_cuda(const Tensor& qweight, const Tensor& scales, const Tensor& qzeros) {
  CheckedAwq checked = check_awq_weight("awq_dequantize", qweight, scales, qzeros);
  return dequantize(CudaCall("awq_dequantize", checked.qweight), checked);
}

Tensor repack(const char* op, const CheckedRepack& checked, int (*launch)(const RepackArgs&)) {
  const CudaCall call(op, checked.qweight);
  Tensor packed = checked.new_packed();
  RepackArgs args;
  args.bits = checked.bits;
  args.n = checked.n;
  args.k = checked.k;
  args.qweight = checked.words();
  args.perm = checked.order();
  args.packed = static_cast<uint8_t*>(packed.mutable_data_ptr());
  args.stream = call.stream();
  if (packed.numel() > 0) call.require(cuda_status(launch(args), "repacking"));
  return packed;
}

Tensor awq_repack_cuda(const Tensor& qweight) {
  return repack("awq_repack", check_awq_repack(qweight), launch_repack_awq);
}

Tensor gptq_repack_cuda(const Tensor& qweight, std::optional<Tensor> perm, int64_t bits) {
  return repack("gptq_repack", check_gptq_repack(qweight, perm, bits), launch_repack_gptq);
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("awq_gemm", TORCH_BOX(&mixed_gemm::awq_gemm_cuda));
  m.impl("awq_dequantize", TORCH_BOX(&mixed_gemm::awq_dequantize_cuda));
  m.impl("awq_repack", TORCH_BOX(&mixed_gemm::awq_repack_cuda));
  m.impl("gptq_repack", TORCH_BOX(&mixed_gemm::gptq_repack_cuda));
}
