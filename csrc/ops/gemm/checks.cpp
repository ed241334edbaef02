#include "ops/gemm/checks.h"

#include <algorithm>
#include <cstdint>

#include "layout/weight_layout.h"
#include "ops/tensor_checks.h"
#include "problem/extents.h"
#include "problem/gemm.h"
#include "problem/integer_bits.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {
namespace {

constexpr const char* kGroupRule = "(ceil(K/group_size), N)";

void check_problem(const char* op, int64_t m, int64_t n, int64_t k, int64_t bits,
                   int64_t group_size) {
  const std::string wrong_bits = why_not_bits(bits);
  if (!wrong_bits.empty()) refuse(ErrorKind::kValue, op, wrong_bits);
  auto reasons = why_not_problem(m, n, k, -1);
  if (!reasons.empty()) refuse(ErrorKind::kValue, op, reasons.front());
  reasons = why_not_problem(m, n, k, group_size);
  if (reasons.empty()) return;
  refuse(ErrorKind::kValue, op,
         joined(reasons.front(), ". Hint: group_size=", nearest_group_size(k, group_size),
                " is accepted"));
}

// Of a [n, k] weight; returned contiguous and aligned to 16 bytes.
Tensor check_packed(const char* op, const Tensor& b_packed, WeightType weight, int64_t n,
                    int64_t k) {
  const int64_t bits = bits_of(weight);
  check_dtype(op, "b_packed", b_packed, ScalarType::Byte, " (from mixed_gemm.pack_weights)");
  check_matrix(op, "b_packed", b_packed, "(round_up(N, 64), round_up(K, 64) * bits / 8)",
               round_up(n, kPadN), round_up(k, kPadK) * bits / 8,
               [&] { return joined("N=", n, ", K=", k, ", bits=", bits); });
  Tensor packed = as_contiguous(b_packed);
  const bool aligned = reinterpret_cast<uintptr_t>(packed.const_data_ptr()) % 16 == 0;
  return aligned ? packed : torch::stable::clone(packed);
}

// The scheme that arguments of ops on integers name. bits and group_size: as check_problem() saw
// them.
QuantScheme scheme_of(const char* op, int64_t bits, int64_t group_size,
                      const std::string& zero_mode, bool zeros, int64_t k) {
  const int mode = index_of(op, "zero_mode", zero_mode, kZeroModeNames, 1);
  return integer_scheme(*integer_weight(bits),
                        group_size == -1 ? std::max<int64_t>(k, 1) : group_size,
                        zeros ? static_cast<ZeroMode>(mode) : ZeroMode::kNone);
}

// All of a weight but the numbers, which check_problem() saw. group_size: as it was given.
CheckedWeight check_weight(const char* op, const Tensor& b_packed, const Tensor& scales,
                           const std::optional<Tensor>& zeros, const QuantScheme& scheme,
                           int64_t group_size, int64_t n, int64_t k) {
  CheckedWeight checked;
  GemmProblem& p = checked.problem;
  p.n = n;
  p.k = k;
  p.scheme = scheme;

  p.element = element_type(op, "scales", dtype_of(scales));
  const int64_t groups = num_groups(p);
  const auto because = [&] { return joined("K=", k, ", group_size=", group_size); };
  check_matrix(op, "scales", scales, kGroupRule, groups, n, because, true);
  checked.scales = with_unit_inner_stride(scales);
  if (zeros) {
    check_dtype(op, "zeros", *zeros, scales.scalar_type(), " (the dtype of scales)");
    check_matrix(op, "zeros", *zeros, kGroupRule, groups, n, because, true);
    checked.zeros = with_unit_inner_stride(*zeros);
  }
  // One stride serves both.
  if (checked.zeros && checked.zeros->stride(0) != checked.scales.stride(0)) {
    checked.scales = as_contiguous(checked.scales);
    checked.zeros = as_contiguous(*checked.zeros);
  }
  checked.b_packed = check_packed(op, b_packed, scheme.weight, n, k);
  p.b_packed = static_cast<const uint8_t*>(checked.b_packed.const_data_ptr());
  p.scales = checked.scales.const_data_ptr();
  p.zeros = checked.zeros ? checked.zeros->const_data_ptr() : nullptr;
  p.scale_stride = groups > 1 ? checked.scales.stride(0) : n;
  return checked;
}

// The index, in row-major order, as "(1, 2)".
std::string index_text(const Tensor& t, int64_t flat) {
  std::vector<int64_t> index = sizes_of(t);
  for (size_t i = index.size(); i-- > 0;) {
    const int64_t extent = index[i];
    index[i] = flat % extent;
    flat /= extent;
  }
  return text(index);
}

}  // namespace

Tensor on_host(const Tensor& t) {
  if (t.is_cpu()) return as_contiguous(t);
  const torch::stable::Device host(torch::headeronly::DeviceType::CPU);
  Tensor copy = torch::stable::empty(sizes_of(t), t.scalar_type(), {}, host);
  torch::stable::copy_(copy, t, false);
  return copy;
}

ElementType element_type(const char* op, const char* argument, ScalarType type, const char* hint) {
  switch (type) {
    case ScalarType::Half:
      return ElementType::kFloat16;
    case ScalarType::BFloat16:
      return ElementType::kBFloat16;
    case ScalarType::Float:
      return ElementType::kFloat32;
    default:
      wrong_type(op, {argument, "be float16, bfloat16 or float32", dtype_name(type), "", hint});
  }
}

ScalarType scalar_type(ElementType element) {
  constexpr ScalarType kTypes[] = {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float};
  return kTypes[static_cast<int>(element)];
}

void check_range(const char* op, const char* argument, const Tensor& q, int64_t bits) {
  if (bits == 8 || q.numel() == 0) return;  // int8 cannot leave it
  const int low = -(1 << (bits - 1)), high = -low - 1;
  const Tensor host = on_host(q);
  const auto* values = static_cast<const int8_t*>(host.const_data_ptr());
  const auto* end = values + host.numel();
  const auto* found =
      std::find_if(values, end, [low, high](int8_t x) { return x < low || x > high; });
  if (found == end) return;
  wrong_value(op, {argument, joined("be in ", low, "..", high, " for bits=", bits),
                   joined(static_cast<int>(*found), " at index ", index_text(q, found - values)),
                   "", "clamp it, or pack with bits=8"});
}

Tensor check_unpack(const Tensor& b_packed, int64_t bits, int64_t n, int64_t k) {
  const char* op = "unpack_weights";
  check_tensors(op, {{"b_packed", b_packed}});
  check_problem(op, 0, n, k, bits, -1);
  return check_packed(op, b_packed, *integer_weight(bits), n, k);
}

Tensor check_quantized(const Tensor& q, int64_t bits, bool check) {
  const char* op = "pack_weights";
  check_tensors(op, {{"q", q}});
  check_dtype(op, "q", q, ScalarType::Char, " (signed values)", "q.to(torch.int8)");
  check_dims(op, "q", q, 2, "(N, K)");
  check_problem(op, 0, q.size(0), q.size(1), bits, -1);
  Tensor values = as_contiguous(q);
  if (check || q.is_cpu()) check_range(op, "q", values, bits);
  return values;
}

CheckedDequantize check_dequantize(const Tensor& b_packed, const Tensor& scales,
                                   const std::optional<Tensor>& zeros, int64_t bits,
                                   int64_t group_size, const std::string& zero_mode, int64_t n,
                                   int64_t k, ScalarType dtype) {
  const char* op = "dequantize_weights";
  check_tensors(op, {{"b_packed", b_packed}, {"scales", scales}, {"zeros", zeros}});
  const ElementType out = element_type(op, "dtype", dtype);
  check_problem(op, 0, n, k, bits, group_size);
  const QuantScheme scheme = scheme_of(op, bits, group_size, zero_mode, zeros.has_value(), k);
  return {check_weight(op, b_packed, scales, zeros, scheme, group_size, n, k), out};
}

CheckedGemm check_gemm(const char* op, const GemmArguments& g) {
  check_tensors(op, {{"a", g.a},
                     {"b_packed", g.b_packed},
                     {"scales", g.scales},
                     {"zeros", g.zeros},
                     {"bias", g.bias},
                     {"pre_scale", g.pre_scale}});
  const ElementType element = element_type(op, "a", dtype_of(g.a), "a.to(scales.dtype)");
  check_rows(op, "a", g.a);
  check_dims(op, "scales", g.scales, 2, kGroupRule);
  const int64_t m = rows_of(g.a), k = g.a.size(g.a.dim() - 1), n = g.scales.size(1);
  check_problem(op, m, n, k, g.bits, g.group_size);
  const auto activation =
      static_cast<Activation>(index_of(op, "activation", g.activation, kActivationNames, 0));
  if (g.b_packed.dim() == 2 && round_up(k, kPadK) * g.bits / 8 != g.b_packed.size(1)) {
    const uint64_t packed_k = static_cast<uint64_t>(g.b_packed.size(1)) * (8 / g.bits);
    wrong_value(op, {"K of a", "fit b_packed",
                     joined("K=", k, " (padded ", round_up(k, kPadK), ") and b_packed ",
                            text(sizes_of(g.b_packed)), ", which holds padded K=", packed_k,
                            " at bits=", g.bits)});
  }
  check_dtype(op, "scales", g.scales, g.a.scalar_type(), " (the dtype of a)", "scales.to(a.dtype)");

  const QuantScheme scheme =
      scheme_of(op, g.bits, g.group_size, g.zero_mode, g.zeros.has_value(), k);
  CheckedWeight weight =
      check_weight(op, g.b_packed, g.scales, g.zeros, scheme, g.group_size, n, k);
  CheckedGemm checked;
  GemmProblem& p = checked.problem;
  p = weight.problem;
  p.m = m;
  p.element = element;
  p.activation = activation;
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
    check_dtype(op, v.name, *v.tensor, g.a.scalar_type(), " (the dtype of a)");
    check_vector(op, v.name, *v.tensor, v.extent_name, v.extent);
    v.kept = as_contiguous(*v.tensor);
    v.pointer = v.kept->const_data_ptr();
  }
  const auto stride = row_stride(g.a);
  checked.a = stride ? g.a : as_contiguous(g.a);
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
