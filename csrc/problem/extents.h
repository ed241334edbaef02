// Rules about extents, groups and blocks that hold for every op.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/tile.h"

namespace mixed_gemm {

constexpr int64_t kGroupUnit = kMmaK;  // a scale must be constant over one mma step
// The most of M, N and K: tiles round them up, in 32 bits.
constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max() - 256;

// A text for each extent that cannot be counted.
std::vector<std::string> why_not_extents(int64_t m, int64_t n, int64_t k);

// The accepted group size nearest to the given one; -1: one group.
int64_t nearest_group_size(int64_t k, int64_t group_size);

// Why block_size (as the user gave it, -1: one block) does not cut `extent` elements, called
// `extent_name`; or empty.
std::string why_not_block_size(const char* extent_name, int64_t extent, int64_t block_size);

}  // namespace mixed_gemm
