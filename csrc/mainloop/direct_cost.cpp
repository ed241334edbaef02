#include "mainloop/direct_cost.h"

#include <algorithm>
#include <cmath>

#include "mainloop/direct_stage.h"

namespace mixed_gemm {
namespace {

// Times in microseconds: effective values, fitted by random search to all candidates measured on an
// H200, as in multistage/cost.cpp.
constexpr double kLaunchUs = 3.22;         // launch, pipeline prologue, epilogue
constexpr double kStreamUs = 2.58;         // stream-K: zeroing flags, a second prologue
constexpr double kSlotUs = 1.27;           // reducing the partial sums of one more block
constexpr double kClusterMoreUs = 3.31;    // of more than two blocks, for every doubling
constexpr double kClusterUs = 1.15;        // barriers of a cluster
constexpr double kClusterRate = 14e3;      // bytes of sums per us that a block reads from others
constexpr double kWaveUs = 2.00;           // prologue and epilogue of another wave of blocks
constexpr double kReduceUs = 1.93;         // second kernel of a parallel split
constexpr double kMmaEfficiency = 0.750;   // of the int8 mma.sync rate, twice that of fp16
constexpr double kWarpsForPeak = 5.46;     // of an SM
constexpr double kWarpLineUs = 0.0221;     // copies, addresses, barrier of a warp and line
constexpr double kDramEfficiency = 0.850;  // of the bandwidth
constexpr double kL2OverDram = 1.65;       // what all SMs read from L2, over memory bandwidth
constexpr double kLineUs = 0.208;          // latency of the steps of one line, of one warp
constexpr double kLatencyUs = 1.32;        // of memory, hidden by stages - 1 lines
constexpr double kOverlapLoss = 0.0205;

// The time of one line of K of all resident blocks of an SM.
double line_us(const TileConfig& t, const DeviceInfo& d, double products, double resident,
               double active_sms) {
  const double warps = resident * num_threads(t) / 32;
  const double rate = 2 * d.mma_tflops * 1e6 / d.sm_count * kMmaEfficiency;
  const double multiply = 2.0 * t.m * t.n * kScaledTileK * resident * products / rate /
                              std::min(1.0, warps / kWarpsForPeak) +
                          kWarpLineUs * warps;
  const double stream = scaled_stage_bytes(t) * resident * active_sms /
                        (d.dram_gb_per_s * kL2OverDram * kDramEfficiency * 1e3);
  const double wait = std::max(kLineUs, kLatencyUs / (t.stages - 1));
  const double longest = std::max({multiply, stream, wait});
  return longest + kOverlapLoss * (multiply + stream + wait - longest);
}

}  // namespace

double predict_direct_us(const Choice& c, const DirectWork& w, const DeviceInfo& d) {
  const TileConfig& t = w.tile;
  const int per_sm = std::max(1, std::min(t.min_blocks, d.smem_bytes / (w.smem_bytes + 1024)));
  const double tiles = static_cast<double>(ceil_div(w.m, t.m)) * ceil_div(w.n, t.n);
  const double parts = static_cast<double>(w.parts);
  const double dram = (static_cast<double>(w.n) * w.k + static_cast<double>(w.m) * w.k) /
                      (d.dram_gb_per_s * kDramEfficiency * 1e3);
  const bool stream = c.split == SplitK::kStreamK;
  const double workers =
      stream ? std::min(tiles * parts, double(c.blocks_per_sm) * d.sm_count) : tiles * c.slices;
  const double resident = std::min<double>(per_sm, std::ceil(workers / d.sm_count));
  const double waves = std::ceil(workers / (static_cast<double>(d.sm_count) * per_sm));
  const double steps = std::ceil(stream ? tiles * parts / workers : parts / c.slices) *
                       static_cast<double>(w.part_lines);
  const double us =
      waves * steps *
      line_us(t, d, 1 + w.more_products, resident, std::min<double>(d.sm_count, workers));
  double extra = 0;
  if (stream) extra = kStreamUs + kSlotUs * std::max(1.0, std::ceil(workers / tiles));
  if (c.split == SplitK::kCluster) {
    extra = kClusterUs + (c.slices > 2 ? kClusterMoreUs * std::log2(c.slices) : 0) +
            4.0 * t.m * t.n / kClusterRate;
  }
  if (c.split == SplitK::kParallel) {
    extra = kReduceUs + c.slices * 4.0 * w.m * w.n * 2 / (d.dram_gb_per_s * 1e3);
  }
  return kLaunchUs + extra + kWaveUs * (waves - 1) + std::max(us, dram);
}

}  // namespace mixed_gemm
