#include "skinny/family.h"

#include "core/skinny_rows.h"
#include "problem/extents.h"
#include "skinny/config.h"
#include "skinny/cost.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kMaxSkinnyK = int64_t{1} << 28;  // 8 columns of a packed weight below 2^31 bytes

int tokens(int row) { return 8 * kSkinnyConfigs[row].m_tiles; }

std::string row_name(int row) {
  return skinny_row_name(tokens(row), 16 * kSkinnyConfigs[row].n_tiles, kSkinnyConfigs[row].warps);
}

std::vector<Choice> choices() {
  std::vector<Choice> all;
  for (int row = 0; row < kNumSkinnyConfigs; ++row) {
    for (int slices = 1; slices <= kMaxSkinnyCluster; slices *= 2) {
      all.push_back({0, row, slices > 1 ? SplitK::kCluster : SplitK::kNone, slices});
    }
  }
  return all;
}

std::string config(const Choice& c) { return row_name(c.row) + split_name(c); }

bool parse(const std::string& name, Choice& c) {
  return parse_row_and_split(name, kNumSkinnyConfigs, row_name, c);
}

std::string why_not_split(const Choice& c, const DeviceInfo& device) {
  if (c.split == SplitK::kNone) return "";
  if (c.split != SplitK::kCluster) return "splits K over clusters only";
  if (!skinny_splits(kSkinnyConfigs[c.row])) return "has 16 columns, and no clusters";
  if (c.slices > kMaxSkinnyCluster) {
    return "has clusters of at most " + std::to_string(kMaxSkinnyCluster) + " blocks, got " +
           std::to_string(c.slices);
  }
  return why_not_clusters(device);
}

std::string why_not(const Choice& c, const GemmProblem& p, const DeviceInfo& device) {
  const std::string not_these = why_not_tensor_cores(p);
  if (!not_these.empty()) return not_these;
  if (skinny_mode(kSkinnyConfigs[c.row], p.scheme, p.m, p.k) < 0) {
    return why_not_compiled(p.scheme);
  }
  if (p.k > kMaxSkinnyK || p.scale_stride > kMaxExtent) {
    return "counts with 32 bits: K must be at most " + std::to_string(kMaxSkinnyK) +
           ", the stride of scales " + std::to_string(kMaxExtent) + "; got " + std::to_string(p.k) +
           " and " + std::to_string(p.scale_stride);
  }
  const std::string no_split = why_not_split(c, device);
  if (!no_split.empty()) return no_split;
  return why_not_skinny_rows(p.m, tokens(c.row));
}

}  // namespace

const Family<GemmProblem> Skinny::plan = {"skinny", choices, config,
                                          parse,    why_not, predict_skinny_us};

}  // namespace mixed_gemm
