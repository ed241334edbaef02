#include "dispatch/support.h"

#include <algorithm>
#include <limits>

#include "core/count_product.h"
#include "mainloop/multistage_stage.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kGroupUnit = kMmaK;  // a scale must be constant over one mma step
constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max() - 256;
constexpr int64_t kMaxGridY = 65535;
constexpr int64_t kMaxSkinnyK = int64_t{1} << 28;  // 8 columns of a packed weight below 2^31 bytes
constexpr int kLeastSmem = 99 * 1024;  // what 8.6, 8.9 and 12.0 have: every family fits it

// Texts for the extents that cannot be counted.
std::vector<std::string> why_not_extents(int64_t m, int64_t n, int64_t k) {
  std::vector<std::string> reasons;
  const std::pair<const char*, int64_t> extents[] = {{"M", m}, {"N", n}, {"K", k}};
  for (const auto& [name, extent] : extents) {
    if (extent >= 0 && extent <= kMaxExtent) continue;
    reasons.push_back(std::string(name) + " must be in 0.." + std::to_string(kMaxExtent) +
                      ", got " + std::to_string(extent));
  }
  return reasons;
}

std::string why_not_skinny_split(const TileChoice& c, const DeviceInfo& device) {
  if (c.split == SplitK::kNone) return "";
  if (c.split != SplitK::kCluster) return "splits K over clusters only";
  if (!skinny_splits(kSkinnyConfigs[c.row])) return "has 16 columns, and no clusters";
  if (c.slices > kMaxSkinnyCluster) {
    return "has clusters of at most " + std::to_string(kMaxSkinnyCluster) + " blocks, got " +
           std::to_string(c.slices);
  }
  return why_not_clusters(device);
}

}  // namespace

std::vector<std::string> why_not_scaled_mm(int64_t m, int64_t n, int64_t k, OperandType operand) {
  std::vector<std::string> reasons = why_not_extents(m, n, k);
  if (operand == OperandType::kInt8 && k > kMaxInt8K) {
    reasons.push_back("K must be at most " + std::to_string(kMaxInt8K) +
                      " for int8, so that the int32 sum of products of -128 cannot wrap, got K=" +
                      std::to_string(k) + "; split K and add the results");
  }
  return reasons;
}

std::vector<std::string> why_not_problem(int64_t m, int64_t n, int64_t k, int64_t bits,
                                         int64_t group_size) {
  std::vector<std::string> reasons;
  const auto refuse_unless = [&](bool ok, const std::string& reason) {
    if (!ok) reasons.push_back(reason);
  };
  refuse_unless(bits == 4 || bits == 8, "bits must be 4 or 8, got " + std::to_string(bits));
  for (const std::string& reason : why_not_extents(m, n, k)) refuse_unless(false, reason);
  const std::string got =
      ", got group_size=" + std::to_string(group_size) + ", K=" + std::to_string(k);
  const bool per_channel = group_size == -1;
  refuse_unless(per_channel || (group_size > 0 && group_size % kGroupUnit == 0),
                "group_size must be -1 (per channel) or a positive multiple of 16" + got);
  refuse_unless(per_channel || group_size <= k,
                "group_size must not be larger than K" + got + "; use -1 for per channel");
  return reasons;
}

int64_t nearest_bits(int64_t bits) { return bits > 6 ? 8 : 4; }

int64_t nearest_group_size(int64_t k, int64_t group_size) {
  if (k < kGroupUnit || k > kMaxExtent || group_size <= 0 || group_size > k) return -1;
  const int64_t rounded = (group_size + kGroupUnit / 2) / kGroupUnit * kGroupUnit;
  return std::clamp(rounded, kGroupUnit, k / kGroupUnit * kGroupUnit);
}

std::string why_not_device(const DeviceInfo& device) {
  if (device.sm < 80) {
    return "the CUDA kernels need compute capability 8.0 or newer (cp.async, bf16 mma), this GPU "
           "has " +
           std::to_string(device.sm / 10) + "." + std::to_string(device.sm % 10) +
           "; move the tensors to the CPU";
  }
  if (device.smem_bytes >= kLeastSmem) return "";
  return "the CUDA kernels need " + std::to_string(kLeastSmem) +
         " bytes of shared memory for a block, as every GPU of compute capability 8.0 or newer "
         "has, this GPU has " +
         std::to_string(device.smem_bytes);
}

std::string why_not_wgmma(const DeviceInfo& device, const Build& build) {
  if (device.sm != 90) {
    return "needs wgmma, which compute capability 9.0 has alone; this device has " +
           std::to_string(device.sm / 10) + "." + std::to_string(device.sm % 10);
  }
  return build.wgmma ? "" : "is not in this build: it was made for architectures without 9.0";
}

std::string why_not_wgmma_scales(const TileConfig& tile, const GemmProblem& p) {
  if (wgmma_scale_rows(p.scheme.group_size, p.k) <= max_wgmma_scale_rows(tile)) return "";
  return "scales weights in halves of a k-tile: group_size must be a multiple of " +
         std::to_string(kTileK / max_wgmma_scale_rows(tile)) + ", got " +
         std::to_string(p.scheme.group_size);
}

std::string why_not_wgmma_split(SplitK split, int64_t k) {
  if (k == 0) return "copies boxes of the operands, and K = 0 has none";
  return split == SplitK::kCluster ? "has no clusters" : "";
}

std::string why_not_tile(const TileChoice& c, const TileConfig& tile, int smem,
                         const GemmProblem& p, const DeviceInfo& device) {
  if (smem > device.smem_bytes) {
    return "needs " + std::to_string(smem) + " bytes of shared memory, the device has " +
           std::to_string(device.smem_bytes);
  }
  if (tile.k_slices > 1 && c.split == SplitK::kStreamK) {
    return "has warps that share out K, and no stream-K";
  }
  const int64_t parts = ceil_div(p.k, unit_k(tile));
  const std::string cluster = why_not_cluster(c, tile, smem, device);
  if (!cluster.empty()) return cluster;
  if (is_sliced(c.split) && c.slices > parts) {
    return "split_k must not be larger than the number of parts of K, ceil(K / " +
           std::to_string(unit_k(tile)) + ") = " + std::to_string(parts) + ", got " +
           std::to_string(c.slices);
  }
  // Blocks of the grid, or units that stream-K counts (grid/work_split.h).
  const int64_t count = count_product({ceil_div(p.m, tile.m), ceil_div(p.n, tile.n),
                                       c.split == SplitK::kStreamK ? parts : c.slices});
  if (count > kMaxExtent) {
    return "has " + std::to_string(count) + " tiles or parts of them, at most " +
           std::to_string(kMaxExtent) + " can be counted";
  }
  return "";
}

std::string why_not_candidate(const Candidate& c, const GemmProblem& p, const DeviceInfo& device) {
  if (c.family == Family::kDequantizeDense) return "";
  if (p.element == ElementType::kFloat32)
    return "tensor cores multiply float16 and bfloat16; float32 runs dequantize_dense";
  if (c.family == Family::kSkinny) {
    if (p.k > kMaxSkinnyK || p.scale_stride > kMaxExtent) {
      return "counts with 32 bits: K must be at most " + std::to_string(kMaxSkinnyK) +
             ", the stride of scales " + std::to_string(kMaxExtent) + "; got " +
             std::to_string(p.k) + " and " + std::to_string(p.scale_stride);
    }
    const std::string no_split = why_not_skinny_split(c, device);
    if (!no_split.empty()) return no_split;
    const int64_t rows = 8 * kSkinnyConfigs[c.row].m_tiles;
    if (ceil_div(p.m, rows) <= kMaxGridY) return "";
    return "M must be at most " + std::to_string(kMaxGridY * rows) + " for this kernel, got " +
           std::to_string(p.m);
  }
  const bool wgmma = c.family == Family::kWgmma;
  if (wgmma) {
    const std::string not_here = why_not_wgmma(device);
    if (!not_here.empty()) return not_here;
    const std::string not_so = why_not_wgmma_split(c.split, p.k);
    if (!not_so.empty()) return not_so;
    const std::string not_these = why_not_wgmma_scales(tile_of(c), p);
    if (!not_these.empty()) return not_these;
  }
  const TileConfig& tile = tile_of(c);
  const int needed = wgmma ? wgmma_smem_bytes(tile, p.scheme.bits, wgmma_mode(p.scheme, p.k))
                           : smem_bytes(tile, p.scheme.bits, scale_mode(p.scheme, p.k));
  return why_not_tile(c, tile, needed, p, device);
}

}  // namespace mixed_gemm
