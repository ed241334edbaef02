// Tiles and the ways to split their work, and their names: "<family>_m64n128s4", "..._streamk2",
// "..._parallel4", "..._cluster4"; "<family>_m16n64s3k8" where 8 warps share out K. One text for
// every table of tiles.
#pragma once
#include <string>
#include <vector>

#include "core/device_info.h"
#include "core/split.h"
#include "core/tile.h"

namespace mixed_gemm {

struct TileChoice {
  int row = 0;  // of a table of tiles
  SplitK split = SplitK::kNone;
  int slices = 1;  // sliced: of K; stream-K: blocks an SM
};

// Every way that is worth a prediction to run these rows of a table.
std::vector<TileChoice> tile_choices(const TileConfig* table, const std::vector<int>& rows);

std::string tile_choice_name(const char* family, const TileConfig* table, const TileChoice& choice);

// "_cluster4"; nothing for no split.
std::string split_name(const TileChoice& choice);
// Of such a text; false: there is no such split.
bool parse_split(const std::string& text, TileChoice& choice);

// False: no such tile or split.
bool parse_tile_choice(const std::string& name, const char* family, const TileConfig* table,
                       int rows, TileChoice& choice);

// Reason why this device has no clusters, or empty.
std::string why_not_clusters(const DeviceInfo& device);
// Reason why the slices of this choice cannot be a cluster, or empty. smem: of a block.
std::string why_not_cluster(const TileChoice& choice, const TileConfig& tile, int smem,
                            const DeviceInfo& device);

}  // namespace mixed_gemm
