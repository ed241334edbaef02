#include "ops/dense_cuda.h"

#include "grid/grid.h"
#include "ops/call_aten.h"
#include "transform/launchers.h"

namespace mixed_gemm {
void dense_mm(const Tensor& a, const Tensor& b, Tensor& out) {
  call_aten("aten::mm", "out", a, b, out);
}

Status dequantize_cuda(const GemmProblem& p, ElementType out_type, void* out, void* stream) {
  DequantizeArgs args;
  args.out_type = out_type;
  args.out = out;
  args.stream = stream;
  args.scheme = p.scheme;
  args.n = p.n;
  args.k = p.k;
  args.b_packed = p.b_packed;
  args.scale_type = p.element;
  args.scales = p.scales;
  args.zeros = p.zeros;
  args.scale_stride = p.scale_stride;
  args.groups = num_groups(p);
  args.factor = p.factor;
  return cuda_status(launch_dequantize(args), "dequantizing");
}

Status finish_dense(const GemmProblem& p, const float* sums, int slices, void* stream) {
  const ReducedOutput output{p.element, p.m, p.n, {nullptr, p.factor}, p.bias, p.activation, p.d};
  const ReduceArgs args{output, sums, p.n, slices, Pdl(), stream};
  return cuda_status(launch_reduce_partials(args), "finishing the output");
}

Status run_dequantize_dense(const GemmProblem& p, const Tensor& a,
                            const std::optional<Tensor>& pre_scale, Tensor& d, void* stream) {
  Tensor weight = empty_on(a, {p.n, p.k});
  GemmProblem without_factor = p;  // which meets the sums
  without_factor.factor = nullptr;
  const Status status =
      dequantize_cuda(without_factor, p.element, weight.mutable_data_ptr(), stream);
  if (!status.ok()) return status;
  const Tensor weight_t = torch::stable::transpose(weight, 0, 1);
  Tensor rows = torch::stable::reshape(a, {p.m, p.k});
  if (pre_scale) rows = call_aten("aten::mul", "Tensor", rows, *pre_scale);

  if (p.bias == nullptr && p.factor == nullptr && p.activation == Activation::kIdentity) {
    Tensor out = torch::stable::view(d, {p.m, p.n});
    dense_mm(rows, weight_t, out);
    return Status();
  }
  // fp32 sums, so that bias and activation come before the only rounding.
  const Tensor sums = p.element == ElementType::kFloat32
                          ? call_aten("aten::mm", "", rows, weight_t)
                          : call_aten("aten::mm", "dtype", rows, weight_t, ScalarType::Float);
  return finish_dense(p, static_cast<const float*>(sums.const_data_ptr()), 1, stream);
}

}  // namespace mixed_gemm
