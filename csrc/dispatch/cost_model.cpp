#include "dispatch/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dispatch/support.h"
#include "mainloop/multistage_stage.h"
#include "multistage/config.h"
#include "skinny/config.h"
#include "wgmma/config.h"

namespace mixed_gemm {
namespace {

// Times in microseconds. Fitted by random search to all candidates measured on an H200 (9 schemes,
// 498 points), the skinny and the wgmma constants later than the others: of the candidates of
// 98e17d7 the predicted best is on average 2.4 % slower than the measured best, more than 5 % at 72
// points. They are effective values: terms that always come together share their sum as the fit
// liked. Where a point was measured, the tuned table decides (dispatch/select.h).
constexpr double kLaunchUs = 3.15;            // launch and pipeline prologue
constexpr double kStreamUs = 2.79;            // stream-K: zeroing flags, a second prologue
constexpr double kSlotUs = 2.6;               // adding the partial sums of one more block
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
constexpr double kDramEfficiency = 0.819;
// wgmma: fitted, for times (15 % root mean square) and for what is chosen, to all candidates of two
// runs of a8623b1 (498 points each), before scales multiplied sums and there was a tile of 64 x
// 256: what was predicted best of all was 1.6 % behind the measured best on average; without one
// shape, 1.5 to 6.5 % there. Fitted again to 98e17d7, 2.0 for 2.4 %: left alone.
constexpr double kWgmmaLaunchUs = 1.4;
constexpr double kWgmmaTflops = 1045;           // of all SMs; what is lost is in the step
constexpr double kWgmmaConvertedPerUs = 660e3;  // weights that the blocks of an SM convert
constexpr double kWgmmaAlone = 0.45;            // of the time of two blocks' conversion, for one
constexpr double kWgmmaStepUs = 0.105;          // of a k-tile
constexpr double kWgmmaTileUs = 0.83;           // storing 128 x 128 outputs
constexpr double kWgmmaStreamUs = 3.75;         // stream-K: zeroing flags
constexpr double kWgmmaSlotUs = 2.33;           // adding 128 x 128 sums of one more block
constexpr double kWgmmaReduceUs = 1.33;         // second kernel of a parallel split
constexpr double kWgmmaReduceSpeed = 0.36;
constexpr double kWgmmaDram = 0.875;
constexpr int kWgmmaBlocks = 2;  // of an SM: a third one gains 2 %, and counted as a whole one made
                                 // the choice for 32 to 64 rows 5 % worse than the best, for 3 %
// Skinny: fitted to all candidates up to 16 rows of one run (198 points), for what is chosen more
// than for the times (13 % root mean square): the predicted best of all is 1.8 % behind the
// measured best on average, 3.8 with constants that know nothing of the shape.
constexpr double kSkinnyLaunchUs = 0.34;      // while the kernel before drains
constexpr double kSkinnyDram = 0.9995;        // of the bandwidth
constexpr double kSkinnyBlockUs = 2.2;        // start, reduce and store,
constexpr double kSkinnyBlockTileUs = 0.005;  // and for each tile of 8 tokens by 16 columns
constexpr double kSkinnyTail = 0.0178;        // of a block's time, while the last ones drain
constexpr double kSkinnyLatencyUs = 0.86;     // of memory,
constexpr double kSkinnyTileUs = 0.087;       // and of a tile's products
constexpr double kSkinnyTokenRate = 344e3;    // bytes of activations per us and SM, from L2
constexpr double kSkinnyConverted = 577e3;    // weights that an SM converts per us
constexpr double kSkinnyClusterUs[] = {0, 0, 0.44, 1.6, 1.6};  // of so many blocks
// Work of converting a weight, over that of int4 with a scale per group of 64 and more.
struct ConversionWork {
  double no_scale, zero, fine, int8;
};
constexpr ConversionWork kMultistageWork = {0.935, 1.4, 1.99, 1.02};
constexpr ConversionWork kSkinnyWork = {0.83, 1.6, 1.62, 0.77};
constexpr ConversionWork kSkinnyStagedWork = {0.83, 1.1, 1.62, 0.77};  // scales in shared memory
constexpr ConversionWork kWgmmaWork = {1.0, 1.0, 2.6, 1.3};

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

template <typename Mode>
double conversion_work(const GemmProblem& p, Mode mode, bool fine, const ConversionWork& work) {
  return (mode == Mode::kPerChannel ? work.no_scale : 1.0) * (has_zeros(mode) ? work.zero : 1.0) *
         (fine ? work.fine : 1.0) * (p.scheme.bits == 8 ? work.int8 : 1.0);
}

int blocks_per_sm(const TileConfig& t, int smem, const DeviceInfo& device) {
  return std::max(1, std::min(t.min_blocks, device.smem_bytes / (smem + 1024)));
}

// One k-tile of all resident blocks of an SM: multiply and convert (both issued by the same warps),
// stream the weights from memory, wait for the oldest stage. They overlap, but not fully.
double k_tile_us(const TileConfig& t, const GemmProblem& p, const DeviceInfo& d, ScaleMode mode,
                 double resident, double active_sms) {
  const double warps = resident * num_threads(t) / 32;
  const double mma_rate = d.mma_tflops * 1e6 / d.sm_count * kMmaEfficiency;  // flop per us
  const double converted = static_cast<double>(t.n) * kTileK * (t.m / t.warp_m) * resident *
                           conversion_work(p, mode, scale_rows(mode) > 1, kMultistageWork);
  const double multiply = (2.0 * t.m * t.n * kTileK * resident / mma_rate +
                           converted / kConvertedPerUs + kWarpTileUs * warps) /
                          std::min(1.0, warps / kWarpsForPeak);
  const double b_bytes = stage_bytes(t, p.scheme.bits, mode) - t.m * kTileK * 2;
  const double stream = b_bytes * resident * active_sms / (d.dram_gb_per_s * kDramEfficiency * 1e3);
  const double wait = kDramLatencyUs / (num_stages(t, p.scheme.bits) - 1);
  const double longest = std::max({multiply, stream, wait});
  return longest + kOverlapLoss * (multiply + stream + wait - longest);
}

// The second kernel of a parallel split.
double reduce_us(const Candidate& c, const GemmProblem& p, const DeviceInfo& d, double launch_us,
                 double speed) {
  const double sum_bytes = 4.0 * p.m * round_up(p.n, 8);
  return launch_us + c.slices * sum_bytes / (d.dram_gb_per_s * speed * 1e3);
}

double multistage_us(const Candidate& c, const GemmProblem& p, const DeviceInfo& d) {
  const TileConfig& t = kTileConfigs[c.row];
  const ScaleMode mode = scale_mode(p.scheme, p.k);
  const int per_sm = blocks_per_sm(t, smem_bytes(t, p.scheme.bits, mode), d);
  const double tiles = static_cast<double>(ceil_div(p.m, t.m)) * ceil_div(p.n, t.n);
  const double k_tiles = static_cast<double>(ceil_div(p.k, kTileK));
  if (c.split == SplitK::kStreamK) {
    const double workers = std::min(tiles * k_tiles, static_cast<double>(c.slices) * d.sm_count);
    const double resident = std::min<double>(per_sm, std::ceil(workers / d.sm_count));
    const double waves = std::ceil(workers / (static_cast<double>(d.sm_count) * per_sm));
    const double units = std::ceil(tiles * k_tiles / workers);
    const double slots = std::max(1.0, std::ceil(workers / tiles));
    return kLaunchUs + kDramLatencyUs + kStreamUs + kSlotUs * slots +
           waves * units *
               k_tile_us(t, p, d, mode, resident, std::min<double>(d.sm_count, workers));
  }
  const double blocks = tiles * c.slices;
  const double waves = std::ceil(blocks / (static_cast<double>(d.sm_count) * per_sm));
  const double resident = std::min<double>(per_sm, std::ceil(blocks / d.sm_count));
  double us = kLaunchUs + kDramLatencyUs +
              waves * std::ceil(k_tiles / c.slices) *
                  k_tile_us(t, p, d, mode, resident, std::min<double>(d.sm_count, blocks));
  if (c.split == SplitK::kCluster) {
    us += kClusterUs + (c.slices > 2 ? kClusterMoreUs * std::log2(c.slices) : 0) +
          4.0 * t.m * t.n / kClusterRate;
  }
  if (c.split == SplitK::kParallel) us += reduce_us(c, p, d, kReduceUs, kReduceSpeed);
  return us;
}

// Blocks run tile after tile; two on an SM share its tensor cores and hide each other's
// conversions.
double wgmma_us(const Candidate& c, const GemmProblem& p, const DeviceInfo& d) {
  const TileConfig& t = tile_of(c);
  const ScaleMode mode = scale_mode(p.scheme, p.k);
  const double tiles = static_cast<double>(ceil_div(p.m, t.m)) * ceil_div(p.n, t.n);
  const double k_tiles = static_cast<double>(ceil_div(p.k, unit_k(t)) * t.k_tiles);
  const double tile_share = t.m * t.n / 16384.0;  // of 128 x 128
  const bool stream = c.split == SplitK::kStreamK;
  const int blocks = wgmma_blocks(t, wgmma_mode(p.scheme, p.k));
  const double slots =
      static_cast<double>(std::min(stream ? std::min(c.slices, blocks) : blocks, kWgmmaBlocks)) *
      d.sm_count;
  const double parts = stream ? std::min(tiles * k_tiles, slots) : tiles * c.slices;
  const double resident = std::min(slots / d.sm_count, std::ceil(parts / d.sm_count));
  const double multiply = 2.0 * t.m * t.n * kTileK * resident / (kWgmmaTflops * 1e6 / d.sm_count);
  const double convert = t.n * kTileK * conversion_work(p, mode, scale_rows(mode) > 1, kWgmmaWork) /
                         kWgmmaConvertedPerUs * (kWgmmaAlone + (1 - kWgmmaAlone) * resident);
  const double stream_us = t.n * kTileK * p.scheme.bits / 8.0 * resident *
                           std::min<double>(d.sm_count, parts) /
                           (d.dram_gb_per_s * kWgmmaDram * 1e3);
  const double items = stream ? std::max(1.0, tiles / parts) : std::ceil(parts / slots);
  const double lines =
      stream ? std::ceil(tiles * k_tiles / parts) : std::ceil(k_tiles / c.slices) * items;
  double us = kWgmmaLaunchUs + kWgmmaTileUs * items * tile_share +
              lines * (std::max({multiply, convert, stream_us}) + kWgmmaStepUs);
  if (stream)
    us += kWgmmaStreamUs + kWgmmaSlotUs * std::max(1.0, std::ceil(parts / tiles)) * tile_share;
  if (c.split == SplitK::kParallel) us += reduce_us(c, p, d, kWgmmaReduceUs, kWgmmaReduceSpeed);
  return us;
}

// Little's law: an SM streams as fast as its share of the memory, or as its warps keep bytes in
// flight between two requests.
double skinny_us(const Candidate& c, const GemmProblem& p, const DeviceInfo& d) {
  const SkinnyConfig& t = kSkinnyConfigs[c.row];
  const double m_blocks = static_cast<double>(ceil_div(p.m, 8 * t.m_tiles));
  const double blocks = m_blocks * ceil_div(p.n, 16 * t.n_tiles) * c.slices;
  const SkinnyMode mode = skinny_mode(t, p.scheme, p.m, p.k);
  const bool scaled = scales_weights(mode);
  const bool fine = mode == SkinnyMode::kFine || mode == SkinnyMode::kFineZero;
  const bool staged = stages_scales(t, mode);
  const bool heavy = (scaled && has_zeros(mode) && !staged) || (fine && t.n_tiles > 1) ||
                     (mode == SkinnyMode::kHalfZero && t.n_tiles > 1);
  const double work = conversion_work(p, mode, scaled, staged ? kSkinnyStagedWork : kSkinnyWork);
  const int tiles = t.m_tiles * t.n_tiles;
  const int resident_warps = tiles > 4   ? 8
                             : tiles > 2 ? 16
                             : tiles > 1 ? (heavy ? 16 : 24)
                                         : (heavy ? 24 : 32);  // as compiled for sm_90
  const double per_sm = std::max(1, resident_warps / t.warps);
  const double share = std::ceil(blocks / d.sm_count);  // blocks of the busiest SM
  const double resident = std::min(std::max(1.0, blocks / d.sm_count), per_sm);
  const double in_flight = resident * t.warps * t.n_tiles * 1024;
  const double memory_rate =
      d.dram_gb_per_s * 1e3 * kSkinnyDram / d.sm_count;  // bytes per us and SM
  const double convert_rate =
      kSkinnyConverted * std::min(1.0, resident * t.warps / 16) * p.scheme.bits / 8 / work;
  const double turn_us = kSkinnyLatencyUs + kSkinnyTileUs * tiles * work;
  const double rate = std::min({memory_rate, in_flight / turn_us, convert_rate});
  const double weights = share * weight_bytes(p) * m_blocks / blocks;
  const double tokens = share * 2.0 * p.m / m_blocks * p.k / c.slices;  // from L2
  const double block =
      weights / share / rate * std::min(share, per_sm);  // one block, beside its neighbours
  return kSkinnyLaunchUs +
         (kSkinnyBlockUs + kSkinnyBlockTileUs * tiles) * std::ceil(share / per_sm) +
         weights / rate + tokens / kSkinnyTokenRate + kSkinnyTail * block +
         kSkinnyClusterUs[std::min(c.slices, kMaxSkinnyCluster)];
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

double dense_tflops(const DeviceInfo& device) { return rates_of(device.sm).dense_tflops; }

double predict_us(const Candidate& c, const GemmProblem& problem, const DeviceInfo& device) {
  switch (c.family) {
    case Family::kSkinny:
      return skinny_us(c, problem, device);
    case Family::kMultistage:
      return multistage_us(c, problem, device);
    case Family::kWgmma:
      return wgmma_us(c, problem, device);
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
  for (c.row = 0; c.row < kNumSkinnyConfigs; ++c.row) {
    for (c.slices = 1; c.slices <= kMaxSkinnyCluster; c.slices *= 2) {
      c.split = c.slices > 1 ? SplitK::kCluster : SplitK::kNone;
      consider(c);
    }
  }
  const auto consider_tiles = [&](Family family, const TileConfig* table, int count) {
    c.family = family;
    std::vector<int> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    for (const TileChoice& choice : tile_choices(table, rows)) {
      static_cast<TileChoice&>(c) = choice;
      consider(c);
    }
  };
  consider_tiles(Family::kMultistage, kTileConfigs, kNumTileConfigs);
  consider_tiles(Family::kWgmma, kWgmmaTileConfigs, kNumWgmmaTileConfigs);
  Candidate dense;
  dense.family = Family::kDequantizeDense;
  consider(dense);
  std::stable_sort(legal.begin(), legal.end(), [](const Candidate& a, const Candidate& b) {
    return a.predicted_us < b.predicted_us;
  });
  return legal;
}

}  // namespace mixed_gemm
