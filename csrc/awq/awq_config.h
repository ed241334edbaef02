// THE list of compiled AWQ kernels, and which one runs.
#pragma once
#include <cstdint>

namespace mixed_gemm {

// 8 * m_tiles tokens by 64 * words columns for a block whose warps share out K; each warp has
// `steps` of 32 k in flight. blocks: resident on an SM, which caps the registers.
struct AwqConfig {
  int m_tiles, words, warps, steps, blocks;
};
constexpr AwqConfig kAwqConfigs[] = {
    {1, 1, 16, 2, 1}, {1, 2, 6, 2, 2}, {2, 1, 12, 2, 1}, {4, 1, 8, 2, 1}};
constexpr int kNumAwqConfigs = sizeof(kAwqConfigs) / sizeof(kAwqConfigs[0]);
constexpr int kMaxAwqRows = 64;  // of activations; for more, dequantize + dense GEMM
constexpr int kMaxAwqSplit = 4;  // blocks of a cluster, which share out K

struct AwqChoice {
  int row;    // of kAwqConfigs
  int split;  // blocks that share out K, for outputs too narrow to occupy the GPU; needs clusters
};

inline AwqChoice select_awq(int64_t m, int64_t n, int sm, int sm_count) {
  // Wide blocks read whole 64-byte pieces of a row; narrow ones are more, for small N.
  const bool wide = n / 128 >= sm_count && n % 16 == 0;
  AwqChoice choice{m > 16 ? 3 : m > 8 ? 2 : wide ? 1 : 0, 1};
  const AwqConfig& config = kAwqConfigs[choice.row];
  const int64_t columns = 64 * config.words, rows = 8 * config.m_tiles;
  const int64_t blocks = (n + columns - 1) / columns * ((m + rows - 1) / rows);
  while (sm >= 90 && choice.split < kMaxAwqSplit &&
         2 * choice.split * blocks <= sm_count * config.blocks) {
    choice.split *= 2;
  }
  return choice;
}

}  // namespace mixed_gemm
