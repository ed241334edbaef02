#include "conv_int8/family.h"

#include "conv_int8/config.h"
#include "mainloop/direct_cost.h"
#include "mainloop/direct_support.h"

namespace mixed_gemm {
namespace {

constexpr TileTable kTiles = {"int8", kConvInt8TileConfigs, kNumConvInt8TileConfigs};

std::vector<Choice> choices() { return tile_choices(kTiles); }
std::string config(const Choice& c) { return tile_choice_name(kTiles, c); }
bool parse(const std::string& name, Choice& c) { return parse_tile_choice(name, kTiles, c); }

TileUse tile_use(const Choice& c, const ConvInt8Problem&) {
  const TileConfig& tile = kConvInt8TileConfigs[c.row];
  return {tile, conv_int8_smem_bytes(tile)};
}

// The shared memory of the GEMM alone: the rows of pixels are beside it.
TileUse gemm_use(const Choice& c) {
  const TileConfig& tile = kConvInt8TileConfigs[c.row];
  return {tile, scaled_smem_bytes(tile)};
}

std::string why_not(const Choice& c, const ConvInt8Problem& p, const DeviceInfo& device) {
  if (c.split == SplitK::kParallel) return "has no second kernel that adds slices of int8 outputs";
  const ScaledMmProblem gemm = gemm_of(p.shape);
  const std::string reason = why_not_direct(c, gemm_use(c), gemm.m, gemm.n, gemm.k, device);
  return reason.empty() ? why_not_smem(tile_use(c, p).smem_bytes, device) : reason;
}

double predict_us(const Choice& c, const ConvInt8Problem& p, const DeviceInfo& device) {
  const ScaledMmProblem gemm = gemm_of(p.shape);
  const auto [tile, smem] = gemm_use(c);
  return predict_direct_us(
      c, {tile, smem, gemm.m, gemm.n, gemm.k, ceil_div(gemm.k, kScaledTileK), 1, 0}, device);
}

}  // namespace

const Family<ConvInt8Problem> ConvInt8::plan = {"int8",  choices,    config,  parse,
                                                why_not, predict_us, tile_use};

}  // namespace mixed_gemm
