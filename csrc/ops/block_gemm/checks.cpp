#include "ops/block_gemm/checks.h"

#include "ops/gemm/checks.h"
#include "ops/tensor_checks.h"
#include "problem/block_gemm.h"
#include "problem/conv.h"
#include "problem/extents.h"

namespace mixed_gemm {
namespace {

void check_by_block(const char* argument, const Tensor& t, const BlockGemmProblem& p) {
  check_matrix(
      kBlockGemmOp, argument, t, "(ceil(K/block_size), N)", p.blocks(), p.n,
      [&] { return joined("K=", p.k, ", block_size=", p.block_size); }, true);
}

Tensor check_block_tensor(const char* argument, const Tensor& t, const Tensor& a,
                          const BlockGemmProblem& p) {
  check_dtype(kBlockGemmOp, argument, t, a.scalar_type(), " (the dtype of a)");
  check_by_block(argument, t, p);
  return with_unit_inner_stride(t);
}

}  // namespace

CheckedBlockGemm check_block_quant_gemm(const BlockGemmArguments& g) {
  check_tensors(kBlockGemmOp, {{"a", g.a},
                               {"b", g.b},
                               {"scale_b", g.scale_b},
                               {"offset_b", g.offset_b},
                               {"bias", g.bias},
                               {"b_sums", g.b_sums}});
  CheckedBlockGemm checked;
  BlockGemmProblem& p = checked.problem;
  p.element = element_type(kBlockGemmOp, "a", dtype_of(g.a));
  check_rows(kBlockGemmOp, "a", g.a);
  check_dtype(kBlockGemmOp, "b", g.b, ScalarType::Char);
  check_column_major(kBlockGemmOp, g.a, g.b);
  p.k = g.a.size(g.a.dim() - 1);
  p.n = g.b.size(1);
  p.m = rows_of(g.a);
  const std::string reason = why_not_block_gemm(p.m, p.n, p.k, g.block_size);
  if (!reason.empty()) refuse(ErrorKind::kValue, kBlockGemmOp, reason);
  p.block_size = g.block_size == -1 ? std::max<int64_t>(p.k, 1) : g.block_size;
  p.activation = static_cast<Activation>(
      index_of(kBlockGemmOp, "activation", g.activation, kActivationNames, 0));

  checked.scale_b = check_block_tensor("scale_b", g.scale_b, g.a, p);
  checked.offset_b = check_block_tensor("offset_b", g.offset_b, g.a, p);
  if (checked.scale_b.stride(0) != checked.offset_b.stride(0)) {  // one stride serves both
    checked.scale_b = as_contiguous(checked.scale_b);
    checked.offset_b = as_contiguous(checked.offset_b);
  }
  p.scale_b = checked.scale_b.const_data_ptr();
  p.offset_b = checked.offset_b.const_data_ptr();
  p.scale_stride = p.blocks() > 1 ? checked.scale_b.stride(0) : p.n;
  if (g.bias) {
    check_dtype(kBlockGemmOp, "bias", *g.bias, g.a.scalar_type(), " (the dtype of a)");
    check_vector(kBlockGemmOp, "bias", *g.bias, "N", p.n);
    checked.bias = as_contiguous(*g.bias);
    p.bias = checked.bias->const_data_ptr();
  }
  if (g.b_sums) {
    check_dtype(kBlockGemmOp, "b_sums", *g.b_sums, ScalarType::Int);
    check_by_block("b_sums", *g.b_sums, p);
    checked.b_sums = contiguous_elements(*g.b_sums);
    p.b_sums = static_cast<const int32_t*>(checked.b_sums->const_data_ptr());
  }
  const auto stride = row_stride(g.a);
  checked.a = stride ? g.a : as_contiguous(g.a);
  p.a = checked.a.const_data_ptr();
  p.lda = stride.value_or(p.k);
  checked.b = g.b;
  p.b = static_cast<const int8_t*>(g.b.const_data_ptr());
  p.ldb = p.n > 1 ? g.b.stride(1) : p.k;
  std::vector<int64_t> sizes = sizes_of(g.a);
  sizes.back() = p.n;
  checked.d = empty_on(g.a, sizes);
  p.d = checked.d.mutable_data_ptr();
  return checked;
}

}  // namespace mixed_gemm
