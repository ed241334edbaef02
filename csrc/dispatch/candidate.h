// A way to run a problem, and its name. Names are what plan() prints, benchmarks record and tests
// force:
//   multistage_m64n128s4            a tile of kTileConfigs, a block for each tile of the output
//   multistage_m64n128s4_streamk2   2 blocks an SM share out all k-tiles of all tiles evenly
//   multistage_m64n128s4_parallel4  K split over 4 blocks and reduced by a second kernel
//   multistage_m64n128s4_cluster4   K split over the 4 blocks of a cluster (sm_90)
//   wgmma_m128n256s5...             a tile of kWgmmaTileConfigs (sm_90a), split but for clusters
//   skinny_m8n32w8                  a row of kSkinnyConfigs: 8 tokens x 32 columns, 8 warps share K
//   skinny_m8n32w8_cluster2         so do the 2 blocks of a cluster (sm_90)
//   dequantize_dense                dequantize to a dense weight, then the library's GEMM
#pragma once
#include <optional>
#include <string>

#include "dispatch/tile_name.h"
#include "multistage/config.h"
#include "skinny/config.h"
#include "wgmma/config.h"

namespace mixed_gemm {

enum class Family : int { kSkinny, kMultistage, kWgmma, kDequantizeDense };
constexpr const char* kFamilyNames[] = {"skinny", "multistage", "wgmma", "dequantize_dense"};

// row: of kTileConfigs, kWgmmaTileConfigs or kSkinnyConfigs.
struct Candidate : TileChoice {
  Family family = Family::kMultistage;
  double predicted_us = 0;
};

// The tile of a multistage or wgmma candidate.
const TileConfig& tile_of(const Candidate& candidate);

std::string config_name(const Candidate& candidate);
std::optional<Candidate> parse_config(const std::string& name);

}  // namespace mixed_gemm
