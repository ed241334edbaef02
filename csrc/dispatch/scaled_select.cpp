#include "dispatch/scaled_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "core/scaled_tile_config.h"

namespace mixed_gemm {
namespace {

constexpr const char* kFamily = "scaled";

// Times in microseconds: effective values, fitted by random search to all candidates measured on an
// H200, as in cost_model.cpp.
constexpr double kLaunchUs = 2.67;         // launch, pipeline prologue, epilogue
constexpr double kStreamUs = 1.96;         // stream-K: zeroing flags, a second prologue
constexpr double kSlotUs = 2.13;           // adding the partial sums of one more block
constexpr double kClusterMoreUs = 3.88;    // of more than two blocks, for every doubling
constexpr double kClusterUs = 0.98;        // barriers of a cluster
constexpr double kClusterRate = 25e3;      // bytes of sums per us that a block reads from others
constexpr double kReduceUs = 3.20;         // second kernel of a parallel split
constexpr double kMmaEfficiency = 0.750;   // of the int8 mma.sync rate, twice that of fp16
constexpr double kWarpsForPeak = 5.46;     // of an SM
constexpr double kWarpLineUs = 0.0221;     // copies, addresses, barrier of a warp and line
constexpr double kDramEfficiency = 0.850;  // of the bandwidth
constexpr double kL2OverDram = 1.65;       // what all SMs read from L2, over memory bandwidth
constexpr double kLineUs = 0.208;          // latency of the steps of one line, of one warp
constexpr double kLatencyUs = 1.32;        // of memory, hidden by stages - 1 lines
constexpr double kOverlapLoss = 0.0205;

int64_t lines_of(const ScaledMmProblem& p) { return ceil_div(p.k, kScaledTileK); }

// One line of K of all resident blocks of an SM.
double line_us(const TileConfig& t, const DeviceInfo& d, double resident, double active_sms) {
  const double warps = resident * num_threads(t) / 32;
  const double rate = 2 * d.mma_tflops * 1e6 / d.sm_count * kMmaEfficiency;
  const double multiply =
      2.0 * t.m * t.n * kScaledTileK * resident / rate / std::min(1.0, warps / kWarpsForPeak) +
      kWarpLineUs * warps;
  const double stream = scaled_stage_bytes(t) * resident * active_sms /
                        (d.dram_gb_per_s * kL2OverDram * kDramEfficiency * 1e3);
  const double wait = std::max(kLineUs, kLatencyUs / (t.stages - 1));
  const double longest = std::max({multiply, stream, wait});
  return longest + kOverlapLoss * (multiply + stream + wait - longest);
}

}  // namespace

double predict_us(const ScaledCandidate& c, const ScaledMmProblem& p, const DeviceInfo& d) {
  const TileConfig& t = kScaledTileConfigs[c.row];
  const int per_sm =
      std::max(1, std::min(t.min_blocks, d.smem_bytes / (scaled_smem_bytes(t) + 1024)));
  const double tiles = static_cast<double>(ceil_div(p.m, t.m)) * ceil_div(p.n, t.n);
  const double lines = static_cast<double>(lines_of(p));
  const double dram = (static_cast<double>(p.n) * p.k + static_cast<double>(p.m) * p.k) /
                      (d.dram_gb_per_s * kDramEfficiency * 1e3);
  const bool stream = c.split == SplitK::kStreamK;
  const double workers =
      stream ? std::min(tiles * lines, double(c.slices) * d.sm_count) : tiles * c.slices;
  const double resident = std::min<double>(per_sm, std::ceil(workers / d.sm_count));
  const double waves = std::ceil(workers / (static_cast<double>(d.sm_count) * per_sm));
  const double units = std::ceil(stream ? tiles * lines / workers : lines / c.slices);
  const double us = waves * units * line_us(t, d, resident, std::min<double>(d.sm_count, workers));
  double extra = 0;
  if (stream) extra = kStreamUs + kSlotUs * std::max(1.0, std::ceil(workers / tiles));
  if (c.split == SplitK::kCluster) {
    extra = kClusterUs + (c.slices > 2 ? kClusterMoreUs * std::log2(c.slices) : 0) +
            4.0 * t.m * t.n / kClusterRate;
  }
  if (c.split == SplitK::kParallel) {
    extra = kReduceUs + c.slices * 4.0 * p.m * p.n * 2 / (d.dram_gb_per_s * 1e3);
  }
  return kLaunchUs + extra + std::max(us, dram);
}

std::string config_name(const ScaledCandidate& c) {
  return tile_choice_name(kFamily, kScaledTileConfigs, c);
}

std::optional<ScaledCandidate> parse_scaled_config(const std::string& name) {
  ScaledCandidate c;
  if (parse_tile_choice(name, kFamily, kScaledTileConfigs, kNumScaledTileConfigs, c)) return c;
  return std::nullopt;
}

std::string why_not_operand(OperandType operand, const DeviceInfo& device) {
  if (operand == OperandType::kInt8 || device.sm >= 89) return "";
  return "float8_e4m3fn needs tensor cores of compute capability 8.9 or newer, got " +
         std::to_string(device.sm / 10) + "." + std::to_string(device.sm % 10) +
         "; quantize to int8, or move the tensors to the CPU";
}

std::string why_not_scaled(const ScaledCandidate& c, const ScaledMmProblem& p,
                           const DeviceInfo& device) {
  const TileConfig& tile = kScaledTileConfigs[c.row];
  const int needed = scaled_smem_bytes(tile);
  if (needed > device.smem_bytes) {
    return "needs " + std::to_string(needed) + " bytes of shared memory, the device has " +
           std::to_string(device.smem_bytes);
  }
  const std::string cluster = why_not_cluster(c, tile, needed, device);
  if (!cluster.empty()) return cluster;
  if (is_sliced(c.split) && c.slices > lines_of(p)) {
    return "split_k must not be larger than the number of k-tiles, ceil(K / 128) = " +
           std::to_string(lines_of(p)) + ", got " + std::to_string(c.slices);
  }
  if (c.split == SplitK::kStreamK && p.k == 0) return "K is 0: there is nothing to share out";
  const int64_t count = ceil_div(p.m, tile.m) * ceil_div(p.n, tile.n) *
                        (c.split == SplitK::kStreamK ? lines_of(p) : c.slices);
  if (count > std::numeric_limits<int32_t>::max()) {
    return "has " + std::to_string(count) + " tiles or parts of them, more than can be counted";
  }
  return "";
}

std::vector<ScaledCandidate> ranked_scaled(const ScaledMmProblem& problem,
                                           const DeviceInfo& device) {
  std::vector<ScaledCandidate> legal;
  const auto consider = [&](ScaledCandidate c) {
    if (!why_not_scaled(c, problem, device).empty()) return;
    c.predicted_us = predict_us(c, problem, device);
    legal.push_back(c);
  };
  std::vector<int> rows(kNumScaledTileConfigs);
  std::iota(rows.begin(), rows.end(), 0);
  for (const TileChoice& choice : tile_choices(kScaledTileConfigs, rows)) consider({choice, 0});
  std::stable_sort(legal.begin(), legal.end(),
                   [](const ScaledCandidate& a, const ScaledCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  return legal;
}

ScaledCandidate select_scaled(const ScaledMmProblem& p, const DeviceInfo& device) {
  constexpr size_t kMaxRemembered = 4096;
  using Key = std::tuple<int64_t, int64_t, int64_t, int, int, int>;
  thread_local std::map<Key, ScaledCandidate> remembered;
  if (remembered.size() >= kMaxRemembered) remembered.clear();
  const Key key{p.m, p.n, p.k, device.sm, device.sm_count, device.smem_bytes};
  const auto found = remembered.find(key);
  if (found != remembered.end()) return found->second;
  const ScaledCandidate chosen = ranked_scaled(p, device).front();
  remembered.emplace(key, chosen);
  return chosen;
}

}  // namespace mixed_gemm
