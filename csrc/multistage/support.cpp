#include "multistage/family.h"

#include "grid/tile_support.h"
#include "mainloop/multistage_stage.h"
#include "multistage/config.h"
#include "multistage/cost.h"

namespace mixed_gemm {
namespace {

constexpr TileTable kTiles = {"multistage", kTileConfigs, kNumTileConfigs};

std::vector<Choice> choices() { return tile_choices(kTiles); }
std::string config(const Choice& c) { return tile_choice_name(kTiles, c); }
bool parse(const std::string& name, Choice& c) { return parse_tile_choice(name, kTiles, c); }

TileUse tile_use(const Choice& c, const GemmProblem& p) {
  const TileConfig& tile = kTileConfigs[c.row];
  return {tile, smem_bytes(tile, p.scheme.weight, scale_mode(p.scheme, p.k))};
}

std::string why_not(const Choice& c, const GemmProblem& p, const DeviceInfo& device) {
  const std::string not_these = why_not_tensor_cores(p);
  if (!not_these.empty()) return not_these;
  if (!is_multistage_compiled(p.scheme.weight, multistage_mode(p.scheme, p.k))) {
    return why_not_compiled(p.scheme);
  }
  return why_not_tile(c, tile_use(c, p), p.m, p.n, p.k, device);
}

}  // namespace

const Family<GemmProblem> Multistage::plan = {
    "multistage", choices, config, parse, why_not, predict_multistage_us, tile_use};

}  // namespace mixed_gemm
