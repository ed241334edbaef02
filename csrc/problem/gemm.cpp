#include "problem/gemm.h"

#include "problem/extents.h"

namespace mixed_gemm {

std::vector<std::string> why_not_problem(int64_t m, int64_t n, int64_t k, int64_t group_size) {
  std::vector<std::string> reasons = why_not_extents(m, n, k);
  const bool per_channel = group_size == -1;
  const bool in_units = per_channel || (group_size > 0 && group_size % kGroupUnit == 0);
  const bool fits = per_channel || group_size <= k;
  if (in_units && fits) return reasons;  // before a text is built, which costs more than all checks
  const std::string got =
      ", got group_size=" + std::to_string(group_size) + ", K=" + std::to_string(k);
  if (!in_units)
    reasons.push_back("group_size must be -1 (per channel) or a positive multiple of 16" + got);
  if (!fits)
    reasons.push_back("group_size must not be larger than K" + got + "; use -1 for per channel");
  return reasons;
}

KernelExtents kernel_extents(const GemmProblem& p) {
  KernelExtents e;
  e.m = static_cast<int>(p.m);
  e.n = static_cast<int>(p.n);
  e.k = static_cast<int>(round_up(p.k, kGemmVector));
  e.a_stride = p.m == 1 ? 0 : p.a_stride;
  e.groups = static_cast<int>(num_groups(p));
  e.group_size = e.groups <= 1 ? e.k : static_cast<int>(p.scheme.scales.group);
  return e;
}

bool scales_fit(const GemmProblem& p, bool zeros, int k_of_row) {
  if ((p.zeros != nullptr) != zeros) return false;
  const KernelExtents e = kernel_extents(p);
  return e.groups <= 1 || (k_of_row > 0 && e.group_size % k_of_row == 0);
}

std::string why_not_tensor_cores(const GemmProblem& p) {
  if (p.element != ElementType::kFloat32) return "";
  return "tensor cores multiply float16 and bfloat16; float32 runs dequantize_dense";
}

std::string why_not_compiled(const QuantScheme& scheme) {
  return std::string("has no kernels for ") + weight_info(scheme.weight).name +
         " weights with such scales";
}

}  // namespace mixed_gemm
