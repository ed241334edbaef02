#include "scaled/family.h"

#include "mainloop/direct_cost.h"
#include "mainloop/direct_stage.h"
#include "mainloop/direct_support.h"
#include "scaled/config.h"

namespace mixed_gemm {
namespace {

constexpr TileTable kTiles = {"scaled", kScaledTileConfigs, kNumScaledTileConfigs};

std::vector<Choice> choices() { return tile_choices(kTiles); }
std::string config(const Choice& c) { return tile_choice_name(kTiles, c); }
bool parse(const std::string& name, Choice& c) { return parse_tile_choice(name, kTiles, c); }

TileUse tile_use(const Choice& c, const ScaledMmProblem&) {
  const TileConfig& tile = kScaledTileConfigs[c.row];
  return {tile, scaled_smem_bytes(tile)};
}

std::string why_not(const Choice& c, const ScaledMmProblem& p, const DeviceInfo& device) {
  if (p.block_k > 0 && p.k > 0) return "takes scales of rows and columns, not of blocks";
  return why_not_direct(c, tile_use(c, p), p.m, p.n, p.k, device);
}

// The operands are made float16, which spills. The factor is not measured: it only has to be behind
// wgmma, which sm_90 has.
constexpr double kEmulated = 4;

double predict_us(const Choice& c, const ScaledMmProblem& p, const DeviceInfo& device) {
  const auto [tile, smem] = tile_use(c, p);
  return predict_direct_us(c, {tile, smem, p.m, p.n, p.k, ceil_div(p.k, kScaledTileK), 1, 0},
                           device) *
         (p.operand == OperandType::kFloat8E4M3 && has_no_float8_mma(device) ? kEmulated : 1);
}

}  // namespace

const Family<ScaledMmProblem> Scaled::plan = {"scaled", choices,    config,  parse,
                                              why_not,  predict_us, tile_use};

}  // namespace mixed_gemm
