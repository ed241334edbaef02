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

// Fills the part of the problem that says where a lies; returns the tensor it points into.
Tensor check_activations(const char* op, const Tensor& a, QuantizePerTokenProblem& p) {
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

Scale check_scale(const char* op, const Tensor& a, const ScaledMmProblem& p, const char* argument,
                  const Tensor& t, const Side& side) {
  check_dtype(op, argument, t, ScalarType::Float);
  if (t.numel() != 1 && !side.fits(t, a, p)) {
    wrong_value(op, {argument, "have one element or be " + side.expected, text(sizes_of(t))});
  }
  return {contiguous_elements(t), t.numel() == 1 ? 0 : 1};
}

// Integers of every row or column; `pointer` is into what is returned.
Tensor check_integers(const char* op, const Tensor& a, const ScaledMmProblem& p,
                      const char* argument, const Tensor& t, const Side& side, const char* hint,
                      const int32_t*& pointer) {
  check_dtype(op, argument, t, ScalarType::Int);
  if (!side.fits(t, a, p)) {
    wrong_value(op, {argument, "be " + side.expected, text(sizes_of(t)), "", hint});
  }
  Tensor kept = contiguous_elements(t);
  pointer = static_cast<const int32_t*>(kept.const_data_ptr());
  return kept;
}

// azp_adj and azp into `checked`.
void check_azp(const ScaledMmArguments& g, CheckedScaledMm& checked) {
  ScaledMmProblem& p = checked.problem;
  if (p.operand != OperandType::kInt8) {
    wrong_type(g.op, {"a and b", "be int8: zero points are integers", dtype_name(g.a.scalar_type()),
                      "", "scaled_mm"});
  }
  checked.azp_adj =
      check_integers(g.op, g.a, p, "azp_adj", *g.azp_adj, per_column(p), "", p.azp_adj);
  if (!g.azp) return;
  const char* hint = "one for all rows is folded into azp_adj";
  checked.azp = check_integers(g.op, g.a, p, "azp", *g.azp, per_row(p), hint, p.azp);
}

// In the dtype of the output; `why` says which that is.
Tensor check_bias(const char* op, const Tensor& bias, ScalarType dtype, const char* why,
                  ScaledMmProblem& p) {
  check_dtype(op, "bias", bias, dtype, why);
  check_vector(op, "bias", bias, "N", p.n);
  Tensor kept = as_contiguous(bias);
  p.bias = kept.const_data_ptr();
  return kept;
}

// The sizes of a problem, once the dtype of a is known to be right.
void check_operands(const char* op, const Tensor& a, const Tensor& b, ScalarType dtype,
                    const char* why, ScaledMmProblem& p) {
  check_dtype(op, "b", b, dtype, why);
  check_column_major(op, a, b);
  p.m = rows_of(a);
  p.k = a.size(a.dim() - 1);
  p.n = b.size(1);
  const auto reasons = why_not_scaled_mm(p.m, p.n, p.k, p.operand);
  if (!reasons.empty()) refuse(ErrorKind::kValue, op, reasons.front());
  p.b = b.const_data_ptr();
  p.ldb = p.n > 1 ? b.stride(1) : p.k;
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
  check_operands(op, g.a, g.b, g.a.scalar_type(), " (the dtype of a)", p);
  p.out = element_type(op, "out_dtype", g.out_dtype);

  if (g.block_size) {
    check_block_scales(g, checked);
  } else {
    const Scale scale_a = check_scale(op, g.a, p, "scale_a", g.scale_a, per_row(p));
    const Scale scale_b = check_scale(op, g.a, p, "scale_b", g.scale_b, per_column(p));
    checked.scale_a = scale_a.kept, p.scale_a_stride = scale_a.stride;
    checked.scale_b = scale_b.kept, p.scale_b_stride = scale_b.stride;
  }
  p.scale_a = static_cast<const float*>(checked.scale_a.const_data_ptr());
  p.scale_b = static_cast<const float*>(checked.scale_b.const_data_ptr());
  if (g.azp_adj) check_azp(g, checked);
  if (g.bias) checked.bias = check_bias(op, *g.bias, g.out_dtype, " (out_dtype)", p);
  const auto stride = row_stride(g.a);
  checked.a = stride ? g.a : as_contiguous(g.a);
  checked.b = g.b;
  p.a = checked.a.const_data_ptr();
  p.lda = stride.value_or(p.k);
  checked.output_sizes = sizes_of(g.a);
  checked.output_sizes.back() = p.n;
  return checked;
}

CheckedScaledMmDynamic check_scaled_mm_dynamic(const Tensor& a, const Tensor& b,
                                               const Tensor& scale_b,
                                               const std::optional<Tensor>& azp_adj,
                                               const std::optional<Tensor>& bias) {
  const char* op = "scaled_mm_dynamic";
  check_tensors(op,
                {{"a", a}, {"b", b}, {"scale_b", scale_b}, {"azp_adj", azp_adj}, {"bias", bias}});
  CheckedScaledMmDynamic checked;
  ScaledMmProblem& p = checked.problem.product;
  checked.a = check_activations(op, a, checked.problem.rows);
  p.out = checked.problem.rows.element;
  check_operands(op, a, b, ScalarType::Char, "", p);
  const Scale scale = check_scale(op, a, p, "scale_b", scale_b, per_column(p));
  checked.scale_b = scale.kept, p.scale_b_stride = scale.stride;
  p.scale_b = static_cast<const float*>(checked.scale_b.const_data_ptr());
  if (azp_adj) {
    checked.azp_adj = check_integers(op, a, p, "azp_adj", *azp_adj, per_column(p), "", p.azp_adj);
  }
  if (bias) checked.bias = check_bias(op, *bias, a.scalar_type(), " (the dtype of a)", p);
  checked.b = b;
  checked.output_sizes = sizes_of(a);
  checked.output_sizes.back() = p.n;
  return checked;
}

}  // namespace mixed_gemm
