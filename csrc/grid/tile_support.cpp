#include "grid/tile_support.h"

#include <limits>

#include "core/count_product.h"
#include "core/quant_scheme.h"

namespace mixed_gemm {

std::string why_not_tile(const Choice& c, const TileUse& use, int64_t m, int64_t n, int64_t k,
                         const DeviceInfo& device) {
  // Blocks of the grid, and parts that stream-K counts (grid/work_split.h).
  constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max() - 256;
  const auto& [tile, smem] = use;
  const std::string too_large = why_not_smem(smem, device);
  if (!too_large.empty()) return too_large;
  if (tile.k_warps > 1 && c.split == SplitK::kStreamK) {
    return "has warps that share out K, and no stream-K";
  }
  const int64_t parts = ceil_div(k, work_step_k(tile));
  const std::string cluster = why_not_cluster(c, tile, smem, device);
  if (!cluster.empty()) return cluster;
  if (is_sliced(c.split) && c.slices > parts) {
    return "split_k must not be larger than the number of parts of K, ceil(K / " +
           std::to_string(work_step_k(tile)) + ") = " + std::to_string(parts) + ", got " +
           std::to_string(c.slices);
  }
  const int64_t count = count_product(
      {ceil_div(m, tile.m), ceil_div(n, tile.n), c.split == SplitK::kStreamK ? parts : c.slices});
  if (count > kMaxCount) {
    return "has " + std::to_string(count) + " tiles or parts of them, at most " +
           std::to_string(kMaxCount) + " can be counted";
  }
  return "";
}

}  // namespace mixed_gemm
