#include "dispatch/candidate.h"

namespace mixed_gemm {
namespace {

const char* family_name(Family family) { return kFamilyNames[static_cast<int>(family)]; }

std::string skinny_name(const SkinnyConfig& row) {
  return "skinny_m" + std::to_string(8 * row.m_tiles) + "n" + std::to_string(16 * row.n_tiles) +
         "w" + std::to_string(row.warps);
}

struct TileTable {
  Family family;
  const TileConfig* rows;
  int count;
};
constexpr TileTable kTileTables[] = {{Family::kMultistage, kTileConfigs, kNumTileConfigs},
                                     {Family::kWgmma, kWgmmaTileConfigs, kNumWgmmaTileConfigs}};

const TileTable& table_of(Family family) { return kTileTables[family == Family::kWgmma]; }

}  // namespace

const TileConfig& tile_of(const Candidate& c) { return table_of(c.family).rows[c.row]; }

std::string config_name(const Candidate& c) {
  if (c.family == Family::kDequantizeDense) return family_name(c.family);
  if (c.family == Family::kSkinny) return skinny_name(kSkinnyConfigs[c.row]) + split_name(c);
  return tile_choice_name(family_name(c.family), table_of(c.family).rows, c);
}

std::optional<Candidate> parse_config(const std::string& name) {
  Candidate c;
  if (name == family_name(Family::kDequantizeDense)) {
    c.family = Family::kDequantizeDense;
    return c;
  }
  c.family = Family::kSkinny;
  for (c.row = 0; c.row < kNumSkinnyConfigs; ++c.row) {
    const std::string row = skinny_name(kSkinnyConfigs[c.row]);
    if (name.compare(0, row.size(), row) == 0 && parse_split(name.substr(row.size()), c)) return c;
  }
  for (const TileTable& table : kTileTables) {
    c.family = table.family;
    if (parse_tile_choice(name, family_name(c.family), table.rows, table.count, c)) return c;
  }
  return std::nullopt;
}

}  // namespace mixed_gemm
