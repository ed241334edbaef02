#include "dispatch/no_tile.h"

#include <algorithm>

namespace mixed_gemm {

std::string why_no_tile(const std::vector<RefusedTile>& tiles, const DeviceInfo& device) {
  const auto least = std::min_element(
      tiles.begin(), tiles.end(),
      [](const RefusedTile& a, const RefusedTile& b) { return a.smem_bytes < b.smem_bytes; });
  const auto largest =
      std::max_element(tiles.begin(), tiles.end(), [](const RefusedTile& a, const RefusedTile& b) {
        return int64_t{a.tile.m} * a.tile.n < int64_t{b.tile.m} * b.tile.n;
      });
  const RefusedTile& told = least->smem_bytes > device.smem_bytes ? *least : *largest;
  return std::string("no tile runs this on the device: the ") +
         (least->smem_bytes > device.smem_bytes ? "smallest, " : "largest, ") + told.config + ", " +
         told.reason;
}

}  // namespace mixed_gemm
