// THE list of compiled AWQ kernels, and which one runs.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// A warp makes 8 * m_tiles tokens by 64 * words columns; n_warps of them lie side by side in a
// block, and the others share out K. A block has max_warps, the most that the registers leave room
// for, where the grid fills the GPU once; min_warps where it fills it several times.
// Loads of weights bring whole_lines into L2, or half of each (awq/load.cuh).
struct AwqConfig {
  int m_tiles = 1, words = 1, n_warps = 1, max_warps = 0, min_warps = 0;
  bool whole_lines = true;
};
// A row in words: tokens by columns of a warp.
class AwqRow {
 public:
  constexpr AwqRow(int tokens, int columns) {
    config_.m_tiles = tokens / 8;
    config_.words = columns / 64;
  }
  constexpr AwqRow side_by_side(int warps) const {
    AwqRow changed = *this;
    changed.config_.n_warps = warps;
    return changed;
  }
  constexpr AwqRow warps(int least, int most) const {
    AwqRow changed = *this;
    changed.config_.min_warps = least;
    changed.config_.max_warps = most;
    return changed;
  }
  constexpr AwqRow half_lines() const {
    AwqRow changed = *this;
    changed.config_.whole_lines = false;
    return changed;
  }
  constexpr operator AwqConfig() const { return config_; }

 private:
  AwqConfig config_;
};
constexpr AwqConfig kAwqConfigs[] = {
    AwqRow(8, 64).warps(4, 16).half_lines(),
    AwqRow(8, 128).warps(2, 8),
    AwqRow(16, 64).warps(3, 12),
    AwqRow(32, 64).warps(3, 12),
    AwqRow(32, 64).side_by_side(2).warps(6, 12),
};
constexpr int kNumAwqConfigs = sizeof(kAwqConfigs) / sizeof(kAwqConfigs[0]);
constexpr int kAwqUnitK = 64;     // that a warp has in flight; groups of multiples of it are coarse
constexpr int kMaxAwqRows = 128;  // of activations; for more, dequantize + dense GEMM
constexpr int64_t kMaxAwqExtent = int64_t{1} << 30;   // of N and K, which kernels count in 32 bits
constexpr int64_t kMaxAwqWeights = int64_t{1} << 39;  // N K: zero points in 32 bits, too
constexpr int kMaxAwqSplit = 4;                       // blocks of a cluster, which share out K

// Whether groups are no multiples of a unit.
constexpr bool awq_is_fine(int64_t group_size, int64_t k) {
  return group_size % kAwqUnitK != 0 && group_size < k;
}
// The most warps of a block. With 12, fine kernels for 32 tokens spill before sm_90.
constexpr int awq_max_warps(const AwqConfig& config, bool fine) {
  return fine && config.m_tiles == 4 ? 8 : config.max_warps;
}

struct AwqChoice {
  int row;    // of kAwqConfigs
  int warps;  // of a block
  int split;  // blocks that share out K, for outputs too narrow to occupy the GPU; needs clusters
  bool pdl;   // whether it is launched with PDL (grid/pdl.cuh)
};

inline int64_t awq_blocks(const AwqConfig& config, int64_t m, int64_t n) {
  const int64_t columns = 64 * config.words * config.n_warps, rows = 8 * config.m_tiles;
  return ceil_div(n, columns) * ceil_div(m, rows);
}

inline int awq_row(int64_t m, int64_t n, bool pairs, int sm_count) {
  // Wide blocks read whole 64-byte pieces of a row, or the tokens half as often; narrow ones are
  // more, for small N.
  const bool wide = n / 128 >= sm_count;
  if (m <= 8) return wide && pairs ? 1 : 0;
  if (m <= 16) return 2;
  if (m <= 32) return wide ? 4 : 3;
  return awq_blocks(kAwqConfigs[3], m, n) <= sm_count ? 3 : 4;
}

// fine: awq_is_fine. pairs: words may be read two at a time.
inline AwqChoice select_awq(int64_t m, int64_t n, int64_t k, bool fine, bool pairs, int sm,
                            int sm_count) {
  AwqChoice choice{awq_row(m, n, pairs, sm_count), 0, 1, sm >= 90};
  const AwqConfig& config = kAwqConfigs[choice.row];
  const int64_t blocks = awq_blocks(config, m, n);
  while (sm >= 90 && choice.split < kMaxAwqSplit && 2 * choice.split * blocks <= sm_count) {
    choice.split *= 2;
  }
  const int shares = blocks <= sm_count ? 1 : blocks <= 2 * int64_t{sm_count} ? 2 : 4;  // of an SM
  const int64_t most = std::max(awq_max_warps(config, fine) / shares, config.min_warps);
  const int64_t units = config.n_warps * ceil_div(ceil_div(k, kAwqUnitK), choice.split);
  choice.warps = static_cast<int>(std::min(most, units));
  // Blocks of a cluster take turns of as many units as they have warps: even turns (4096 x 4096,
  // M = 16, 11 warps 7.1 us, 12 warps 7.4), and rather three of few warps than two of many, to
  // start and reduce fewer (M = 1 to 8, 11 warps 5.9 to 6.05 us, 16 warps 6.1 to 6.2).
  if (choice.split > 1) {
    int64_t turns = ceil_div(units, most);
    if (turns == 2 && config.m_tiles == 1) turns = 3;
    choice.warps = static_cast<int>(ceil_div(units / config.n_warps, turns)) * config.n_warps;
  }
  return choice;
}

}  // namespace mixed_gemm
