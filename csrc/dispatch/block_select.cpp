#include "dispatch/block_select.h"

#include <algorithm>
#include <numeric>

#include "core/count_product.h"
#include "dispatch/direct_cost.h"
#include "dispatch/no_tile.h"

namespace mixed_gemm {
namespace {

constexpr const char* kFamily = "block";
constexpr int64_t kMaxCount = int64_t{1} << 30;  // of what kernels count in 32 bits, with room

// What scaling the sums of a block costs, as K multiplied: 4 fp32 operations and a conversion for
// an output, 6 issue slots, against a product in 1 / 700 of a cycle. Derived, not measured.
constexpr double kFoldK = 100;

int smem_of(const BlockCandidate& c, const BlockForm& form) {
  return block_smem_bytes(kBlockTileConfigs[c.row], kBlockScaleRows[form.scale_mode()]);
}

double predict_us(const BlockCandidate& c, const BlockGemmProblem& p, const DeviceInfo& d) {
  const BlockForm form = BlockForm::of(p);
  const double folds = kFoldK / static_cast<double>(std::max<int64_t>(form.padded, 1));
  return predict_direct_us(c,
                           {kBlockTileConfigs[c.row], smem_of(c, form), p.m, p.n, form.k,
                            form.split_parts(), form.split_lines(), folds},
                           d);
}

}  // namespace

std::string config_name(const BlockCandidate& c) {
  return tile_choice_name(kFamily, kBlockTileConfigs, c);
}

std::optional<BlockCandidate> parse_block_config(const std::string& name) {
  BlockCandidate c;
  if (parse_tile_choice(name, kFamily, kBlockTileConfigs, kNumBlockTileConfigs, c)) return c;
  return std::nullopt;
}

std::string why_not_block_counts(const BlockGemmProblem& p) {
  const BlockForm form = BlockForm::of(p);
  const struct {
    const char* what;
    int64_t count;
    const char* hint;
  } counts[] = {
      {"M * blocks of K", p.m * form.blocks, "split M, or use a larger block_size"},
      {"N * blocks of K", p.n * form.blocks, "split N, or use a larger block_size"},
      {"K with blocks padded to 32", form.k, "split K and add the results"},
  };
  for (const auto& c : counts) {
    if (c.count <= kMaxCount) continue;
    return std::string(c.what) + " must be at most " + std::to_string(kMaxCount) +
           " on CUDA, got " + std::to_string(c.count) + " of M=" + std::to_string(p.m) +
           ", N=" + std::to_string(p.n) + ", K=" + std::to_string(p.k) +
           ", block_size=" + std::to_string(p.block_size) + ". Hint: " + c.hint;
  }
  return "";
}

std::string why_not_block(const BlockCandidate& c, const BlockGemmProblem& p,
                          const DeviceInfo& device) {
  const TileConfig& tile = kBlockTileConfigs[c.row];
  const BlockForm form = BlockForm::of(p);
  const int needed = smem_of(c, form);
  if (needed > device.smem_bytes) {
    return "needs " + std::to_string(needed) + " bytes of shared memory, the device has " +
           std::to_string(device.smem_bytes);
  }
  if (c.split == SplitK::kParallel) {
    return "a parallel split needs a third launch: cluster and streamk share out K without one";
  }
  const std::string cluster = why_not_cluster(c, tile, needed, device);
  if (!cluster.empty()) return cluster;
  if (is_sliced(c.split) && c.slices > form.split_parts()) {
    return "split_k must not be larger than the number of parts of K that end with a block and " +
           std::to_string(kScaledTileK) + " k, " + std::to_string(form.split_parts()) + ", got " +
           std::to_string(c.slices);
  }
  if (c.split == SplitK::kStreamK && p.k == 0) return "K is 0: there is nothing to share out";
  const int64_t count =
      count_product({ceil_div(p.m, tile.m), ceil_div(p.n, tile.n),
                     c.split == SplitK::kStreamK ? form.split_parts() : c.slices});
  if (count > kMaxCount) {
    return "has " + std::to_string(count) + " tiles or parts of them, more than can be counted";
  }
  return "";
}

std::vector<BlockCandidate> ranked_block(const BlockGemmProblem& problem,
                                         const DeviceInfo& device) {
  std::vector<BlockCandidate> legal;
  const auto consider = [&](BlockCandidate c) {
    if (!why_not_block(c, problem, device).empty()) return;
    c.predicted_us = predict_us(c, problem, device);
    legal.push_back(c);
  };
  std::vector<int> rows(kNumBlockTileConfigs);
  std::iota(rows.begin(), rows.end(), 0);
  for (const TileChoice& choice : tile_choices(kBlockTileConfigs, rows)) consider({choice, 0});
  std::stable_sort(legal.begin(), legal.end(),
                   [](const BlockCandidate& a, const BlockCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  return legal;
}

std::string why_none_block(const BlockGemmProblem& p, const DeviceInfo& device) {
  std::vector<RefusedTile> tiles;
  for (int row = 0; row < kNumBlockTileConfigs; ++row) {
    const BlockCandidate c{{row, SplitK::kNone, 1}, 0};
    tiles.push_back({config_name(c), kBlockTileConfigs[row], smem_of(c, BlockForm::of(p)),
                     why_not_block(c, p, device)});
  }
  return why_no_tile(tiles, device);
}

}  // namespace mixed_gemm
