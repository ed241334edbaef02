// THE list of compiled AWQ kernels, and which one runs.
#pragma once
#include <algorithm>
#include <cstdint>

namespace mixed_gemm {

// A warp makes 8 * m_tiles tokens by 64 * words columns; n_warps of them lie side by side in a
// block, and the others share out K. A block has max_warps, the most that the registers leave room
// for, where the grid fills the GPU once; min_warps where it fills it several times.
struct AwqConfig {
  int m_tiles, words, n_warps, max_warps, min_warps;
};
constexpr AwqConfig kAwqConfigs[] = {
    {1, 1, 1, 16, 4}, {1, 2, 1, 8, 2}, {2, 1, 1, 12, 3}, {4, 1, 1, 12, 3}, {4, 1, 2, 12, 6}};
constexpr int kNumAwqConfigs = sizeof(kAwqConfigs) / sizeof(kAwqConfigs[0]);
constexpr int kAwqUnitK = 64;    // that a warp has in flight; groups of multiples of it are coarse
constexpr int kMaxAwqRows = 64;  // of activations; for more, dequantize + dense GEMM
constexpr int64_t kMaxAwqExtent = int64_t{1} << 30;  // of N and K, which kernels count in 32 bits
constexpr int kMaxAwqSplit = 4;                      // blocks of a cluster, which share out K

// Groups that are not multiples of a unit.
constexpr bool awq_is_fine(int64_t group_size, int64_t k) {
  return group_size % kAwqUnitK != 0 && group_size < k;
}
// With 12 warps, fine kernels for 32 tokens spill before sm_90.
constexpr int awq_max_warps(const AwqConfig& config, bool fine) {
  return fine && config.m_tiles == 4 ? 8 : config.max_warps;
}

struct AwqChoice {
  int row;     // of kAwqConfigs
  int warps;   // of a block
  int split;   // blocks that share out K, for outputs too narrow to occupy the GPU; needs clusters
  bool early;  // kernel/early_start.cuh
};

inline int64_t awq_blocks(const AwqConfig& config, int64_t m, int64_t n) {
  const int64_t columns = 64 * config.words * config.n_warps, rows = 8 * config.m_tiles;
  return (n + columns - 1) / columns * ((m + rows - 1) / rows);
}

// pairs: words may be read two at a time.
inline AwqChoice select_awq(int64_t m, int64_t n, int64_t k, bool fine, bool pairs, int sm,
                            int sm_count) {
  // Wide blocks read whole 64-byte pieces of a row, or read the tokens half as often; narrow ones
  // are more, for small N.
  const bool wide = n / 128 >= sm_count;
  const int row = m > 16 ? 3 + (wide || m > 32) : m > 8 ? 2 : wide && pairs ? 1 : 0;
  const AwqConfig& config = kAwqConfigs[row];
  const int64_t blocks = awq_blocks(config, m, n);
  const int64_t per_sm = (blocks + sm_count - 1) / std::max(sm_count, 1);
  AwqChoice choice{row, 0, 1, sm >= 90};
  while (sm >= 90 && choice.split < kMaxAwqSplit && 2 * choice.split * blocks <= sm_count) {
    choice.split *= 2;
  }
  const int64_t units = (k + kAwqUnitK - 1) / kAwqUnitK;
  const int64_t busy = config.n_warps * ((units + choice.split - 1) / choice.split);
  const int resident =
      per_sm <= 1 ? config.max_warps
                  : std::max<int>(config.max_warps / (per_sm == 2 ? 2 : 4), config.min_warps);
  choice.warps = static_cast<int>(std::min<int64_t>(resident, busy));
  return choice;
}

}  // namespace mixed_gemm
