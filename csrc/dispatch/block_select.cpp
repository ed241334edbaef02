#include "dispatch/block_select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mixed_gemm {
namespace {

constexpr const char* kFamily = "block";
constexpr int64_t kMaxCount = int64_t{1} << 30;  // of what kernels count in 32 bits, with room

// Times in microseconds. Of the int8 mainloop, as measured for scaled_mm (scaled_select.cpp).
constexpr double kLaunchUs = 3.2;         // launch, pipeline prologue, epilogue
constexpr double kStreamUs = 1.4;         // stream-K: a second prologue
constexpr double kSlotUs = 2.6;           // adding the partial sums of one more block
constexpr double kClusterUs = 1.0;        // barriers of a cluster
constexpr double kClusterRate = 70e3;     // bytes of sums per us that a block reads from others
constexpr double kMmaEfficiency = 0.70;   // of the int8 mma.sync rate, twice that of fp16
constexpr double kWarpsForPeak = 8;       // of an SM
constexpr double kDramEfficiency = 0.82;  // of the bandwidth
constexpr double kL2OverDram = 1.4;       // what all SMs read from L2, over memory bandwidth
constexpr double kLineUs = 0.17;          // latency of the steps of one line, of one warp
constexpr double kLatencyUs = 0.9;        // of memory, hidden by stages - 1 lines
// What scaling the sums of a block costs, as K multiplied: 4 fp32 operations and a conversion for
// an output, 6 issue slots, against a product in 1 / 700 of a cycle. Derived, not measured.
constexpr double kFoldK = 100;

int smem_of(const BlockCandidate& c, const BlockForm& form) {
  return block_smem_bytes(kBlockTileConfigs[c.row], kBlockScaleRows[form.scale_mode()]);
}

int64_t tiles_of(const TileConfig& t, const BlockGemmProblem& p) {
  return ceil_div(p.m, t.m) * ceil_div(p.n, t.n);
}

double predict_us(const BlockCandidate& c, const BlockGemmProblem& p, const DeviceInfo& d) {
  const TileConfig& t = kBlockTileConfigs[c.row];
  const BlockForm form = BlockForm::of(p);
  const int per_sm = std::max(1, std::min(t.min_blocks, d.smem_bytes / (smem_of(c, form) + 1024)));
  const double tiles = static_cast<double>(tiles_of(t, p));
  const double parts = static_cast<double>(form.split_parts());
  const bool stream = c.split == SplitK::kStreamK;
  const double workers =
      stream ? std::min(tiles * parts, double(c.slices) * d.sm_count) : tiles * c.slices;
  const double resident = std::min<double>(per_sm, std::ceil(workers / d.sm_count));
  const double waves = std::ceil(workers / (static_cast<double>(d.sm_count) * per_sm));
  const double units = std::ceil(stream ? tiles * parts / workers : parts / c.slices);
  const double lines = units * static_cast<double>(form.split_lines());

  const double dram_rate = d.dram_gb_per_s * kDramEfficiency * 1e3;  // bytes a us
  const double mma_rate = 2 * d.mma_tflops * 1e6 / d.sm_count * kMmaEfficiency;
  const double warps = std::min(1.0, resident * num_threads(t) / 32 / kWarpsForPeak);
  const double folds = kFoldK / std::max<double>(form.padded, 1);
  const double multiply =
      2.0 * t.m * t.n * kScaledTileK * resident * (1 + folds) / mma_rate / warps;
  const double read = scaled_stage_bytes(t) * resident * std::min<double>(d.sm_count, workers) /
                      (dram_rate * kL2OverDram);
  const double line = std::max({multiply, read, kLineUs, kLatencyUs / (t.stages - 1)});
  double extra = 0;
  if (stream) extra = kStreamUs + kSlotUs * std::max(1.0, std::ceil(workers / tiles));
  if (c.split == SplitK::kCluster) extra = kClusterUs + 4.0 * t.m * t.n / kClusterRate;
  const double dram = (static_cast<double>(p.n) + p.m) * form.k / dram_rate;
  return kLaunchUs + extra + std::max(waves * lines * line, dram);
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
      tiles_of(tile, p) * (c.split == SplitK::kStreamK ? form.split_parts() : c.slices);
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

}  // namespace mixed_gemm
