// The reason that a caller reads where no tile of a family runs a problem.
#pragma once
#include <string>
#include <vector>

#include "core/device.h"
#include "core/tile.h"

namespace mixed_gemm {

struct RefusedTile {
  std::string config;  // its name
  TileConfig tile;
  int smem_bytes;      // of a block
  std::string reason;  // why it does not run
};

// Names the tile that asks for the least shared memory, if the device has less; else the one that
// cuts the output into the fewest tiles. `tiles` is not empty.
std::string why_no_tile(const std::vector<RefusedTile>& tiles, const DeviceInfo& device);

}  // namespace mixed_gemm
