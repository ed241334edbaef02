#include "wgmma/family.h"

#include "grid/tile_support.h"
#include "hopper/support.h"
#include "wgmma/config.h"
#include "wgmma/cost.h"

namespace mixed_gemm {
namespace {

constexpr TileTable kTiles = {"wgmma", kWgmmaTileConfigs, kNumWgmmaTileConfigs};

std::vector<Choice> choices() { return tile_choices(kTiles); }
std::string config(const Choice& c) { return tile_choice_name(kTiles, c); }
bool parse(const std::string& name, Choice& c) { return parse_tile_choice(name, kTiles, c); }

TileUse tile_use(const Choice& c, const GemmProblem& p) {
  const TileConfig& tile = kWgmmaTileConfigs[c.row];
  return {tile, wgmma_smem_bytes(tile, p.scheme.weight, wgmma_scales(p.scheme, p.k))};
}

std::string why_not_scales(const TileConfig& tile, const GemmProblem& p) {
  const ScaleMode mode = wgmma_scales(p.scheme, p.k);
  if (!is_scaled(mode)) return "";
  const int most = max_wgmma_scale_rows(tile, p.scheme.weight, mode);
  if (wgmma_scale_rows(p.scheme.scales.group, p.k) <= most) return "";
  return "scales weights in halves of a k-tile: group_size must be a multiple of " +
         std::to_string(kTileK / most) + ", got " + std::to_string(p.scheme.scales.group);
}

std::string why_not_mode(const GemmProblem& p) {
  const bool compiled = is_wgmma_compiled(p.scheme.weight, wgmma_mode(p.scheme, p.k));
  return compiled ? "" : why_not_compiled(p.scheme);
}

std::string why_not(const Choice& c, const GemmProblem& p, const DeviceInfo& device) {
  for (const std::string& reason :
       {why_not_tensor_cores(p), why_not_wgmma(device), why_not_wgmma_split(c.split, p.k),
        why_not_scales(kWgmmaTileConfigs[c.row], p), why_not_mode(p)}) {
    if (!reason.empty()) return reason;
  }
  return why_not_tile(c, tile_use(c, p), p.m, p.n, p.k, device);
}

}  // namespace

const Family<GemmProblem> Wgmma::plan = {"wgmma", choices,          config,  parse,
                                         why_not, predict_wgmma_us, tile_use};

}  // namespace mixed_gemm
