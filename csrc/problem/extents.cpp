#include "problem/extents.h"

#include <algorithm>
#include <utility>

namespace mixed_gemm {

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

int64_t nearest_group_size(int64_t k, int64_t group_size) {
  if (k < kGroupUnit || k > kMaxExtent || group_size <= 0 || group_size > k) return -1;
  const int64_t rounded = (group_size + kGroupUnit / 2) / kGroupUnit * kGroupUnit;
  return std::clamp(rounded, kGroupUnit, k / kGroupUnit * kGroupUnit);
}

std::string why_not_block_size(const char* extent_name, int64_t extent, int64_t block_size) {
  if (block_size == -1) return "";
  const std::string got = ", got block_size=" + std::to_string(block_size) + ", " + extent_name +
                          "=" + std::to_string(extent);
  const int64_t nearest = nearest_group_size(extent, block_size);
  const std::string hint = ". Hint: block_size=" + std::to_string(nearest) + " is accepted";
  if (block_size < 1 || block_size % kGroupUnit != 0) {
    return "block_size must be -1 (one block) or a positive multiple of 16" + got + hint;
  }
  if (block_size > extent) {
    return std::string("block_size must not be larger than ") + extent_name + got + hint;
  }
  return "";
}

}  // namespace mixed_gemm
