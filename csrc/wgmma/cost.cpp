#include "wgmma/cost.h"

#include <algorithm>
#include <cmath>

#include "mainloop/weight_cost.h"
#include "wgmma/config.h"

namespace mixed_gemm {
namespace {

// Times in microseconds, fitted, for times (15 % root mean square) and for the choice, to all
// candidates of two runs of a8623b1 (498 points each), before scales multiplied sums and there was
// a tile of 64 x 256: the predicted best of all was 1.6 % behind the measured best on average;
// fitted without one shape, 1.5 to 6.5 % there. A fit to 98e17d7 gave 2.0 for 2.4 %: left alone.
constexpr double kWgmmaLaunchUs = 1.4;
constexpr double kWgmmaTflops = 1045;           // of all SMs; kWgmmaStepUs has the losses
constexpr double kWgmmaConvertedPerUs = 660e3;  // weights that the blocks of an SM convert
constexpr double kWgmmaAlone = 0.45;            // of the time of two blocks' conversion, for one
constexpr double kWgmmaStepUs = 0.105;          // of a k-tile
constexpr double kWgmmaTileUs = 0.83;           // storing 128 x 128 outputs
constexpr double kWgmmaStreamUs = 3.75;         // stream-K: zeroing flags
constexpr double kWgmmaSlotUs = 2.33;           // reducing 128 x 128 sums of one more block
constexpr double kWgmmaReduceUs = 1.33;         // second kernel of a parallel split
constexpr double kWgmmaReduceSpeed = 0.36;
constexpr double kWgmmaDram = 0.875;
constexpr int kWgmmaBlocks = 2;  // of an SM: a third one gains 2 %, and counted as a whole one made
                                 // the choice for 32 to 64 rows 5 % worse than the best, for 3 %
constexpr ConversionWork kWork = {1.0, 1.0, 2.6, 1.3};

}  // namespace

// Blocks run tile after tile; two on an SM share its tensor cores and hide each other's
// conversions.
double predict_wgmma_us(const Choice& c, const GemmProblem& p, const DeviceInfo& d) {
  const TileConfig& t = kWgmmaTileConfigs[c.row];
  const ScaleMode mode = scale_mode(p.scheme, p.k);
  const double tiles = static_cast<double>(ceil_div(p.m, t.m)) * ceil_div(p.n, t.n);
  const double k_tiles = static_cast<double>(ceil_div(p.k, work_step_k(t)) * t.k_tiles);
  const double tile_share = t.m * t.n / 16384.0;  // of 128 x 128
  const bool stream = c.split == SplitK::kStreamK;
  const int blocks = wgmma_blocks(t, p.scheme.weight, wgmma_scales(p.scheme, p.k));
  const double slots = static_cast<double>(std::min(
                           stream ? std::min(c.blocks_per_sm, blocks) : blocks, kWgmmaBlocks)) *
                       d.sm_count;
  const double parts = stream ? std::min(tiles * k_tiles, slots) : tiles * c.slices;
  const double resident = std::min(slots / d.sm_count, std::ceil(parts / d.sm_count));
  const double multiply = 2.0 * t.m * t.n * kTileK * resident / (kWgmmaTflops * 1e6 / d.sm_count);
  const double convert = t.n * kTileK * conversion_work(p, mode, scale_rows(mode) > 1, kWork) /
                         kWgmmaConvertedPerUs * (kWgmmaAlone + (1 - kWgmmaAlone) * resident);
  const double stream_us = t.n * kTileK * bits_of(p.scheme.weight) / 8.0 * resident *
                           std::min<double>(d.sm_count, parts) /
                           (d.dram_gb_per_s * kWgmmaDram * 1e3);
  const double items = stream ? std::max(1.0, tiles / parts) : std::ceil(parts / slots);
  const double k_tiles_each =
      stream ? std::ceil(tiles * k_tiles / parts) : std::ceil(k_tiles / c.slices) * items;
  double us = kWgmmaLaunchUs + kWgmmaTileUs * items * tile_share +
              k_tiles_each * (std::max({multiply, convert, stream_us}) + kWgmmaStepUs);
  if (stream)
    us += kWgmmaStreamUs + kWgmmaSlotUs * std::max(1.0, std::ceil(parts / tiles)) * tile_share;
  if (c.split == SplitK::kParallel) us += reduce_us(c, p, d, kWgmmaReduceUs, kWgmmaReduceSpeed);
  return us;
}

}  // namespace mixed_gemm
