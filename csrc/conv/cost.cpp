#include "conv/cost.h"

#include <algorithm>
#include <cmath>

#include "conv/config.h"
#include "layout/conv_layout.h"
#include "mainloop/image_cost.h"

namespace mixed_gemm {
namespace {

// Times in microseconds: effective values, fitted by random search to 1349 candidates of the layers
// of ResNet-50 (int4, blocks of 64, no offsets) at batch 1, 8 and 32 on an H200. On the data of the
// fit the choice is 1.00 of the best on average at batch 1 and 1.01 at 8 and 32.
constexpr double kLaunchUs = 2.06;           // launch, addresses, first k-tile, epilogue
constexpr double kWithoutPdlUs = 1.3;        // more, where kernels are launched without PDL
constexpr double kWaveUs = 2.36;             // the same of every further wave of blocks
constexpr double kLatencyUs = 0.165;         // of a k-tile, of one warp
constexpr double kMmaEfficiency = 0.798;     // of the mma.sync rate
constexpr double kConvertedPerUs = 245.5e3;  // weights that an SM converts and scales
constexpr double kZeroWork = 1.4;            // of converting with zeros; as in multistage/cost.cpp
constexpr double kFineWork = 2.0;            // with a scale for each mma step; likewise
constexpr double kWarpTileUs = 0.0159;       // copies and addresses of a warp and k-tile
constexpr double kOverlapLoss = 0.497;
constexpr double kOutputUs = 0.0094;       // of an output of a thread
constexpr double kSliceSumUs = 1.11e-4;    // of an output and warp that shares out K
constexpr double kClusterUs = 1.21;        // barriers of a cluster
constexpr double kClusterMoreUs = 0.455;   // of more than two blocks, for every doubling
constexpr double kClusterRate = 28e3;      // bytes of sums per us that a block reads from others
constexpr double kReduceUs = 2.6;          // second kernel of a parallel split
constexpr double kReduceSpeed = 0.85;      // its partial sums, over memory bandwidth
constexpr double kStreamUs = 8.3;          // stream-K: zeroing flags, waiting, reducing
constexpr double kTrafficOverDram = 2.08;  // of images, which come from L2

// The time of a k-tile of the resident blocks of an SM: of one k-tile for the block, or of one for
// each of the warps that share out K.
double k_tile_us(const TileConfig& t, const ScaleMode& mode, double resident, const DeviceInfo& d) {
  const double k_tiles = resident * t.k_warps;
  const double rate = d.mma_tflops * 1e6 / d.sm_count * kMmaEfficiency;  // flop per us
  const double work = (mode.zeros ? kZeroWork : 1) * (scale_rows(mode) > 1 ? kFineWork : 1);
  const double busy = k_tiles * (2.0 * t.m * t.n * kTileK / rate +
                                 work * t.n * kTileK * (t.m / t.warp_m) / kConvertedPerUs) +
                      kWarpTileUs * resident * num_threads(t) / 32;
  return overlapped({busy, kLatencyUs}, kOverlapLoss);
}

double split_us(const Choice& c, const GemmProblem& gemm, const DeviceInfo& d) {
  const TileConfig& t = kConvTileConfigs[c.row];
  const double sums = 4.0 * static_cast<double>(gemm.m) * round_up(gemm.n, 8);  // bytes
  switch (c.split) {
    case SplitK::kStreamK:
      return kStreamUs;
    case SplitK::kParallel:
      return kReduceUs + c.slices * sums / (d.dram_gb_per_s * kReduceSpeed * 1e3);
    case SplitK::kCluster:
      return kClusterUs + (c.slices > 2 ? kClusterMoreUs * std::log2(c.slices) : 0) +
             4.0 * t.m * t.n / kClusterRate;
    case SplitK::kNone:
      break;
  }
  return 0;
}

}  // namespace

double predict_implicit_us(const Choice& c, const ConvProblem& p, const DeviceInfo& d) {
  const GemmProblem gemm = gemm_of(p);
  const TileConfig& t = kConvTileConfigs[c.row];
  const ScaleMode mode = conv_scale_mode(gemm.scheme.scales.zeros, p.block_size, p.shape.in_c,
                                         channels_per_tap(p.shape.in_c));
  const double tiles = static_cast<double>(ceil_div(gemm.m, t.m)) * ceil_div(gemm.n, t.n);
  const double k_tiles = static_cast<double>(ceil_div(gemm.k, kTileK)), sms = d.sm_count;
  const bool stream = c.split == SplitK::kStreamK;
  const double blocks =
      stream ? std::min(tiles * k_tiles, c.blocks_per_sm * sms) : tiles * c.slices;
  const double per_sm = conv_blocks_per_sm(t, mode);
  const double resident = std::min(per_sm, std::ceil(blocks / sms));
  const double waves = std::ceil(blocks / (sms * per_sm));
  const double row = stream ? std::ceil(tiles * k_tiles / blocks)
                            : std::ceil(std::ceil(k_tiles / c.slices) / t.k_warps);
  const double outputs = static_cast<double>(t.m) * t.n;
  const double finish = kOutputUs * outputs / num_threads(t) +
                        (t.k_warps > 1 ? kSliceSumUs * outputs * t.k_warps * resident : 0);
  return kLaunchUs + (d.has_pdl() ? 0 : kWithoutPdlUs) + (waves - 1) * kWaveUs +
         waves * (row * k_tile_us(t, mode, resident, d) + finish) + split_us(c, gemm, d) +
         image_us(p, kTrafficOverDram, d);
}

}  // namespace mixed_gemm
