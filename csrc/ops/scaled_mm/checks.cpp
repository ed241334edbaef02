#include "ops/scaled_mm/checks.h"

#include "ops/gemm/checks.h"
#include "ops/tensor_checks.h"
#include "problem/extents.h"
#include "problem/gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {
namespace {

OperandType operand_type(const char* op, ScalarType type) {
  switch (type) {
    case ScalarType::Char:
      return OperandType::kInt8;
    case ScalarType::Float8_e4m3fn:
      return OperandType::kFloat8E4M3;
    case ScalarType::Float8_e5m2:
      wrong_type(op, {"a", "be int8 or float8_e4m3fn", dtype_name(type), "",
                      "mixed_gemm.ops.quantize_fp8(a.float()) makes float8_e4m3fn and its scale"});
    default:
      wrong_type(op, {"a", "be int8 or float8_e4m3fn", dtype_name(type), "",
                      "mixed_gemm.quantize_per_token(a) makes int8 and its scale"});
  }
}

// How a vector may be laid out along one side of the product.
struct Side {
  bool (*fits)(const Tensor& t, const Tensor& a, const ScaledMmProblem& p);
  std::string expected;
};

// One for each row of a: (M,), (M, 1), or the leading sizes of a with or without a last 1.
Side per_row(const ScaledMmProblem& p) {
  return {[](const Tensor& t, const Tensor& a, const ScaledMmProblem& problem) {
            std::vector<int64_t> sizes = sizes_of(t), leading = sizes_of(a);
            leading.pop_back();
            const std::vector<int64_t> rows = {problem.m};
            if (sizes == leading || sizes == rows) return true;
            if (sizes.empty() || sizes.back() != 1) return false;
            sizes.pop_back();
            return sizes == leading || sizes == rows;
          },
          "(M,) or (M, 1), M=" + std::to_string(p.m)};
}

Side per_column(const ScaledMmProblem& p) {
  return {[](const Tensor& t, const Tensor&, const ScaledMmProblem& problem) {
            const std::vector<int64_t> sizes = sizes_of(t);
            return sizes == std::vector<int64_t>{problem.n} ||
                   sizes == std::vector<int64_t>{1, problem.n};
          },
          "(N,) or (1, N), N=" + std::to_string(p.n)};
}

struct Scale {
  Tensor kept;
  int64_t stride;
};

Scale check_scale(const ScaledMmArguments& g, const ScaledMmProblem& p, const char* argument,
                  const Tensor& t, const Side& side) {
  check_dtype(g.op, argument, t, ScalarType::Float);
  if (t.numel() != 1 && !side.fits(t, g.a, p)) {
    wrong_value(g.op, {argument, "have one element or be " + side.expected, text(sizes_of(t))});
  }
  return {contiguous_elements(t), t.numel() == 1 ? 0 : 1};
}

// azp_adj and azp into `checked`.
void check_azp(const ScaledMmArguments& g, CheckedScaledMm& checked) {
  ScaledMmProblem& p = checked.problem;
  if (p.operand != OperandType::kInt8) {
    wrong_type(g.op, {"a and b", "be int8: zero points are integers", dtype_name(g.a.scalar_type()),
                      "", "scaled_mm"});
  }
  const struct {
    const char* name;
    const std::optional<Tensor>& tensor;
    Side side;
    const char* hint;
    std::optional<Tensor>& kept;
    const int32_t*& pointer;
  } vectors[] = {
      {"azp_adj", g.azp_adj, per_column(p), "", checked.azp_adj, p.azp_adj},
      {"azp", g.azp, per_row(p), "one for all rows is folded into azp_adj", checked.azp, p.azp}};
  for (const auto& v : vectors) {
    if (!v.tensor) continue;
    check_dtype(g.op, v.name, *v.tensor, ScalarType::Int);
    if (!v.side.fits(*v.tensor, g.a, p)) {
      wrong_value(g.op, {v.name, "be " + v.side.expected, text(sizes_of(*v.tensor)), "", v.hint});
    }
    v.kept = contiguous_elements(*v.tensor);
    v.pointer = static_cast<const int32_t*>(v.kept->const_data_ptr());
  }
}

// Scales of blocks into `checked`: of a [..., ceil(K / elements)], of b [ceil(N / rows), the same].
void check_block_scales(const ScaledMmArguments& g, CheckedScaledMm& checked) {
  ScaledMmProblem& p = checked.problem;
  const std::vector<int64_t>& block = *g.block_size;
  const std::string reason = why_not_blocks(p.operand, block);
  if (!reason.empty()) refuse(ErrorKind::kValue, g.op, reason);
  p.block_n = block[0], p.block_k = block[1];
  const int64_t blocks = ceil_div(p.k, p.block_k), rows = ceil_div(p.n, p.block_n);
  const std::string because =
      joined("M=", p.m, ", N=", p.n, ", K=", p.k, ", block_size=", text(block));
  check_dtype(g.op, "scale_a", g.scale_a, ScalarType::Float);
  std::vector<int64_t> sizes = sizes_of(g.a);
  sizes.back() = blocks;
  const std::vector<int64_t> flat = {p.m, blocks}, given = sizes_of(g.scale_a);
  if (given != sizes && given != flat) {
    wrong_value(g.op,
                {"scale_a", joined("be (..., ceil(K/block_size[1])) = ", text(sizes)), text(given),
                 because, "mixed_gemm.ops.quantize_fp8(a, block_size=...) makes it"});
  }
  check_dtype(g.op, "scale_b", g.scale_b, ScalarType::Float);
  check_matrix(
      g.op, "scale_b", g.scale_b, "(ceil(N/block_size[0]), ceil(K/block_size[1]))", rows, blocks,
      [&] { return because; }, true);
  checked.scale_a = contiguous_elements(g.scale_a);
  checked.scale_b = contiguous_elements(g.scale_b);
  p.scale_a_stride = p.scale_b_stride = blocks;
}

// Fills the part of the problem that says where a lies; returns the tensor it points into.
template <typename Problem>
Tensor check_activations(const char* op, const Tensor& a, Problem& p) {
  p.element = element_type(op, "a", dtype_of(a));
  check_rows(op, "a", a);
  p.m = rows_of(a);
  p.k = a.size(a.dim() - 1);
  const auto stride = row_stride(a);
  const Tensor kept = stride ? a : as_contiguous(a);
  p.a = kept.const_data_ptr();
  p.a_stride = stride.value_or(p.k);
  return kept;
}

Tensor check_number(const char* op, const char* argument, const Tensor& t, ScalarType dtype) {
  check_dtype(op, argument, t, dtype);
  if (t.numel() != 1) {
    wrong_value(op, {argument, "have one element (per tensor)", text(sizes_of(t))});
  }
  return contiguous_elements(t);
}

}  // namespace

CheckedScaledMm check_scaled_mm(const ScaledMmArguments& g) {
  const char* op = g.op;
  check_tensors(op, {{"a", g.a},
                     {"b", g.b},
                     {"scale_a", g.scale_a},
                     {"scale_b", g.scale_b},
                     {"azp_adj", g.azp_adj},
                     {"azp", g.azp},
                     {"bias", g.bias}});
  CheckedScaledMm checked;
  ScaledMmProblem& p = checked.problem;
  p.operand = operand_type(op, dtype_of(g.a));
  check_rows(op, "a", g.a);
  check_dtype(op, "b", g.b, g.a.scalar_type(), " (the dtype of a)");
  check_column_major(op, g.a, g.b);
  p.m = rows_of(g.a);
  p.k = g.a.size(g.a.dim() - 1);
  p.n = g.b.size(1);
  const auto reasons = why_not_scaled_mm(p.m, p.n, p.k, p.operand);
  if (!reasons.empty()) refuse(ErrorKind::kValue, op, reasons.front());
  p.out = element_type(op, "out_dtype", g.out_dtype);

  if (g.block_size) {
    check_block_scales(g, checked);
  } else {
    const Scale scale_a = check_scale(g, p, "scale_a", g.scale_a, per_row(p));
    const Scale scale_b = check_scale(g, p, "scale_b", g.scale_b, per_column(p));
    checked.scale_a = scale_a.kept, p.scale_a_stride = scale_a.stride;
    checked.scale_b = scale_b.kept, p.scale_b_stride = scale_b.stride;
  }
  p.scale_a = static_cast<const float*>(checked.scale_a.const_data_ptr());
  p.scale_b = static_cast<const float*>(checked.scale_b.const_data_ptr());
  if (g.azp_adj) check_azp(g, checked);
  if (g.bias) {
    check_dtype(op, "bias", *g.bias, g.out_dtype, " (out_dtype)");
    check_vector(op, "bias", *g.bias, "N", p.n);
    checked.bias = as_contiguous(*g.bias);
    p.bias = checked.bias->const_data_ptr();
  }
  const auto stride = row_stride(g.a);
  checked.a = stride ? g.a : as_contiguous(g.a);
  checked.b = g.b;
  p.a = checked.a.const_data_ptr();
  p.lda = stride.value_or(p.k);
  p.b = checked.b.const_data_ptr();
  p.ldb = p.n > 1 ? checked.b.stride(1) : p.k;
  checked.output_sizes = sizes_of(g.a);
  checked.output_sizes.back() = p.n;
  return checked;
}

CheckedPerToken check_quantize_per_token(const Tensor& a, bool symmetric) {
  check_tensors("quantize_per_token", {{"a", a}});
  CheckedPerToken checked;
  checked.a = check_activations("quantize_per_token", a, checked.problem);
  std::vector<int64_t> sizes = sizes_of(a);
  checked.q = empty_on(a, sizes, ScalarType::Char);
  sizes.back() = 1;
  checked.scale = empty_on(a, sizes, ScalarType::Float);
  if (!symmetric) checked.azp = empty_on(a, sizes, ScalarType::Int);
  checked.problem.q = static_cast<int8_t*>(checked.q.mutable_data_ptr());
  checked.problem.scale = static_cast<float*>(checked.scale.mutable_data_ptr());
  if (checked.azp) checked.problem.azp = static_cast<int32_t*>(checked.azp->mutable_data_ptr());
  return checked;
}

CheckedPerTensor check_quantize_per_tensor(const Tensor& a, const Tensor& scale,
                                           const std::optional<Tensor>& azp) {
  const char* op = "quantize_per_tensor";
  check_tensors(op, {{"a", a}, {"scale", scale}, {"azp", azp}});
  CheckedPerTensor checked;
  checked.a = check_activations(op, a, checked.problem);
  checked.scale = check_number(op, "scale", scale, ScalarType::Float);
  checked.problem.scale = static_cast<const float*>(checked.scale.const_data_ptr());
  if (azp) {
    checked.azp = check_number(op, "azp", *azp, ScalarType::Int);
    checked.problem.azp = static_cast<const int32_t*>(checked.azp->const_data_ptr());
  }
  checked.q = empty_on(a, sizes_of(a), ScalarType::Char);
  checked.problem.q = static_cast<int8_t*>(checked.q.mutable_data_ptr());
  return checked;
}

CheckedFloat8 check_quantize_fp8(const Tensor& a, std::optional<int64_t> block_size) {
  const char* op = "quantize_fp8";
  check_tensors(op, {{"a", a}});
  CheckedFloat8 checked;
  QuantizeFloat8Problem& p = checked.problem;
  checked.a = check_activations(op, a, p);
  if (block_size && *block_size < 1) {
    wrong_value(op,
                {"block_size", "be None (all of K) or at least 1", std::to_string(*block_size)});
  }
  p.block_k = block_size.value_or(0);
  std::vector<int64_t> sizes = sizes_of(a);
  checked.q = empty_on(a, sizes, ScalarType::Float8_e4m3fn);
  sizes.back() = p.blocks();
  checked.scale = empty_on(a, sizes, ScalarType::Float);
  p.q = static_cast<uint8_t*>(checked.q.mutable_data_ptr());
  p.scale = static_cast<float*>(checked.scale.mutable_data_ptr());
  return checked;
}

}  // namespace mixed_gemm
