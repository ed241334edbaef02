// A way to run a problem, and its name. Names are what plan() prints, benchmarks record and tests
// force:
//   multistage_m64n128s4            a tile of a table, a block for each tile of the output
//   multistage_m64n128s4_streamk2   2 blocks an SM share out all k-tiles of all tiles evenly
//   multistage_m64n128s4_parallel4  K split over 4 blocks and reduced by a second kernel
//   multistage_m64n128s4_cluster4   K split over the 4 blocks of a cluster (sm_90)
//   wgmma_m32n128k128s6             stages of 128 k, where they are not of one k-tile
//   implicit_m16n64s3k8             8 warps of a block share out K
#pragma once
#include <string>
#include <vector>

#include "core/device.h"
#include "core/split.h"
#include "core/tile.h"

namespace mixed_gemm {

struct Choice {
  int family = 0;  // its place in the list of the problem's families (dispatch/families.h)
  int row = 0;     // of the family's table
  SplitK split = SplitK::kNone;
  int slices = 1;         // of K, where each tile's is cut
  int blocks_per_sm = 0;  // stream-K: that take shares
  double predicted_us = 0;
};

// The text of a split, such as "_cluster4"; empty for no split.
std::string split_name(const Choice& c);
// Reads such a text; false: there is no such split.
bool parse_split(const std::string& text, Choice& choice);

// Reads a row's name with a split behind it; false: none of the rows 0 to `rows` - 1 begins the
// text so, or there is no such split.
template <typename RowName>
bool parse_row_and_split(const std::string& text, int rows, const RowName& row_name,
                         Choice& choice) {
  choice = Choice();
  for (choice.row = 0; choice.row < rows; ++choice.row) {
    const std::string row = row_name(choice.row);
    if (text.compare(0, row.size(), row) == 0 && parse_split(text.substr(row.size()), choice)) {
      return true;
    }
  }
  return false;
}

// A family's list of compiled tiles.
struct TileTable {
  const char* family;
  const TileConfig* rows;
  int count;
};

// Every way to run the rows of a table that is worth a prediction.
std::vector<Choice> tile_choices(const TileTable& table);

std::string tile_choice_name(const TileTable& table, const Choice& choice);

// Reads the name of a choice; false: there is no such tile or split.
bool parse_tile_choice(const std::string& name, const TileTable& table, Choice& choice);

// Reason why the slices of this choice cannot be a cluster, or empty. smem: of a block.
std::string why_not_cluster(const Choice& choice, const TileConfig& tile, int smem,
                            const DeviceInfo& device);

}  // namespace mixed_gemm
