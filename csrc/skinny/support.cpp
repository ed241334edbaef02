#include "skinny/family.h"

#include "problem/extents.h"
#include "skinny/config.h"
#include "skinny/cost.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kMaxGridY = 65535;
constexpr int64_t kMaxSkinnyK = int64_t{1} << 28;  // 8 columns of a packed weight below 2^31 bytes

std::string row_name(const SkinnyConfig& row) {
  return "skinny_m" + std::to_string(8 * row.m_tiles) + "n" + std::to_string(16 * row.n_tiles) +
         "w" + std::to_string(row.warps);
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

std::string config(const Choice& c) { return row_name(kSkinnyConfigs[c.row]) + split_name(c); }

bool parse(const std::string& name, Choice& c) {
  for (c.row = 0; c.row < kNumSkinnyConfigs; ++c.row) {
    const std::string row = row_name(kSkinnyConfigs[c.row]);
    if (name.compare(0, row.size(), row) == 0 && parse_split(name.substr(row.size()), c)) {
      return true;
    }
  }
  return false;
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
  const int64_t rows = 8 * kSkinnyConfigs[c.row].m_tiles;
  if (ceil_div(p.m, rows) <= kMaxGridY) return "";
  return "M must be at most " + std::to_string(kMaxGridY * rows) + " for this kernel, got " +
         std::to_string(p.m);
}

}  // namespace

const Family<GemmProblem> Skinny::plan = {"skinny", choices, config,
                                          parse,    why_not, predict_skinny_us};

}  // namespace mixed_gemm
