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

std::string why_not_blocks(OperandType operand, const std::vector<int64_t>& block_size) {
  std::string got = ", got (";
  for (size_t i = 0; i < block_size.size(); ++i) {
    got += (i ? ", " : "") + std::to_string(block_size[i]);
  }
  got += block_size.size() == 1 ? ",)" : ")";
  const auto fits = [](int64_t size) { return size >= 1 && size <= kMaxExtent; };
  if (block_size.size() != 2 || !fits(block_size[0]) || !fits(block_size[1])) {
    return "block_size must be (rows of the weight, elements of K), each in 1.." +
           std::to_string(kMaxExtent) + got;
  }
  if (operand != OperandType::kFloat8E4M3) {
    return "block_size must be None for int8, whose sums go through all of K" + got +
           ". Hint: mixed_gemm.block_quant_gemm has scales of blocks for int8";
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
