#include "ops/checkpoint_checks.h"

#include "dispatch/support.h"
#include "layout/checkpoint_layout.h"
#include "ops/checks.h"
#include "ops/tensor_checks.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kMaxSplit = 32;

void check_words(const char* op, const char* argument, const Tensor& t, const char* shape) {
  STD_TORCH_CHECK(t.defined(), "mixed_gemm::", op, ": ", argument, " is undefined");
  check_dtype(op, argument, t, ScalarType::Int, " (packed codes, as the checkpoint holds them)");
  STD_TORCH_CHECK(t.dim() == 2, "mixed_gemm::", op, ": ", argument, " must be 2-d ", shape,
                  ", got ", text(sizes_of(t)));
}

void check_extents(const char* op, int64_t m, int64_t n, int64_t k, int64_t group_size) {
  const auto reasons = why_not_problem(m, n, k, 4, group_size);
  STD_TORCH_CHECK(reasons.empty(), "mixed_gemm::", op, ": ", reasons.front());
  STD_TORCH_CHECK(k > 0, "mixed_gemm::", op, ": qweight must have rows, got K=0");
}

}  // namespace

CheckedAwq check_awq_weight(const char* op, const Tensor& qweight, const Tensor& scales,
                            const Tensor& qzeros) {
  check_words(op, "qweight", qweight, "(K, N/8)");
  check_tensor(op, "scales", scales, qweight, "qweight");
  check_tensor(op, "qzeros", qzeros, qweight, "qweight");
  const bool exchanged =
      scales.scalar_type() == ScalarType::Int && qzeros.scalar_type() != ScalarType::Int;
  STD_TORCH_CHECK(!exchanged, "mixed_gemm::", op, ": scales must be floating and qzeros Int, got ",
                  dtype_name(scales.scalar_type()), " and ", dtype_name(qzeros.scalar_type()),
                  ". Hint: scales come before qzeros");
  check_words(op, "qzeros", qzeros, "(K/group_size, N/8)");
  CheckedAwq checked;
  AwqProblem& p = checked.problem;
  p.k = qweight.size(0);
  p.n = qweight.size(1) * AwqLayout::kPerWord;
  p.element = element_type(op, "scales", scales.scalar_type());
  const int64_t groups = qzeros.size(0);
  STD_TORCH_CHECK(groups > 0 && p.k % groups == 0 && qzeros.size(1) == qweight.size(1),
                  "mixed_gemm::", op, ": qzeros must be (K/group_size, N/8) = (a divisor of ", p.k,
                  ", ", qweight.size(1), "), got ", text(sizes_of(qzeros)));
  STD_TORCH_CHECK(scales.dim() == 2 && scales.size(0) == groups && scales.size(1) == p.n,
                  "mixed_gemm::", op, ": scales must be (K/group_size, N) = (", groups, ", ", p.n,
                  "), got ", text(sizes_of(scales)));
  p.group_size = p.k / groups;
  check_extents(op, 0, p.n, p.k, groups == 1 ? -1 : p.group_size);
  checked.qweight = torch::stable::contiguous(qweight);
  checked.scales = torch::stable::contiguous(scales);
  checked.qzeros = torch::stable::contiguous(qzeros);
  p.qweight = static_cast<const uint32_t*>(checked.qweight.const_data_ptr());
  p.qzeros = static_cast<const uint32_t*>(checked.qzeros.const_data_ptr());
  p.scales = checked.scales.const_data_ptr();
  return checked;
}

CheckedAwq check_awq_gemm(const Tensor& input, const Tensor& qweight, const Tensor& scales,
                          const Tensor& qzeros, int64_t split_k_iters) {
  const char* op = "awq_gemm";
  STD_TORCH_CHECK(input.defined(), "mixed_gemm::", op, ": input is undefined");
  check_tensor(op, "qweight", qweight, input, "input");
  CheckedAwq checked = check_awq_weight(op, qweight, scales, qzeros);
  AwqProblem& p = checked.problem;
  STD_TORCH_CHECK(input.dim() >= 1 && input.size(input.dim() - 1) == p.k, "mixed_gemm::", op,
                  ": input must be (..., K) = (..., ", p.k, "), got ", text(sizes_of(input)),
                  "; K from qweight ", text(sizes_of(qweight)));
  check_dtype(op, "scales", scales, input.scalar_type(),
              " (the dtype of input). Hint: scales.to(input.dtype)");
  const bool power_of_two = split_k_iters > 0 && (split_k_iters & (split_k_iters - 1)) == 0;
  STD_TORCH_CHECK(power_of_two && split_k_iters <= kMaxSplit, "mixed_gemm::", op,
                  ": split_k_iters must be a power of two in 1..", kMaxSplit, ", got ",
                  split_k_iters);
  p.m = 1;
  for (int64_t i = 0; i + 1 < input.dim(); ++i) p.m *= input.size(i);
  check_extents(op, p.m, p.n, p.k, -1);
  const auto stride = row_stride(input);
  checked.input = stride ? input : torch::stable::contiguous(input);
  p.a = checked.input.const_data_ptr();
  p.a_stride = stride.value_or(p.k);
  checked.output_sizes = sizes_of(input);
  checked.output_sizes.back() = p.n;
  return checked;
}

Tensor CheckedRepack::new_packed() const {
  return torch::stable::new_empty(
      qweight, {round_up(n, kPadN), round_up(k, kPadK) * packed_bits / 8}, ScalarType::Byte);
}

CheckedRepack check_awq_repack(const Tensor& qweight) {
  check_words("awq_repack", "qweight", qweight, "(K, N/8)");
  CheckedRepack checked;
  checked.k = qweight.size(0);
  checked.n = qweight.size(1) * AwqLayout::kPerWord;
  check_extents("awq_repack", 0, checked.n, checked.k, -1);
  checked.qweight = torch::stable::contiguous(qweight);
  return checked;
}

CheckedRepack check_gptq_repack(const Tensor& qweight, const std::optional<Tensor>& perm,
                                int64_t bits) {
  const char* op = "gptq_repack";
  check_words(op, "qweight", qweight, "(K*bits/32, N)");
  STD_TORCH_CHECK(
      bits == 2 || bits == 3 || bits == 4 || bits == 8, "mixed_gemm::", op,
      ": bits must be 2, 3, 4 or 8, got ", bits,
      ". Hint: 5, 6 and 7 bits are stored in planes (gptq_p), which nothing here reads");
  const int64_t rows = qweight.size(0);
  STD_TORCH_CHECK(rows * 32 % bits == 0, "mixed_gemm::", op,
                  ": qweight must have K*bits/32 rows, a multiple of ", bits, " for bits=", bits,
                  ", got ", text(sizes_of(qweight)));
  CheckedRepack checked;
  checked.n = qweight.size(1);
  checked.k = rows * 32 / bits;
  checked.bits = static_cast<int>(bits);
  checked.packed_bits = bits == 8 ? 8 : 4;
  check_extents(op, 0, checked.n, checked.k, -1);
  checked.qweight = torch::stable::contiguous(qweight);
  if (perm) {
    check_tensor(op, "perm", *perm, qweight, "qweight");
    check_dtype(op, "perm", *perm, ScalarType::Int,
                ". Hint: torch.argsort(g_idx, stable=True).to(torch.int32)");
    check_vector(op, "perm", *perm, "K", checked.k);
    checked.perm = torch::stable::contiguous(*perm);
  }
  return checked;
}

}  // namespace mixed_gemm
