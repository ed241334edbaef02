#include "multistage/cost.h"

#include <algorithm>
#include <cmath>

#include "mainloop/multistage_stage.h"
#include "mainloop/weight_cost.h"
#include "multistage/config.h"

namespace mixed_gemm {
namespace {

// Times in microseconds. Fitted by random search to all candidates measured on an H200 (9 schemes,
// 498 points), those of skinny/ and wgmma/ later than these: of the candidates of
// 98e17d7 the predicted best is on average 2.4 % slower than the measured best, more than 5 % at 72
// points. They are effective values: terms that always come together share their sum as the fit
// liked. Where a point was measured, the tuned table decides (dispatch/select.h).
constexpr double kStreamUs = 2.79;            // stream-K: zeroing flags, a second prologue
constexpr double kSlotUs = 2.6;               // reducing the partial sums of one more block
constexpr double kClusterUs = 1.0;            // barriers of a cluster
constexpr double kClusterMoreUs = 3.9;        // of more than two blocks, for every doubling
constexpr double kClusterRate = 25e3;         // bytes of sums per us that a block reads from others
constexpr double kReduceUs = 2.57;            // second kernel of a parallel split
constexpr double kReduceSpeed = 0.785;        // its partial sums, over memory bandwidth
constexpr double kDramLatencyUs = 0.0357;     // hidden by stages - 1 k-tiles
constexpr double kMmaEfficiency = 0.713;      // of the mma.sync rate
constexpr double kConvertedPerUs = 161401.6;  // weights that an SM converts and scales
constexpr double kWarpTileUs = 0.0053;        // copies, addresses, barrier of a warp and k-tile
constexpr double kWarpsForPeak = 8.05;        // of an SM
constexpr double kOverlapLoss = 0.0324;
constexpr ConversionWork kWork = {0.935, 1.4, 1.99, 1.02};

int blocks_per_sm(const TileConfig& t, int smem, const DeviceInfo& device) {
  return std::max(1, std::min(t.min_blocks, device.smem_bytes / (smem + 1024)));
}

// The time of one k-tile of all resident blocks of an SM: multiply and convert (both issued by the
// same warps), stream the weights from memory, wait for the oldest stage. They overlap partly.
double k_tile_us(const TileConfig& t, const GemmProblem& p, const DeviceInfo& d,
                 const ScaleMode& mode, double resident, double active_sms) {
  const double warps = resident * num_threads(t) / 32;
  const double mma_rate = d.mma_tflops * 1e6 / d.sm_count * kMmaEfficiency;  // flop per us
  const double converted = static_cast<double>(t.n) * kTileK * (t.m / t.warp_m) * resident *
                           conversion_work(p, mode, scale_rows(mode) > 1, kWork);
  const double multiply = (2.0 * t.m * t.n * kTileK * resident / mma_rate +
                           converted / kConvertedPerUs + kWarpTileUs * warps) /
                          std::min(1.0, warps / kWarpsForPeak);
  const double b_bytes = stage_bytes(t, p.scheme.weight, mode) - t.m * kTileK * 2;
  const double stream = b_bytes * resident * active_sms / (d.dram_gb_per_s * kGemmDramShare * 1e3);
  const double wait = kDramLatencyUs / (num_stages(t, p.scheme.weight) - 1);
  const double longest = std::max({multiply, stream, wait});
  return longest + kOverlapLoss * (multiply + stream + wait - longest);
}

}  // namespace

double predict_multistage_us(const Choice& c, const GemmProblem& p, const DeviceInfo& d) {
  const TileConfig& t = kTileConfigs[c.row];
  const ScaleMode mode = scale_mode(p.scheme, p.k);
  const int per_sm = blocks_per_sm(t, smem_bytes(t, p.scheme.weight, mode), d);
  const double tiles = static_cast<double>(ceil_div(p.m, t.m)) * ceil_div(p.n, t.n);
  const double k_tiles = static_cast<double>(ceil_div(p.k, kTileK));
  if (c.split == SplitK::kStreamK) {
    const double workers =
        std::min(tiles * k_tiles, static_cast<double>(c.blocks_per_sm) * d.sm_count);
    const double resident = std::min<double>(per_sm, std::ceil(workers / d.sm_count));
    const double waves = std::ceil(workers / (static_cast<double>(d.sm_count) * per_sm));
    const double steps = std::ceil(tiles * k_tiles / workers);
    const double slots = std::max(1.0, std::ceil(workers / tiles));
    return kGemmLaunchUs + kDramLatencyUs + kStreamUs + kSlotUs * slots +
           waves * steps *
               k_tile_us(t, p, d, mode, resident, std::min<double>(d.sm_count, workers));
  }
  const double blocks = tiles * c.slices;
  const double waves = std::ceil(blocks / (static_cast<double>(d.sm_count) * per_sm));
  const double resident = std::min<double>(per_sm, std::ceil(blocks / d.sm_count));
  double us = kGemmLaunchUs + kDramLatencyUs +
              waves * std::ceil(k_tiles / c.slices) *
                  k_tile_us(t, p, d, mode, resident, std::min<double>(d.sm_count, blocks));
  if (c.split == SplitK::kCluster) {
    us += kClusterUs + (c.slices > 2 ? kClusterMoreUs * std::log2(c.slices) : 0) +
          4.0 * t.m * t.n / kClusterRate;
  }
  if (c.split == SplitK::kParallel) us += reduce_us(c, p, d, kReduceUs, kReduceSpeed);
  return us;
}

}  // namespace mixed_gemm
