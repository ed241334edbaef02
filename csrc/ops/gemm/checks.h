// Tensors -> GemmProblem, or an exception that names op, argument, what was expected with numbers,
// what came, what to do. All of it happens before any launch.
#pragma once
#include <vector>

#include "ops/torch_stable.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// The arguments that fpA_intB_gemm and fpA_intB_gemm_config share.
struct GemmArguments {
  Tensor a, b_packed, scales;
  std::optional<Tensor> zeros, bias, pre_scale;
  int64_t bits, group_size;
  std::string zero_mode, activation;
};

// A checked call: the problem points into these tensors, so they live as long as it.
struct CheckedGemm {
  GemmProblem problem;  // d is set by the caller
  std::vector<int64_t> output_sizes;
  Tensor a, b_packed, scales;
  std::optional<Tensor> zeros, bias, pre_scale;
};

CheckedGemm check_gemm(const char* op, const GemmArguments& arguments);

struct CheckedWeight {
  GemmProblem problem;  // n, k, scheme, b_packed, scales, zeros
  Tensor b_packed, scales;
  std::optional<Tensor> zeros;
};
// The arguments of dequantize_weights. out: the type of its result.
struct CheckedDequantize {
  CheckedWeight weight;
  ElementType out;
};
CheckedDequantize check_dequantize(const Tensor& b_packed, const Tensor& scales,
                                   const std::optional<Tensor>& zeros, int64_t bits,
                                   int64_t group_size, const std::string& zero_mode, int64_t n,
                                   int64_t k, ScalarType dtype);

// b_packed of a [n, k] weight, for unpack_weights: returned contiguous and aligned to 16 bytes.
Tensor check_unpack(const Tensor& b_packed, int64_t bits, int64_t n, int64_t k);

// q of pack_weights: int8 [n, k]; returned contiguous. check: values outside the range of `bits`
// are refused on any device, which waits for it; on the CPU they always are.
Tensor check_quantized(const Tensor& q, int64_t bits, bool check);

ElementType element_type(const char* op, const char* argument, ScalarType type,
                         const char* hint = "");
ScalarType scalar_type(ElementType element);

}  // namespace mixed_gemm
