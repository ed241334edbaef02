#include "problem/block_gemm.h"

#include "problem/extents.h"
#include "problem/gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

std::string why_not_block_gemm(int64_t m, int64_t n, int64_t k, int64_t block_size) {
  const auto gemm = why_not_problem(m, n, k, -1);
  if (!gemm.empty()) return gemm.front();
  const int64_t block = block_size == -1 ? k : block_size;
  const std::string reason = why_not_block_size("K", k, block_size);
  if (!reason.empty()) return reason;
  if (block > kMaxInt8K) {
    return "a block must have at most " + std::to_string(kMaxInt8K) +
           " elements, so that its int32 sum of products of -128 cannot wrap, got block_size=" +
           std::to_string(block_size) + ", K=" + std::to_string(k);
  }
  return "";
}

}  // namespace mixed_gemm
