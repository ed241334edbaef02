#include "ops/checks.h"

#include <cstdint>

#include "dispatch/support.h"
#include "layout/weight_layout.h"
#include "ops/tensor_checks.h"

namespace mixed_gemm {
namespace {

void check_group_tensor(const char* op, const char* argument, const Tensor& t, int64_t groups,
                        int64_t n, int64_t k, int64_t group_size) {
  const bool right = t.dim() == 2 && t.size(0) == groups && t.size(1) == n;
  const bool transposed = t.dim() == 2 && t.size(0) == n && t.size(1) == groups && !right;
  STD_TORCH_CHECK(right, "mixed_gemm::", op, ": ", argument, " must be (ceil(K/group_size), N) = (",
                  groups, ", ", n, "), got ", text(sizes_of(t)), "; K=", k,
                  ", group_size=", group_size,
                  transposed ? ". Hint: it looks transposed, pass .t().contiguous()" : "");
}

void check_problem(const char* op, int64_t m, int64_t n, int64_t k, int64_t bits,
                   int64_t group_size) {
  const auto reasons = why_not_problem(m, n, k, bits, group_size);
  if (reasons.empty()) return;
  const int64_t nearest = nearest_group_size(k, group_size);
  const std::string hint =
      nearest == group_size ? "" : ". Hint: group_size=" + std::to_string(nearest) + " is accepted";
  STD_TORCH_CHECK(false, "mixed_gemm::", op, ": ", reasons.front(), hint);
}

}  // namespace

ElementType element_type(const char* op, const char* argument, ScalarType type) {
  switch (type) {
    case ScalarType::Half:
      return ElementType::kFloat16;
    case ScalarType::BFloat16:
      return ElementType::kBFloat16;
    case ScalarType::Float:
      return ElementType::kFloat32;
    default:
      STD_TORCH_CHECK(false, "mixed_gemm::", op, ": ", argument,
                      " must be float16, bfloat16 or float32, got ", dtype_name(type),
                      ". Hint: ", argument, ".to(torch.float16)");
  }
  return ElementType::kFloat32;
}

ScalarType scalar_type(ElementType element) {
  constexpr ScalarType kTypes[] = {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float};
  return kTypes[static_cast<int>(element)];
}

Tensor check_packed(const char* op, const Tensor& b_packed, int64_t bits, int64_t n, int64_t k) {
  STD_TORCH_CHECK(b_packed.defined(), "mixed_gemm::", op, ": b_packed is undefined");
  check_problem(op, 0, n, k, bits, -1);
  check_dtype(op, "b_packed", b_packed, ScalarType::Byte, " (uint8, from mixed_gemm.pack_weights)");
  const int64_t rows = round_up(n, kPadN), bytes = round_up(k, kPadK) * bits / 8;
  STD_TORCH_CHECK(b_packed.dim() == 2 && b_packed.size(0) == rows && b_packed.size(1) == bytes,
                  "mixed_gemm::", op,
                  ": b_packed must be (round_up(N, 64), round_up(K, 64) * bits / 8) = (", rows,
                  ", ", bytes, "), got ", text(sizes_of(b_packed)), "; N=", n, ", K=", k,
                  ", bits=", bits);
  Tensor packed = torch::stable::contiguous(b_packed);
  const bool aligned = reinterpret_cast<uintptr_t>(packed.const_data_ptr()) % 16 == 0;
  return aligned ? packed : torch::stable::clone(packed);
}

Tensor check_quantized(const char* op, const Tensor& q, int64_t bits) {
  STD_TORCH_CHECK(q.defined(), "mixed_gemm::", op, ": q is undefined");
  check_dtype(op, "q", q, ScalarType::Char, " (int8, signed values)");
  STD_TORCH_CHECK(q.dim() == 2, "mixed_gemm::", op, ": q must be (N, K), got ", text(sizes_of(q)));
  check_problem(op, 0, q.size(0), q.size(1), bits, -1);
  return torch::stable::contiguous(q);
}

CheckedWeight check_weight(const char* op, const Tensor& b_packed, const Tensor& scales,
                           const std::optional<Tensor>& zeros, int64_t bits, int64_t group_size,
                           const std::string& zero_mode, int64_t n, int64_t k) {
  check_problem(op, 0, n, k, bits, group_size);
  CheckedWeight checked;
  GemmProblem& p = checked.problem;
  p.n = n;
  p.k = k;
  p.scheme.bits = static_cast<int>(bits);
  p.scheme.group_size = group_size == -1 ? std::max<int64_t>(k, 1) : group_size;
  const int mode = index_of(op, "zero_mode", zero_mode, kZeroModeNames, 1);
  p.scheme.zero_mode = zeros ? static_cast<ZeroMode>(mode) : ZeroMode::kNone;

  check_tensor(op, "scales", scales, b_packed, "b_packed");
  p.element = element_type(op, "scales", scales.scalar_type());
  const int64_t groups = num_groups(p);
  check_group_tensor(op, "scales", scales, groups, n, k, group_size);
  checked.scales = with_unit_inner_stride(scales);
  if (zeros) {
    check_tensor(op, "zeros", *zeros, b_packed, "b_packed");
    check_dtype(op, "zeros", *zeros, scales.scalar_type(), " (the dtype of scales)");
    check_group_tensor(op, "zeros", *zeros, groups, n, k, group_size);
    checked.zeros = with_unit_inner_stride(*zeros);
  }
  // One stride serves both.
  if (checked.zeros && checked.zeros->stride(0) != checked.scales.stride(0)) {
    checked.scales = torch::stable::contiguous(checked.scales);
    checked.zeros = torch::stable::contiguous(*checked.zeros);
  }
  checked.b_packed = check_packed(op, b_packed, bits, n, k);
  p.b_packed = static_cast<const uint8_t*>(checked.b_packed.const_data_ptr());
  p.scales = checked.scales.const_data_ptr();
  p.zeros = checked.zeros ? checked.zeros->const_data_ptr() : nullptr;
  p.scale_stride = groups > 1 ? checked.scales.stride(0) : n;
  return checked;
}

CheckedGemm check_gemm(const GemmArguments& g) {
  const char* op = "fpA_intB_gemm";
  STD_TORCH_CHECK(g.a.defined(), "mixed_gemm::", op,
                  ": a is undefined (None was passed for a required Tensor)");
  STD_TORCH_CHECK(g.a.dim() >= 1, "mixed_gemm::", op, ": a must be (..., K), got a 0-d tensor");
  STD_TORCH_CHECK(g.scales.defined() && g.scales.dim() == 2, "mixed_gemm::", op,
                  ": scales must be 2-d (ceil(K/group_size), N), got ",
                  g.scales.defined() ? text(sizes_of(g.scales)) : "an undefined tensor");
  check_tensor(op, "b_packed", g.b_packed, g.a, "a");
  check_tensor(op, "scales", g.scales, g.a, "a");
  const ElementType element = element_type(op, "a", g.a.scalar_type());
  const int64_t k = g.a.size(g.a.dim() - 1), n = g.scales.size(1);
  int64_t m = 1;
  for (int64_t i = 0; i + 1 < g.a.dim(); ++i) m *= g.a.size(i);
  check_problem(op, m, n, k, g.bits, g.group_size);
  const int64_t packed_k =
      g.b_packed.dim() == 2 && g.bits > 0 ? g.b_packed.size(1) * 8 / g.bits : 0;
  STD_TORCH_CHECK(g.b_packed.dim() != 2 || round_up(k, kPadK) == packed_k, "mixed_gemm::", op,
                  ": K of a must fit b_packed: a has K=", k, " (padded ", round_up(k, kPadK),
                  "), b_packed ", text(sizes_of(g.b_packed)), " holds padded K=", packed_k,
                  " at bits=", g.bits);
  check_dtype(op, "scales", g.scales, g.a.scalar_type(),
              " (the dtype of a). Hint: scales.to(a.dtype)");

  CheckedWeight weight =
      check_weight(op, g.b_packed, g.scales, g.zeros, g.bits, g.group_size, g.zero_mode, n, k);
  CheckedGemm checked;
  GemmProblem& p = checked.problem;
  p = weight.problem;
  p.m = m;
  p.element = element;
  p.activation =
      static_cast<Activation>(index_of(op, "activation", g.activation, kActivationNames, 0));
  const struct {
    const char* name;
    const std::optional<Tensor>& tensor;
    const char* extent_name;
    int64_t extent;
    std::optional<Tensor>& kept;
    const void*& pointer;
  } vectors[] = {{"bias", g.bias, "N", n, checked.bias, p.bias},
                 {"pre_scale", g.pre_scale, "K", k, checked.pre_scale, p.pre_scale}};
  for (const auto& v : vectors) {
    if (!v.tensor) continue;
    check_tensor(op, v.name, *v.tensor, g.a, "a");
    check_dtype(op, v.name, *v.tensor, g.a.scalar_type(), " (the dtype of a)");
    check_vector(op, v.name, *v.tensor, v.extent_name, v.extent);
    v.kept = torch::stable::contiguous(*v.tensor);
    v.pointer = v.kept->const_data_ptr();
  }
  const auto stride = row_stride(g.a);
  checked.a = stride ? g.a : torch::stable::contiguous(g.a);
  p.a = checked.a.const_data_ptr();
  p.a_stride = stride.value_or(k);
  checked.b_packed = weight.b_packed;
  checked.scales = weight.scales;
  checked.zeros = weight.zeros;
  checked.output_sizes = sizes_of(g.a);
  checked.output_sizes.back() = n;
  return checked;
}

}  // namespace mixed_gemm
