#include "skinny/cost.h"

#include <algorithm>
#include <cmath>

#include "mainloop/weight_cost.h"
#include "skinny/config.h"

namespace mixed_gemm {
namespace {

// Times in microseconds, fitted to all candidates up to 16 rows of one run (198 points), for the
// choice more than for the times (13 % root mean square): the predicted best of all is 1.8 %
// behind the measured best on average, 3.8 % with constants that know nothing of the shape.
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
constexpr ConversionWork kWork = {0.83, 1.6, 1.62, 0.77};
constexpr ConversionWork kStagedWork = {0.83, 1.1, 1.62, 0.77};  // scales in shared memory

}  // namespace

// Little's law: an SM streams as fast as its share of the memory, or as its warps keep bytes in
// flight between two requests.
double predict_skinny_us(const Choice& c, const GemmProblem& p, const DeviceInfo& d) {
  const SkinnyConfig& t = kSkinnyConfigs[c.row];
  const double m_blocks = static_cast<double>(ceil_div(p.m, 8 * t.m_tiles));
  const double blocks = m_blocks * ceil_div(p.n, 16 * t.n_tiles) * c.slices;
  const int mode = skinny_mode(t, p.scheme, p.m, p.k);
  const SkinnyScaleRows& rows = kSkinnyModes[mode];
  const bool scaled = rows.meets == Meets::kWeights, fine = rows.blocks == kMmaOfBlock;
  const bool staged = stages_scales(t, mode);
  // As compiled for sm_90, but for rules that depend on the type as well (skinny/config.cuh).
  const bool heavy = (scaled && rows.zeros && !staged) || (fine && t.n_tiles > 1) ||
                     (rows.blocks == 2 && rows.zeros && t.n_tiles > 1);
  const double work = conversion_work(p, skinny_scales(p.scheme.weight, mode), scaled,
                                      staged ? kStagedWork : kWork);
  const int tiles = t.m_tiles * t.n_tiles;
  const int resident_warps = skinny_resident_warps(tiles, heavy);
  const double per_sm = std::max(1, resident_warps / t.warps);
  const double share = std::ceil(blocks / d.sm_count);  // blocks of the busiest SM
  const double resident = std::min(std::max(1.0, blocks / d.sm_count), per_sm);
  const double in_flight = resident * t.warps * t.n_tiles * 1024;
  const double memory_rate =
      d.dram_gb_per_s * 1e3 * kSkinnyDram / d.sm_count;  // bytes per us and SM
  const double convert_rate = kSkinnyConverted * std::min(1.0, resident * t.warps / 16) *
                              bits_of(p.scheme.weight) / 8 / work;
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

}  // namespace mixed_gemm
