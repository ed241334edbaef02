#include "dispatch/candidate.h"

namespace mixed_gemm {
namespace {

const char* family_name(Family family) { return kFamilyNames[static_cast<int>(family)]; }

std::string skinny_name(const SkinnyConfig& row) {
  return "skinny_m" + std::to_string(8 * row.m_tiles) + "n" + std::to_string(16 * row.n_tiles) +
         "w" + std::to_string(row.warps);
}

}  // namespace

std::string config_name(const Candidate& c) {
  if (c.family == Family::kDequantizeDense) return family_name(c.family);
  if (c.family == Family::kSkinny) return skinny_name(kSkinnyConfigs[c.row]);
  return tile_choice_name(family_name(c.family), kTileConfigs, c);
}

std::optional<Candidate> parse_config(const std::string& name) {
  Candidate c;
  if (name == family_name(Family::kDequantizeDense)) {
    c.family = Family::kDequantizeDense;
    return c;
  }
  c.family = Family::kSkinny;
  for (c.row = 0; c.row < kNumSkinnyConfigs; ++c.row) {
    if (name == skinny_name(kSkinnyConfigs[c.row])) return c;
  }
  c.family = Family::kMultistage;
  if (parse_tile_choice(name, family_name(c.family), kTileConfigs, kNumTileConfigs, c)) return c;
  return std::nullopt;
}

}  // namespace mixed_gemm
