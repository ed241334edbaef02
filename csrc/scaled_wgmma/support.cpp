#include "scaled_wgmma/family.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/count_product.h"
#include "hopper/support.h"
#include "mainloop/direct_support.h"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {
namespace {

constexpr TileTable kTiles = {"wgmma", kWgmmaScaledTileConfigs, kNumWgmmaScaledTileConfigs};

std::vector<Choice> choices() { return tile_choices(kTiles); }
std::string config(const Choice& c) { return tile_choice_name(kTiles, c); }
bool parse(const std::string& name, Choice& c) { return parse_tile_choice(name, kTiles, c); }

TileUse tile_use(const Choice& c, const ScaledMmProblem&) {
  const TileConfig& tile = kWgmmaScaledTileConfigs[c.row];
  return {tile, wgmma_scaled_smem_bytes(tile)};
}

// Reason why blocks of scales are no line of K by the columns of whole instructions, or empty.
std::string why_not_scale_blocks(const ScaledMmProblem& p) {
  if (p.block_k == 0) return "";
  if (p.operand == OperandType::kInt8) return "takes scales of blocks for float8 only";
  if (p.block_k != kScaleBlock || p.block_n != kScaleBlock) {
    return "takes scales of blocks of 128 x 128 only, got block_n=" + std::to_string(p.block_n) +
           ", block_k=" + std::to_string(p.block_k);
  }
  for (const int64_t count : {count_product({p.m, p.scale_a_stride}),
                              count_product({ceil_div(p.n, kScaleBlock), p.scale_b_stride})}) {
    if (count > std::numeric_limits<int32_t>::max()) {
      return "takes scales of blocks in at most 2^31 - 1 elements, got " + std::to_string(count);
    }
  }
  return "";
}

// Reason why a tile of fewer rows than the instruction's cannot run, or empty.
std::string why_not_few_rows(const Choice& c, const ScaledMmProblem& p) {
  if (!has_few_rows(kWgmmaScaledTileConfigs[c.row])) return "";
  if (p.operand == OperandType::kInt8) return "multiplies float8 only";
  return c.split == SplitK::kStreamK ? "hands no sums over, of which most are of no row" : "";
}

std::string why_not(const Choice& c, const ScaledMmProblem& p, const DeviceInfo& device) {
  for (const std::string& reason : {why_not_scale_blocks(p), why_not_wgmma(device),
                                    why_not_few_rows(c, p), why_not_wgmma_split(c.split, p.k)}) {
    if (!reason.empty()) return reason;
  }
  return why_not_direct(c, tile_use(c, p), p.m, p.n, p.k, device);
}

// Times in microseconds, fitted with kReduceUs of mainloop/direct_cost.cpp to the 2767 candidates
// of one run of an H200, the faster the heavier. Constants that count where memory is the limit
// were fitted once more, for the choice, to kept points of these and to 80 points of an H100 with 1
// to 128 rows, int8 and float8: 1.5 % behind the measured best on average, with other families.
constexpr double kWgmmaLaunchUs = 1.955;
constexpr double kWgmmaTops = 1650;           // of all SMs; kWgmmaExtraLineUs has the losses
constexpr double kWgmmaExtraLineUs = 0.042;   // barriers of a line
constexpr double kWgmmaLatencyUs = 0.895;     // of memory, hidden by stages - 1 lines
constexpr double kWgmmaTileUs = 0.908;        // storing 128 x 128 outputs
constexpr double kWgmmaStreamUs = 6.65;       // stream-K: zeroing flags, waiting
constexpr double kWgmmaSlotUs = 0.961;        // reducing 128 x 128 sums of one more block
constexpr double kWgmmaL2OverDram = 2.77;     // L2's bandwidth for all SMs, over memory's
constexpr double kWgmmaApartOverDram = 1.85;  // the same for blocks whose tiles are far apart
constexpr double kWgmmaDram = 0.941;          // of the bandwidth, up to
constexpr double kWgmmaMostGbPerS = 3502;     // that the stages of all SMs keep in flight
constexpr double kWgmmaSmBytes = 42e3;        // of weights that an SM gets from memory in a us
constexpr double kWgmmaHotTokens = 0.183;     // more for tokens of few rows, that all SMs ask for

constexpr double kReduceUs = 1.90;  // second kernel of a parallel split

double predict_us(const Choice& c, const ScaledMmProblem& w, const DeviceInfo& d) {
  const TileConfig& t = kWgmmaScaledTileConfigs[c.row];
  const double tiles = static_cast<double>(ceil_div(w.m, t.m)) * ceil_div(w.n, t.n);
  const double lines = static_cast<double>(ceil_div(w.k, kScaledTileK)),
               tile_share = t.m * t.n / 16384.0;
  const bool stream = c.split == SplitK::kStreamK;
  const double slots = static_cast<double>(stream ? c.blocks_per_sm : t.min_blocks) * d.sm_count;
  const double parts = stream ? std::min(tiles * lines, slots) : tiles * c.slices;
  const double resident = std::min(slots / d.sm_count, std::ceil(parts / d.sm_count));
  const double items = stream ? std::max(1.0, tiles / parts) : std::ceil(parts / slots);
  const double lines_each =
      stream ? std::ceil(tiles * lines / parts) : std::ceil(lines / c.slices) * items;
  const double multiply = 2.0 * std::max(t.m, t.warp_m) * t.n * kScaledTileK * resident /
                          (kWgmmaTops * 1e6 / d.sm_count);
  const double l2 = stream && tiles > parts ? kWgmmaApartOverDram : kWgmmaL2OverDram;
  const double bytes = scaled_stage_bytes(t) * resident * std::min<double>(d.sm_count, parts) /
                       (d.dram_gb_per_s * l2 * 1e3);
  // Tiles of few rows read the weight once for each, and little of it from L2: 32 rows took 1.2 to
  // 2.6 times as long as 16 (H100).
  const auto m_tiles = static_cast<double>(ceil_div(w.m, t.m));
  const double reads = has_few_rows(t) ? m_tiles : 1.0;
  const double missing = std::max(0.0, 1 - static_cast<double>(w.m) / t.m);
  const double hot = 1 + kWgmmaHotTokens * missing * (64.0 / t.n) * (64.0 / t.n);
  const double dram = hot * (reads * w.n * w.k + static_cast<double>(w.m) * w.k) /
                      (std::min(d.dram_gb_per_s * kWgmmaDram, kWgmmaMostGbPerS) * 1e3);
  const double weights = t.n * kScaledTileK * resident / m_tiles / kWgmmaSmBytes;
  const double line =
      std::max({multiply, bytes, weights, kWgmmaLatencyUs / (t.stages - 1)}) + kWgmmaExtraLineUs;
  double us =
      kWgmmaLaunchUs + kWgmmaTileUs * items * tile_share + std::max(dram, lines_each * line);
  if (stream) {
    us += kWgmmaStreamUs + kWgmmaSlotUs * std::max(1.0, std::ceil(parts / tiles)) * tile_share;
  }
  if (c.split == SplitK::kParallel)
    us += kReduceUs + c.slices * 4.0 * w.m * w.n * 2 / (d.dram_gb_per_s * 1e3);
  return us;
}

}  // namespace

const Family<ScaledMmProblem> ScaledWgmma::plan = {"wgmma", choices,    config,  parse,
                                                   why_not, predict_us, tile_use};

}  // namespace mixed_gemm
