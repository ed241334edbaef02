#include "ops/block_gemm_checks.h"

#include "dispatch/conv_support.h"
#include "ops/checks.h"
#include "ops/tensor_checks.h"

namespace mixed_gemm {
namespace {

void check_b(const Tensor& a, const Tensor& b) {
  check_tensor(kBlockGemmOp, "b", b, a, "a");
  check_dtype(kBlockGemmOp, "b", b, ScalarType::Char, " (int8)");
  STD_TORCH_CHECK(b.dim() == 2, "mixed_gemm::", kBlockGemmOp, ": b must be 2-d (K, N), got ",
                  text(sizes_of(b)));
  const int64_t k = a.size(a.dim() - 1);
  STD_TORCH_CHECK(
      b.size(0) == k, "mixed_gemm::", kBlockGemmOp, ": b must be (K, N) with K=", k, " of a, got ",
      text(sizes_of(b)),
      b.size(1) == k ? ". Hint: it looks transposed, pass weight.t() of an [N, K] weight" : "");
  STD_TORCH_CHECK(k <= 1 || b.stride(0) == 1, "mixed_gemm::", kBlockGemmOp,
                  ": b must be column-major, stride(0) == 1 as weight.t() of a contiguous [N, K] "
                  "weight has it, got strides ",
                  text({b.strides().begin(), b.strides().end()}),
                  ". Hint: b.t().contiguous().t(), once");
}

Tensor check_block_tensor(const char* argument, const Tensor& t, const Tensor& a,
                          const BlockGemmProblem& p) {
  check_tensor(kBlockGemmOp, argument, t, a, "a");
  check_dtype(kBlockGemmOp, argument, t, a.scalar_type(), " (the dtype of a)");
  const bool right = t.dim() == 2 && t.size(0) == p.blocks() && t.size(1) == p.n;
  const bool transposed = t.dim() == 2 && t.size(0) == p.n && t.size(1) == p.blocks();
  STD_TORCH_CHECK(right, "mixed_gemm::", kBlockGemmOp, ": ", argument,
                  " must be (ceil(K/block_size), N) = (", p.blocks(), ", ", p.n, "), got ",
                  text(sizes_of(t)), "; K=", p.k, ", block_size=", p.block_size,
                  transposed ? ". Hint: it looks transposed, pass .t().contiguous()" : "");
  return with_unit_inner_stride(t);
}

}  // namespace

CheckedBlockGemm check_block_quant_gemm(const BlockGemmArguments& g) {
  STD_TORCH_CHECK(g.a.defined(), "mixed_gemm::", kBlockGemmOp,
                  ": a is undefined (None was passed for a required Tensor)");
  STD_TORCH_CHECK(g.a.dim() >= 1, "mixed_gemm::", kBlockGemmOp,
                  ": a must be (..., K), got a 0-d tensor");
  CheckedBlockGemm checked;
  BlockGemmProblem& p = checked.problem;
  p.element = element_type(kBlockGemmOp, "a", g.a.scalar_type());
  check_b(g.a, g.b);
  p.k = g.a.size(g.a.dim() - 1);
  p.n = g.b.size(1);
  p.m = 1;
  for (int64_t i = 0; i + 1 < g.a.dim(); ++i) p.m *= g.a.size(i);
  const std::string reason = why_not_block_gemm(p.m, p.n, p.k, g.block_size);
  STD_TORCH_CHECK(reason.empty(), "mixed_gemm::", kBlockGemmOp, ": ", reason);
  p.block_size = g.block_size == -1 ? std::max<int64_t>(p.k, 1) : g.block_size;
  p.activation = static_cast<Activation>(
      index_of(kBlockGemmOp, "activation", g.activation, kActivationNames, 0));

  checked.scale_b = check_block_tensor("scale_b", g.scale_b, g.a, p);
  checked.offset_b = check_block_tensor("offset_b", g.offset_b, g.a, p);
  if (checked.scale_b.stride(0) != checked.offset_b.stride(0)) {  // one stride serves both
    checked.scale_b = torch::stable::contiguous(checked.scale_b);
    checked.offset_b = torch::stable::contiguous(checked.offset_b);
  }
  p.scale_b = checked.scale_b.const_data_ptr();
  p.offset_b = checked.offset_b.const_data_ptr();
  p.scale_stride = p.blocks() > 1 ? checked.scale_b.stride(0) : p.n;
  if (g.bias) {
    check_tensor(kBlockGemmOp, "bias", *g.bias, g.a, "a");
    check_dtype(kBlockGemmOp, "bias", *g.bias, g.a.scalar_type(), " (the dtype of a)");
    check_vector(kBlockGemmOp, "bias", *g.bias, "N", p.n);
    checked.bias = torch::stable::contiguous(*g.bias);
    p.bias = checked.bias->const_data_ptr();
  }
  const auto stride = row_stride(g.a);
  checked.a = stride ? g.a : torch::stable::contiguous(g.a);
  p.a = checked.a.const_data_ptr();
  p.lda = stride.value_or(p.k);
  checked.b = g.b;
  p.b = static_cast<const int8_t*>(g.b.const_data_ptr());
  p.ldb = p.n > 1 ? g.b.stride(1) : p.k;
  std::vector<int64_t> sizes = sizes_of(g.a);
  sizes.back() = p.n;
  checked.d = torch::stable::new_empty(g.a, sizes);
  p.d = checked.d.mutable_data_ptr();
  return checked;
}

}  // namespace mixed_gemm
