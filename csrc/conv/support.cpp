#include "conv/family.h"

#include "conv/config.h"
#include "conv/cost.h"
#include "grid/tile_support.h"
#include "layout/conv_layout.h"

namespace mixed_gemm {
namespace {

constexpr TileTable kTiles = {"implicit", kConvTileConfigs, kNumConvTileConfigs};

std::vector<Choice> choices() { return tile_choices(kTiles); }
std::string config(const Choice& c) { return tile_choice_name(kTiles, c); }
bool parse(const std::string& name, Choice& c) { return parse_tile_choice(name, kTiles, c); }

ScaleMode scales_of(const ConvProblem& p) {
  const ZeroMode zero_mode = p.offsets == nullptr ? ZeroMode::kNone : ZeroMode::kAdd;
  return conv_scale_mode(zero_mode, p.block_size, p.shape.in_c, channels_per_tap(p.shape.in_c));
}

TileUse tile_use(const Choice& c, const ConvProblem& p) {
  const TileConfig& tile = kConvTileConfigs[c.row];
  return {tile, conv_smem_bytes(tile, p.weight, scales_of(p))};
}

std::string why_not(const Choice& c, const ConvProblem& p, const DeviceInfo& device) {
  if (p.element == ElementType::kFloat32) return "has 16-bit activations, got float32";
  const GemmProblem gemm = gemm_of(p);
  if (!is_conv_compiled(p.weight, mode_index(kConvModes, scales_of(p)))) {
    return why_not_compiled(gemm.scheme);
  }
  return why_not_tile(c, tile_use(c, p), gemm.m, gemm.n, gemm.k, device);
}

}  // namespace

const Family<ConvProblem> ImplicitGemm::plan = {
    "implicit", choices, config, parse, why_not, predict_implicit_us, tile_use};

}  // namespace mixed_gemm
