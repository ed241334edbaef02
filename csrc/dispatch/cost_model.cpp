#include "dispatch/cost_model.h"

#include <algorithm>
#include <cmath>

#include "dispatch/support.h"

namespace mixed_gemm {
namespace {

// Seconds-scale constants of the model, in microseconds. Fitted on an H200 to benchmarks/results/
// (notes/cost_model.md).
constexpr double kLaunchUs = 2.2;  // an empty kernel in a graph, prologue of the pipeline included
constexpr double kMemsetUs = 1.2;  // zeroing the locks of a serial split
constexpr double kReduceUs = 2.5;  // second kernel of a parallel split
constexpr double kReduceSpeed = 1.0;     // writing and reading partial sums, over memory bandwidth
constexpr double kTurnUs = 0.9;          // a slice waits for the one before it
constexpr double kDramLatencyUs = 0.75;  // a k-tile is requested stages - 1 tiles ahead
constexpr double kMmaEfficiency = 0.75;  // of the mma.sync rate, in the best tile
constexpr double kConvertedPerUs = 60000;  // weights an SM converts and scales in a microsecond
constexpr double kWarpsForPeak = 8;        // of an SM
constexpr double kOverlapLoss = 0.1;
constexpr double kDramEfficiency = 0.88;
constexpr double kL2PerDram = 1.6;      // L2 bandwidth over memory bandwidth
constexpr double kSkinnyDram = 1.0;     // of the efficiency above
constexpr double kSkinnyBlockUs = 1.0;  // start, reduce and store
constexpr double kSkinnyOverlapLoss = 0.1;
constexpr double kSkinnyIterationUs = 0.7;  // load weights, wait, multiply

struct Rates {
  int sm;
  double dram_gb_per_s, mma_tflops, dense_tflops;
};
// Vendor figures, but the mma rates of sm_90 and its dense (wgmma) rate, which were measured on an
// H200.
constexpr Rates kRates[] = {{80, 1555, 312, 250},
                            {86, 768, 150, 120},
                            {89, 864, 330, 165},
                            {90, 4400, 640, 700},
                            {100, 7000, 640, 1500}};

const Rates& rates_of(int sm) {
  const Rates* best = &kRates[0];
  for (const Rates& r : kRates) {
    if (r.sm <= sm) best = &r;
  }
  return *best;
}

double weight_bytes(const GemmProblem& p) {
  const double scale_bytes =
      2.0 * num_groups(p) * p.n * (p.scheme.zero_mode == ZeroMode::kNone ? 1 : 2);
  return static_cast<double>(p.n) * p.k * p.scheme.bits / 8 + scale_bytes;
}

// Registers limit the blocks of an SM; the count follows the accumulators (seen in every compiled
// kernel, within 10 %).
int blocks_per_sm(const TileConfig& t, int smem, const DeviceInfo& device) {
  const int registers = std::min(255, 56 + 3 * (t.warp_m * t.warp_n / 32) / 2);
  const int by_registers = 65536 / (registers * num_threads(t));
  const int by_smem = device.smem_bytes / (smem + 1024);
  return std::max(1, std::min({by_registers, by_smem, 16}));
}

double multistage_us(const Candidate& c, const GemmProblem& p, const DeviceInfo& d) {
  const TileConfig& t = kTileConfigs[c.row];
  const ScaleMode mode = scale_mode(p.scheme, p.k, kTileK);
  const double blocks = static_cast<double>(ceil_div(p.m, t.m)) * ceil_div(p.n, t.n) * c.slices;
  const int per_sm = blocks_per_sm(t, smem_bytes(t, p.scheme.bits, mode), d);
  const double k_tiles = static_cast<double>(ceil_div(ceil_div(p.k, kTileK), c.slices));
  const double waves = std::ceil(blocks / (static_cast<double>(d.sm_count) * per_sm));
  const double resident = std::min<double>(per_sm, std::ceil(blocks / d.sm_count));
  // One k-tile of all resident blocks of an SM: multiply and convert (both issued by the same
  // warps), stream the weights from memory, wait for the oldest stage. They overlap, but not fully.
  const double warps = resident * num_threads(t) / 32;
  const double mma_rate = d.mma_tflops * 1e6 / d.sm_count * kMmaEfficiency;  // flop per us
  const double converted = static_cast<double>(t.n) * kTileK * (t.m / t.warp_m) * resident;
  const double multiply =
      (2.0 * t.m * t.n * kTileK * resident / mma_rate + converted / kConvertedPerUs) /
      std::min(1.0, warps / kWarpsForPeak);
  const double b_bytes = stage_bytes(t, p.scheme.bits, mode) - t.m * kTileK * 2;
  const double active_sms = std::min<double>(d.sm_count, blocks);
  const double stream = b_bytes * resident * active_sms / (d.dram_gb_per_s * kDramEfficiency * 1e3);
  const double wait = kDramLatencyUs / (t.stages - 1);
  const double longest = std::max({multiply, stream, wait});
  const double per_k_tile = longest + kOverlapLoss * (multiply + stream + wait - longest);
  double us = kLaunchUs + kDramLatencyUs + waves * k_tiles * per_k_tile;
  const double sum_bytes = 4.0 * p.m * round_up(p.n, 8);
  if (c.split == SplitK::kSerial) us += kMemsetUs + (c.slices - 1) * kTurnUs;
  if (c.split == SplitK::kParallel)
    us += kReduceUs + c.slices * sum_bytes / (d.dram_gb_per_s * kReduceSpeed * 1e3);
  return us;
}

double skinny_us(const Candidate& c, const GemmProblem& p, const DeviceInfo& d) {
  const SkinnyConfig& t = kSkinnyConfigs[c.row];
  const double m_blocks = static_cast<double>(ceil_div(p.m, 8 * t.m_tiles));
  const double blocks = m_blocks * ceil_div(p.n, 16 * t.n_tiles);
  const double per_sm = std::max(1, (t.m_tiles * t.n_tiles > 1 ? 16 : 24) / t.warps);
  const double waves = std::ceil(blocks / (d.sm_count * per_sm));
  const double busy = std::min(1.0, blocks / d.sm_count);
  const double bandwidth = d.dram_gb_per_s * kDramEfficiency * busy * 1e3;
  const double weights = weight_bytes(p) / bandwidth;
  // Activations come from L2, once for every block of columns; reading weights again for more rows
  // does too.
  const double l2 = (2.0 * p.m * p.k * blocks / m_blocks + (m_blocks - 1) * weight_bytes(p)) /
                    (kL2PerDram * bandwidth);
  const double iterations =
      std::ceil(p.k / static_cast<double>(skinny_iteration_k(p.scheme.bits) * t.warps));
  const double latency = waves * (kSkinnyBlockUs + iterations * kSkinnyIterationUs);
  const double stream = (weights + l2) / kSkinnyDram;
  return kLaunchUs + std::max(stream, latency) + kSkinnyOverlapLoss * std::min(stream, latency);
}

double dense_us(const GemmProblem& p, const DeviceInfo& d) {
  const double element = p.element == ElementType::kFloat32 ? 4 : 2;
  const double dense_bytes = static_cast<double>(p.n) * p.k * element;
  const double dequantize =
      (weight_bytes(p) + dense_bytes) / (d.dram_gb_per_s * kDramEfficiency * 1e3);
  const double flops = 2.0 * p.m * p.n * p.k;
  const double rate = rates_of(d.sm).dense_tflops * (element == 4 ? 0.07 : 1.0) * 1e6;
  const double gemm =
      std::max(flops / rate, dense_bytes / (d.dram_gb_per_s * kDramEfficiency * 1e3));
  return 2 * kLaunchUs + dequantize + gemm;
}

}  // namespace

DeviceInfo with_default_rates(DeviceInfo device) {
  const Rates& rates = rates_of(device.sm);
  if (device.dram_gb_per_s <= 0) device.dram_gb_per_s = rates.dram_gb_per_s;
  if (device.mma_tflops <= 0) device.mma_tflops = rates.mma_tflops;
  return device;
}

double predict_us(const Candidate& c, const GemmProblem& problem, const DeviceInfo& device) {
  switch (c.family) {
    case Family::kSkinny:
      return skinny_us(c, problem, device);
    case Family::kMultistage:
      return multistage_us(c, problem, device);
    case Family::kDequantizeDense:
      break;
  }
  return dense_us(problem, device);
}

std::vector<Candidate> ranked_candidates(const GemmProblem& problem, const DeviceInfo& device) {
  std::vector<Candidate> legal;
  const auto consider = [&](Candidate c) {
    if (!why_not_candidate(c, problem, device).empty()) return;
    c.predicted_us = predict_us(c, problem, device);
    legal.push_back(c);
  };
  Candidate c;
  c.family = Family::kSkinny;
  for (c.row = 0; c.row < kNumSkinnyConfigs; ++c.row) consider(c);
  c.family = Family::kMultistage;
  for (c.row = 0; c.row < kNumTileConfigs; ++c.row) {
    c.split = SplitK::kNone;
    c.slices = 1;
    consider(c);
    for (const int slices : {2, 3, 4, 6, 8, 12, 16}) {
      for (const SplitK split : {SplitK::kSerial, SplitK::kParallel}) {
        c.split = split;
        c.slices = slices;
        consider(c);
      }
    }
  }
  Candidate dense;
  dense.family = Family::kDequantizeDense;
  consider(dense);
  std::stable_sort(legal.begin(), legal.end(), [](const Candidate& a, const Candidate& b) {
    return a.predicted_us < b.predicted_us;
  });
  return legal;
}

}  // namespace mixed_gemm
