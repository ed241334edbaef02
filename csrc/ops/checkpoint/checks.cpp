#include "ops/checkpoint/checks.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "layout/checkpoint_layout.h"
#include "ops/gemm/checks.h"
#include "ops/tensor_checks.h"
#include "problem/extents.h"
#include "problem/gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kMaxSplit = 32;
constexpr int64_t kMaxWords = std::numeric_limits<int32_t>::max();
constexpr const char* kPermHint = "torch.argsort(g_idx, stable=True).to(torch.int32)";

void check_words(const char* op, const char* argument, const Tensor& t, const char* shape) {
  check_dtype(op, argument, t, ScalarType::Int, " (packed codes, as the checkpoint holds them)");
  check_dims(op, argument, t, 2, shape);
  // Before the numbers are multiplied by what a word holds.
  if (std::max(t.size(0), t.size(1)) > kMaxWords) {
    wrong_value(
        op, {argument, joined("have at most ", kMaxWords, " rows and columns"), text(sizes_of(t))});
  }
}

void check_extents(const char* op, int64_t m, int64_t n, int64_t k, int64_t group_size) {
  if (k == 0) wrong_value(op, {"qweight", "have rows", "K=0"});
  const auto reasons = why_not_problem(m, n, k, group_size);
  if (!reasons.empty()) refuse(ErrorKind::kValue, op, reasons.front());
}

// The three tensors of a weight, which check_tensors() saw.
CheckedAwq checked_weight(const char* op, const Tensor& qweight, const Tensor& scales,
                          const Tensor& qzeros) {
  check_words(op, "qweight", qweight, "(K, N/8)");
  if (dtype_of(scales) == ScalarType::Int && dtype_of(qzeros) != ScalarType::Int) {
    wrong_type(op, {"scales", "be floating and qzeros int32",
                    "int32 and " + dtype_name(dtype_of(qzeros)), "", "scales come before qzeros"});
  }
  check_words(op, "qzeros", qzeros, "(K/group_size, N/8)");
  CheckedAwq checked;
  AwqProblem& p = checked.problem;
  p.k = qweight.size(0);
  p.n = qweight.size(1) * AwqLayout::kPerWord;
  p.element = element_type(op, "scales", dtype_of(scales));
  check_extents(op, 0, p.n, p.k, -1);
  const int64_t groups = qzeros.size(0);
  if (groups == 0 || p.k % groups != 0 || qzeros.size(1) != qweight.size(1)) {
    wrong_value(op,
                {"qzeros",
                 joined("be (K/group_size, N/8) = (a divisor of ", p.k, ", ", qweight.size(1), ")"),
                 text(sizes_of(qzeros))});
  }
  check_matrix(
      op, "scales", scales, "(K/group_size, N)", groups, p.n,
      [&] { return joined("N=", p.n, " from qweight, K/group_size from qzeros"); }, true);
  p.group_size = p.k / groups;
  check_extents(op, 0, p.n, p.k, groups == 1 ? -1 : p.group_size);
  checked.qweight = contiguous_elements(qweight);
  checked.scales = as_contiguous(scales);
  checked.qzeros = contiguous_elements(qzeros);
  p.qweight = static_cast<const uint32_t*>(checked.qweight.const_data_ptr());
  p.qzeros = static_cast<const uint32_t*>(checked.qzeros.const_data_ptr());
  p.scales = checked.scales.const_data_ptr();
  return checked;
}

// An index outside would be read there. It is the caller's data, so this waits for the device.
void check_permutation(const char* op, const Tensor& perm, int64_t extent) {
  const Tensor host = on_host(perm);
  const auto* indices = static_cast<const int32_t*>(host.const_data_ptr());
  std::vector<bool> seen(static_cast<size_t>(extent));
  for (int64_t i = 0; i < extent; ++i) {
    const int32_t index = indices[i];
    if (index < 0 || index >= extent || seen[static_cast<size_t>(index)]) {
      wrong_value(op, {"perm", joined("hold each of 0..", extent - 1, " once"),
                       joined(index, " at index ", i), "", kPermHint});
    }
    seen[static_cast<size_t>(index)] = true;
  }
}

}  // namespace

CheckedAwq check_awq_weight(const char* op, const Tensor& qweight, const Tensor& scales,
                            const Tensor& qzeros) {
  check_tensors(op, {{"qweight", qweight}, {"scales", scales}, {"qzeros", qzeros}});
  return checked_weight(op, qweight, scales, qzeros);
}

CheckedAwq check_awq_gemm(const Tensor& input, const Tensor& qweight, const Tensor& scales,
                          const Tensor& qzeros, int64_t split_k_iters) {
  const char* op = "awq_gemm";
  check_tensors(op,
                {{"input", input}, {"qweight", qweight}, {"scales", scales}, {"qzeros", qzeros}});
  element_type(op, "input", dtype_of(input), "input.to(scales.dtype)");
  CheckedAwq checked = checked_weight(op, qweight, scales, qzeros);
  AwqProblem& p = checked.problem;
  if (input.dim() < 1 || input.size(input.dim() - 1) != p.k) {
    wrong_value(op, {"input", joined("be (..., K) = (..., ", p.k, ")"), text(sizes_of(input)),
                     "K from qweight " + text(sizes_of(qweight))});
  }
  check_dtype(op, "scales", scales, input.scalar_type(), " (the dtype of input)",
              "scales.to(input.dtype)");
  const bool power_of_two = split_k_iters > 0 && (split_k_iters & (split_k_iters - 1)) == 0;
  if (!power_of_two || split_k_iters > kMaxSplit) {
    wrong_value(op, {"split_k_iters", joined("be a power of two in 1..", kMaxSplit),
                     std::to_string(split_k_iters)});
  }
  p.m = rows_of(input);
  check_extents(op, p.m, p.n, p.k, -1);
  const auto stride = row_stride(input);
  checked.input = stride ? input : as_contiguous(input);
  p.a = checked.input.const_data_ptr();
  p.a_stride = stride.value_or(p.k);
  checked.output_sizes = sizes_of(input);
  checked.output_sizes.back() = p.n;
  return checked;
}

Tensor CheckedRepack::new_packed() const {
  return empty_on(qweight, {round_up(n, kPadN), round_up(k, kPadK) * packed_bits / 8},
                  ScalarType::Byte);
}

CheckedRepack check_awq_repack(const Tensor& qweight) {
  check_tensors("awq_repack", {{"qweight", qweight}});
  check_words("awq_repack", "qweight", qweight, "(K, N/8)");
  CheckedRepack checked;
  checked.k = qweight.size(0);
  checked.n = qweight.size(1) * AwqLayout::kPerWord;
  check_extents("awq_repack", 0, checked.n, checked.k, -1);
  checked.qweight = contiguous_elements(qweight);
  return checked;
}

CheckedRepack check_gptq_repack(const Tensor& qweight, const std::optional<Tensor>& perm,
                                int64_t bits) {
  const char* op = "gptq_repack";
  check_tensors(op, {{"qweight", qweight}, {"perm", perm}});
  check_words(op, "qweight", qweight, "(K*bits/32, N)");
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    wrong_value(op, {"bits", "be 2, 3, 4 or 8", std::to_string(bits), "",
                     "5, 6 and 7 bits are stored in planes (gptq_p), which nothing here reads"});
  }
  const int64_t rows = qweight.size(0);
  if (rows * 32 % bits != 0) {
    wrong_value(op,
                {"qweight", joined("have K*bits/32 rows, a multiple of ", bits, " for bits=", bits),
                 text(sizes_of(qweight))});
  }
  CheckedRepack checked;
  checked.n = qweight.size(1);
  checked.k = rows * 32 / bits;
  checked.bits = static_cast<int>(bits);
  checked.packed_bits = bits == 8 ? 8 : 4;
  check_extents(op, 0, checked.n, checked.k, -1);
  checked.qweight = contiguous_elements(qweight);
  if (perm) {
    check_dtype(op, "perm", *perm, ScalarType::Int, "", kPermHint);
    check_vector(op, "perm", *perm, "K", checked.k);
    checked.perm = contiguous_elements(*perm);
    check_permutation(op, *checked.perm, checked.k);
  }
  return checked;
}

}  // namespace mixed_gemm
