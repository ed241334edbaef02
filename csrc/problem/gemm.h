// One fpA_intB GEMM as plain data: what ops/ hands to cpu/ and dispatch/. No torch, no CUTLASS.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// D[m, n] = activation(sum_k a[m, k] * pre_scale[k] * w[n, k] + bias[n]). Every 16/32-bit float
// pointer has the element type `element`; null means absent.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  ElementType element = ElementType::kFloat16;
  QuantScheme scheme;
  Activation activation = Activation::kIdentity;

  const void* a = nullptr;            // [m, k], element (i, j) at i * a_stride + j
  int64_t a_stride = 0;               // in elements
  const uint8_t* b_packed = nullptr;  // [round_up(n, 64), round_up(k, 64) * bits / 8], contiguous
  const void* scales = nullptr;       // [ceil(k / group_size), n], row stride scale_stride
  const void* zeros = nullptr;        // same shape and stride as scales
  int64_t scale_stride = 0;           // in elements
  const float* factor = nullptr;      // [n] or null: multiplies the sums of a column, of floats
  const void* bias = nullptr;         // [n]
  const void* pre_scale = nullptr;    // [k]
  void* d = nullptr;                  // [m, n], contiguous
};

inline auto selection_key(const GemmProblem& problem) {
  const auto& [m, n, k, element, scheme, activation, a, a_stride, b_packed, scales, zeros,
               scale_stride, factor, bias, pre_scale, d] = problem;
  const auto& [weight, scale_form] = scheme;
  const auto& [scale_type, group, zero_mode] = scale_form;
  return std::tuple(m, n, k, element, weight, scale_type, group, zero_mode, activation, a_stride,
                    scale_stride, bias != nullptr, pre_scale != nullptr);
}

inline int64_t num_groups(const GemmProblem& p) { return ceil_div(p.k, p.scheme.scales.group); }

constexpr int64_t kGemmVector = 8;  // 16-bit elements that one cp.async moves

// The sizes of a problem as its kernels count them: K is rounded up to whole vectors, and a single
// group covers all of that. `a` has zeros behind the problem's K.
struct KernelExtents {
  int m, n, k;
  int64_t a_stride;
  int groups, group_size;
};
KernelExtents kernel_extents(const GemmProblem& problem);

// Whether a kernel was compiled for these scales: with or without zero points, a row of scales for
// each `k_of_row` elements of K or (0) one for all of it. dispatch/ chose the kernel by the problem
// and the problem tells it what to copy, so launchers check the one against the other.
bool scales_fit(const GemmProblem& problem, bool zeros, int k_of_row);

// Reasons why no backend runs this shape; group_size as the user gave it (-1: per channel). Empty:
// accepted. The only statement of it: error texts, plan(), why_not() and the tests all call it.
std::vector<std::string> why_not_problem(int64_t m, int64_t n, int64_t k, int64_t group_size);

// Reason why no weight has such codes and scales together, or null. It is the only statement of
// that, too.
constexpr const char* why_not_scheme(const WeightInfo& weight, const ScaleForm& scales) {
  if (weight.is_integer) {
    return scales.type == ScaleType::kActivations ? nullptr
                                                  : "integers have scales of the activations' type";
  }
  return scales.zeros == ZeroMode::kNone ? nullptr : "only integers have zero points";
}

// Reason why no kernel of tensor cores multiplies these activations, or empty.
std::string why_not_tensor_cores(const GemmProblem& problem);

// The text of why_not for families whose tables lack the kernels.
std::string why_not_compiled(const QuantScheme& scheme);

}  // namespace mixed_gemm
