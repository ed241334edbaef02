// THE list of compiled AWQ kernels, and which one runs.
#pragma once
#include <cstdint>

namespace mixed_gemm {

// 8 * m_tiles tokens by 64 * words columns for a block whose warps share out K; each warp has
// `steps` of 32 k in flight. blocks: resident on an SM, which caps the registers.
struct AwqConfig {
  int m_tiles, words, warps, steps, blocks;
};
constexpr AwqConfig kAwqConfigs[] = {{1, 1, 16, 2, 1}, {1, 2, 6, 2, 2}, {2, 1, 12, 2, 1}};
constexpr int kNumAwqConfigs = sizeof(kAwqConfigs) / sizeof(kAwqConfigs[0]);
constexpr int kMaxAwqRows = 16;  // of a block; more repeat the reading of the weight

// Wide blocks read whole 64-byte pieces of a row; narrow ones are more, for small N.
inline int select_awq_row(int64_t m, int64_t n, int sm_count) {
  if (m > 8) return 2;
  return n / 128 >= sm_count && n % 16 == 0 ? 1 : 0;
}

}  // namespace mixed_gemm
