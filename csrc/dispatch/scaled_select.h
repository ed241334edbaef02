// Which tile runs a scaled GEMM: what is legal, what it is predicted to take, the choice.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/build.h"
#include "core/device_info.h"
#include "dispatch/tile_name.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// A row of kScaledTileConfigs or kWgmmaInt8TileConfigs. Names: scaled_m128n256s4,
// scaled_m16n128s5_parallel4, wgmma_m256n128s4_streamk1, ...
struct ScaledCandidate : TileChoice {
  double predicted_us = 0;
  bool wgmma = false;
};

const TileConfig& tile_of(const ScaledCandidate& candidate);
// "scaled" or "wgmma".
const char* family_name(const ScaledCandidate& candidate);

std::string config_name(const ScaledCandidate& candidate);
std::optional<ScaledCandidate> parse_scaled_config(const std::string& name);

// Reason why the device, or the build, has no kernel for these operands; or empty.
std::string why_not_operand(OperandType operand, const DeviceInfo& device,
                            const Build& build = this_build());

// Reason why this candidate cannot run the problem on the device, or empty.
std::string why_not_scaled(const ScaledCandidate& candidate, const ScaledMmProblem& problem,
                           const DeviceInfo& device);

// The same of a tile of the direct mainloop. smem: of a block.
std::string why_not_direct(const TileChoice& choice, const TileConfig& tile, int smem,
                           const ScaledMmProblem& problem, const DeviceInfo& device);

double predict_us(const ScaledCandidate& candidate, const ScaledMmProblem& problem,
                  const DeviceInfo& device);

// All legal candidates, the least predicted time first. Empty where the device has too little
// shared memory for any tile, or the output has more tiles than can be counted.
std::vector<ScaledCandidate> ranked_scaled(const ScaledMmProblem& problem,
                                           const DeviceInfo& device);

// Why the list is empty.
std::string why_none_scaled(const ScaledMmProblem& problem, const DeviceInfo& device);

// The first of them, if there is one, remembered by shape and device.
std::optional<ScaledCandidate> select_scaled(const ScaledMmProblem& problem,
                                             const DeviceInfo& device);

}  // namespace mixed_gemm
