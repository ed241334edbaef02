// AWQ and GPTQ tensors -> plain data, or an exception as ops/gemm/checks.h describes.
#pragma once
#include "ops/torch_stable.h"
#include "problem/awq.h"

namespace mixed_gemm {

// A checked call: the problem points into these tensors, so they live as long as it.
struct CheckedAwq {
  AwqProblem problem;  // d is set by the caller
  Tensor input, qweight, scales, qzeros;
  std::vector<int64_t> output_sizes;
};

CheckedAwq check_awq_weight(const char* op, const Tensor& qweight, const Tensor& scales,
                            const Tensor& qzeros);
CheckedAwq check_awq_gemm(const Tensor& input, const Tensor& qweight, const Tensor& scales,
                          const Tensor& qzeros, int64_t split_k_iters);

// A packed integer weight to repack. bits: of its codes; packed_bits: of the result.
struct CheckedRepack {
  Tensor qweight;
  std::optional<Tensor> perm;
  int64_t n = 0, k = 0;
  int bits = 4, packed_bits = 4;

  const uint32_t* words() const { return static_cast<const uint32_t*>(qweight.const_data_ptr()); }
  const int32_t* order() const {
    return perm ? static_cast<const int32_t*>(perm->const_data_ptr()) : nullptr;
  }
  Tensor new_packed() const;
};

CheckedRepack check_awq_repack(const Tensor& qweight);
CheckedRepack check_gptq_repack(const Tensor& qweight, const std::optional<Tensor>& perm,
                                int64_t bits);

}  // namespace mixed_gemm
