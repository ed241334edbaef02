#include "mainloop/direct_support.h"

#include <limits>

#include "core/count_product.h"
#include "core/quant_scheme.h"
#include "mainloop/direct_stage.h"

namespace mixed_gemm {

std::string why_not_direct(const Choice& c, const TileUse& use, int64_t m, int64_t n, int64_t k,
                           const DeviceInfo& device) {
  const auto& [tile, smem] = use;
  const std::string too_large = why_not_smem(smem, device);
  if (!too_large.empty()) return too_large;
  const int64_t lines = ceil_div(k, kScaledTileK);
  const std::string cluster = why_not_cluster(c, tile, smem, device);
  if (!cluster.empty()) return cluster;
  if (is_sliced(c.split) && c.slices > lines) {
    return "split_k must not be larger than the number of k-tiles, ceil(K / 128) = " +
           std::to_string(lines) + ", got " + std::to_string(c.slices);
  }
  if (c.split == SplitK::kStreamK && k == 0) return "K is 0: there is nothing to share out";
  const int64_t count = count_product(
      {ceil_div(m, tile.m), ceil_div(n, tile.n), c.split == SplitK::kStreamK ? lines : c.slices});
  if (count > std::numeric_limits<int32_t>::max()) {
    return "has " + std::to_string(count) + " tiles or parts of them, more than can be counted";
  }
  return "";
}

bool has_scales_of_blocks(const DeviceInfo& device, int64_t block_n, int64_t block_k) {
  return device.sm == 90 && block_n == kScaledTileK && block_k == kScaledTileK;
}

}  // namespace mixed_gemm
