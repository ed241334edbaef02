#include "dispatch/scaled_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/count_product.h"
#include "dispatch/direct_cost.h"
#include "dispatch/no_tile.h"
#include "dispatch/remembered.h"
#include "dispatch/support.h"
#include "scaled/config.h"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {
namespace {

struct TileTable {
  const char* family;
  const TileConfig* rows;
  int count;
};
constexpr TileTable kTables[] = {{"scaled", kScaledTileConfigs, kNumScaledTileConfigs},
                                 {"wgmma", kWgmmaInt8TileConfigs, kNumWgmmaInt8TileConfigs}};

int smem_of(const ScaledCandidate& c) {
  return c.wgmma ? wgmma_int8_smem_bytes(tile_of(c)) : scaled_smem_bytes(tile_of(c));
}

int64_t lines_of(const ScaledMmProblem& p) { return ceil_div(p.k, kScaledTileK); }

}  // namespace

const TileConfig& tile_of(const ScaledCandidate& c) { return kTables[c.wgmma].rows[c.row]; }

const char* family_name(const ScaledCandidate& c) { return kTables[c.wgmma].family; }

double predict_us(const ScaledCandidate& c, const ScaledMmProblem& p, const DeviceInfo& d) {
  const DirectWork work{tile_of(c), smem_of(c), p.m, p.n, p.k, lines_of(p), 1, 0};
  return c.wgmma ? predict_wgmma_us(c, work, d) : predict_direct_us(c, work, d);
}

std::string config_name(const ScaledCandidate& c) {
  return tile_choice_name(family_name(c), kTables[c.wgmma].rows, c);
}

std::optional<ScaledCandidate> parse_scaled_config(const std::string& name) {
  ScaledCandidate c;
  for (const bool wgmma : {false, true}) {
    c.wgmma = wgmma;
    const TileTable& table = kTables[wgmma];
    if (parse_tile_choice(name, table.family, table.rows, table.count, c)) return c;
  }
  return std::nullopt;
}

std::string why_not_operand(OperandType operand, const DeviceInfo& device, const Build& build) {
  if (operand == OperandType::kInt8) return "";
  if (device.sm >= 89) {
    return build.fp8 ? ""
                     : "float8_e4m3fn has no kernels in this build, which was made for "
                       "architectures before 8.9; quantize to int8, move the tensors to the CPU, "
                       "or build with 8.9 or newer in TORCH_CUDA_ARCH_LIST";
  }
  return "float8_e4m3fn needs tensor cores of compute capability 8.9 or newer, got " +
         std::to_string(device.sm / 10) + "." + std::to_string(device.sm % 10) +
         "; quantize to int8, or move the tensors to the CPU";
}

std::string why_not_scaled(const ScaledCandidate& c, const ScaledMmProblem& p,
                           const DeviceInfo& device) {
  if (c.wgmma) {
    if (p.operand != OperandType::kInt8) return "multiplies int8 only";
    const std::string not_here = why_not_wgmma(device);
    if (!not_here.empty()) return not_here;
    const std::string not_so = why_not_wgmma_split(c.split, p.k);
    if (!not_so.empty()) return not_so;
  }
  return why_not_direct(c, tile_of(c), smem_of(c), p, device);
}

std::string why_not_direct(const TileChoice& c, const TileConfig& tile, int needed,
                           const ScaledMmProblem& p, const DeviceInfo& device) {
  if (needed > device.smem_bytes) {
    return "needs " + std::to_string(needed) + " bytes of shared memory, the device has " +
           std::to_string(device.smem_bytes);
  }
  const std::string cluster = why_not_cluster(c, tile, needed, device);
  if (!cluster.empty()) return cluster;
  if (is_sliced(c.split) && c.slices > lines_of(p)) {
    return "split_k must not be larger than the number of k-tiles, ceil(K / 128) = " +
           std::to_string(lines_of(p)) + ", got " + std::to_string(c.slices);
  }
  if (c.split == SplitK::kStreamK && p.k == 0) return "K is 0: there is nothing to share out";
  const int64_t count = count_product({ceil_div(p.m, tile.m), ceil_div(p.n, tile.n),
                                       c.split == SplitK::kStreamK ? lines_of(p) : c.slices});
  if (count > std::numeric_limits<int32_t>::max()) {
    return "has " + std::to_string(count) + " tiles or parts of them, more than can be counted";
  }
  return "";
}

std::vector<ScaledCandidate> ranked_scaled(const ScaledMmProblem& problem,
                                           const DeviceInfo& device) {
  std::vector<ScaledCandidate> legal;
  const auto consider = [&](ScaledCandidate c) {
    if (!why_not_scaled(c, problem, device).empty()) return;
    c.predicted_us = predict_us(c, problem, device);
    legal.push_back(c);
  };
  for (const bool wgmma : {false, true}) {
    std::vector<int> rows(kTables[wgmma].count);
    std::iota(rows.begin(), rows.end(), 0);
    for (const TileChoice& choice : tile_choices(kTables[wgmma].rows, rows))
      consider({choice, 0, wgmma});
  }
  std::stable_sort(legal.begin(), legal.end(),
                   [](const ScaledCandidate& a, const ScaledCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  return legal;
}

std::string why_none_scaled(const ScaledMmProblem& p, const DeviceInfo& device) {
  std::vector<RefusedTile> tiles;
  for (int row = 0; row < kNumScaledTileConfigs; ++row) {
    const ScaledCandidate c{{row, SplitK::kNone, 1}, 0};
    tiles.push_back({config_name(c), tile_of(c), smem_of(c), why_not_scaled(c, p, device)});
  }
  return why_no_tile(tiles, device);
}

std::optional<ScaledCandidate> select_scaled(const ScaledMmProblem& problem,
                                             const DeviceInfo& device) {
  return remembered<std::optional<ScaledCandidate>>(
      problem, device,
      [](const ScaledMmProblem& p, const DeviceInfo& d) -> std::optional<ScaledCandidate> {
        const std::vector<ScaledCandidate> ranked = ranked_scaled(p, d);
        if (ranked.empty()) return std::nullopt;
        return ranked.front();
      });
}

}  // namespace mixed_gemm
