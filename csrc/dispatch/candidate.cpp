#include "dispatch/candidate.h"

#include <cstdlib>

namespace mixed_gemm {
namespace {

constexpr const char* kSplitSuffix[] = {"", "_streamk", "_parallel"};

std::string tile_name(const TileConfig& tile) {
  return "multistage_m" + std::to_string(tile.m) + "n" + std::to_string(tile.n) + "s" +
         std::to_string(tile.stages);
}

std::string skinny_name(const SkinnyConfig& row) {
  return "skinny_m" + std::to_string(8 * row.m_tiles) + "n" + std::to_string(16 * row.n_tiles) +
         "w" + std::to_string(row.warps);
}

}  // namespace

std::string config_name(const Candidate& c) {
  if (c.family == Family::kDequantizeDense) return kFamilyNames[static_cast<int>(c.family)];
  if (c.family == Family::kSkinny) return skinny_name(kSkinnyConfigs[c.row]);
  const std::string split = kSplitSuffix[static_cast<int>(c.split)];
  return tile_name(kTileConfigs[c.row]) + split +
         (c.split == SplitK::kNone ? "" : std::to_string(c.slices));
}

std::optional<Candidate> parse_config(const std::string& name) {
  Candidate c;
  if (name == kFamilyNames[static_cast<int>(Family::kDequantizeDense)]) {
    c.family = Family::kDequantizeDense;
    return c;
  }
  c.family = Family::kSkinny;
  for (c.row = 0; c.row < kNumSkinnyConfigs; ++c.row) {
    if (name == skinny_name(kSkinnyConfigs[c.row])) return c;
  }
  c.family = Family::kMultistage;
  for (c.row = 0; c.row < kNumTileConfigs; ++c.row) {
    const std::string tile = tile_name(kTileConfigs[c.row]);
    if (name == tile) return c;
    for (const SplitK split : {SplitK::kStreamK, SplitK::kParallel}) {
      const std::string prefix = tile + kSplitSuffix[static_cast<int>(split)];
      if (name.compare(0, prefix.size(), prefix) != 0) continue;
      char* end = nullptr;
      const long slices = std::strtol(name.c_str() + prefix.size(), &end, 10);
      const bool stream = split == SplitK::kStreamK;
      if (*end != '\0' || slices < (stream ? 1 : 2) || slices > (stream ? 16 : 1024) ||
          name.size() == prefix.size())
        return std::nullopt;
      c.split = split;
      c.slices = static_cast<int>(slices);
      return c;
    }
  }
  return std::nullopt;
}

}  // namespace mixed_gemm
