#include "problem/scaled_mm.h"

#include "problem/extents.h"

namespace mixed_gemm {

std::vector<std::string> why_not_scaled_mm(int64_t m, int64_t n, int64_t k, OperandType operand) {
  std::vector<std::string> reasons = why_not_extents(m, n, k);
  if (operand == OperandType::kInt8 && k > kMaxInt8K) {
    reasons.push_back("K must be at most " + std::to_string(kMaxInt8K) +
                      " for int8, so that the int32 sum of products of -128 cannot wrap, got K=" +
                      std::to_string(k) + "; split K and add the results");
  }
  return reasons;
}

std::string why_not_blocks(OperandType operand, int64_t block_n, int64_t block_k) {
  const std::string got =
      ", got (" + std::to_string(block_n) + ", " + std::to_string(block_k) + ")";
  if (operand != OperandType::kFloat8E4M3) {
    return "block_size must not be given for int8, whose sums go through all of K" + got +
           "; block_quant_gemm rounds activations to int8 by block";
  }
  if (block_n < 1 || block_k < 1 || block_n > kMaxExtent || block_k > kMaxExtent) {
    return "block_size must be (rows of the weight, elements of K) that share a scale, each in "
           "1.." +
           std::to_string(kMaxExtent) + got;
  }
  return "";
}

std::string why_not_operand(OperandType operand, const DeviceInfo& device, const Build& build) {
  if (operand == OperandType::kInt8) return "";
  if (device.sm >= 89) {
    return build.fp8 ? ""
                     : "float8_e4m3fn has no kernels in this build, which was made for "
                       "architectures before 8.9; quantize to int8, move the tensors to the CPU, "
                       "or build with 8.9 or newer in TORCH_CUDA_ARCH_LIST";
  }
  return "float8_e4m3fn needs tensor cores of compute capability 8.9 or newer, got " +
         std::to_string(device.sm / 10) + "." + std::to_string(device.sm % 10) +
         "; quantize to int8, or move the tensors to the CPU";
}

}  // namespace mixed_gemm
