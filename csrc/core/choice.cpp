#include "core/choice.h"

#include <cstdlib>

namespace mixed_gemm {
namespace {

constexpr const char* kSplitSuffix[] = {"", "_streamk", "_parallel", "_cluster"};
constexpr int kLeast[] = {1, 1, 2, 2}, kMost[] = {1, 16, 1024, kMaxCluster};

// The number after a suffix, or 0.
int parse_count(const char* text, SplitK split) {
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  return *text != '\0' && *end == '\0' && count >= kLeast[static_cast<int>(split)] &&
                 count <= kMost[static_cast<int>(split)]
             ? static_cast<int>(count)
             : 0;
}

}  // namespace

std::vector<Choice> tile_choices(const TileTable& table) {
  std::vector<Choice> choices;
  for (int row = 0; row < table.count; ++row) {
    choices.push_back({0, row, SplitK::kNone, 1});
    for (const int slices : {2, 3, 4, 6, 8, 12, 16}) {
      choices.push_back({0, row, SplitK::kParallel, slices});
    }
    for (int slices = 2; slices <= kMaxCluster; slices *= 2) {
      choices.push_back({0, row, SplitK::kCluster, slices});
    }
    const int most = table.rows[row].k_warps > 1 ? 0 : table.rows[row].min_blocks;
    for (int blocks_per_sm = 1; blocks_per_sm <= most; ++blocks_per_sm) {
      choices.push_back({0, row, SplitK::kStreamK, 1, blocks_per_sm});
    }
  }
  return choices;
}

std::string split_name(const Choice& c) {
  if (c.split == SplitK::kNone) return "";
  return kSplitSuffix[static_cast<int>(c.split)] +
         std::to_string(c.split == SplitK::kStreamK ? c.blocks_per_sm : c.slices);
}

bool parse_split(const std::string& text, Choice& choice) {
  choice.split = SplitK::kNone;
  choice.slices = 1;
  choice.blocks_per_sm = 0;
  if (text.empty()) return true;
  for (const SplitK split : {SplitK::kStreamK, SplitK::kParallel, SplitK::kCluster}) {
    const std::string suffix = kSplitSuffix[static_cast<int>(split)];
    if (text.compare(0, suffix.size(), suffix) != 0) continue;
    choice.split = split;
    int& count = split == SplitK::kStreamK ? choice.blocks_per_sm : choice.slices;
    count = parse_count(text.c_str() + suffix.size(), split);
    return count > 0;
  }
  return false;
}

std::string tile_choice_name(const TileTable& table, const Choice& choice) {
  const TileConfig& tile = table.rows[choice.row];
  std::string name =
      std::string(table.family) + "_m" + std::to_string(tile.m) + "n" + std::to_string(tile.n);
  if (tile.k_tiles > 1) name += "k" + std::to_string(work_step_k(tile));
  name += "s" + std::to_string(tile.stages);
  if (tile.k_warps > 1) name += "k" + std::to_string(tile.k_warps);
  return name + split_name(choice);
}

bool parse_tile_choice(const std::string& name, const TileTable& table, Choice& choice) {
  const auto tile_name = [&](int row) { return tile_choice_name(table, {0, row}); };
  return parse_row_and_split(name, table.count, tile_name, choice);
}

std::string why_not_cluster(const Choice& choice, const TileConfig& tile, int smem,
                            const DeviceInfo& device) {
  if (choice.split != SplitK::kCluster) return "";
  const std::string none = why_not_clusters(device);
  if (!none.empty()) return none;
  const int sums = tile.m * tile.n * 4;
  const int pipeline = smem - kMaxWarps * 4;
  if (sums <= pipeline) return "";
  return "needs " + std::to_string(sums) +
         " bytes of shared memory for the sums, the pipeline has " + std::to_string(pipeline);
}

}  // namespace mixed_gemm
