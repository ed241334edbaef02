// A way to run a problem, and its name. Names are what plan() prints, benchmarks record and tests
// force:
//   multistage_m64n128s4            a tile of kTileConfigs
//   multistage_m64n128s4_serial4    the same, K split over 4 blocks that take turns
//   multistage_m64n128s4_parallel4  the same, K split over 4 blocks and reduced by a second kernel
//   skinny_m8n32w8                  a row of kSkinnyConfigs: 8 tokens x 32 columns, K shared out
//   over 8 warps dequantize_dense                dequantize to a dense weight, then the library's
//   GEMM
#pragma once
#include <optional>
#include <string>

#include "core/tile_config.h"
#include "kernel/gemm_args.h"

namespace mixed_gemm {

enum class Family : int { kSkinny, kMultistage, kDequantizeDense };
constexpr const char* kFamilyNames[] = {"skinny", "multistage", "dequantize_dense"};

struct Candidate {
  Family family = Family::kMultistage;
  int row = 0;  // of kTileConfigs or kSkinnyConfigs
  SplitK split = SplitK::kNone;
  int slices = 1;
  double predicted_us = 0;
};

std::string config_name(const Candidate& candidate);
std::optional<Candidate> parse_config(const std::string& name);

}  // namespace mixed_gemm
