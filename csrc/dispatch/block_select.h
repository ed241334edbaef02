// Which tile runs the GEMM of block_quant_gemm: what is legal, what it is predicted to take.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "block_gemm/args.h"
#include "core/device_info.h"
#include "dispatch/tile_name.h"

namespace mixed_gemm {

// A row of kBlockTileConfigs. Names: block_m64n128s4, block_m16n64s8_cluster4, ...
struct BlockCandidate : TileChoice {
  double predicted_us = 0;
};

std::string config_name(const BlockCandidate& candidate);
std::optional<BlockCandidate> parse_block_config(const std::string& name);

// Reason why the problem has more parts than the kernels can count, or empty.
std::string why_not_block_counts(const BlockGemmProblem& problem);

// Reason why this candidate cannot run the problem on the device, or empty.
std::string why_not_block(const BlockCandidate& candidate, const BlockGemmProblem& problem,
                          const DeviceInfo& device);

// All legal candidates, the least predicted time first. Empty where the device has too little
// shared memory for any tile, or the output has more tiles than can be counted.
std::vector<BlockCandidate> ranked_block(const BlockGemmProblem& problem, const DeviceInfo& device);

// Why the list is empty.
std::string why_none_block(const BlockGemmProblem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
