// What tiles of the direct mainloop (8-bit operands) cannot do, whatever the family.
#pragma once
#include <string>

#include "core/family.h"

namespace mixed_gemm {

// Reason why a tile cannot run a GEMM of m x n x k so, or empty.
std::string why_not_direct(const Choice& choice, const TileUse& use, int64_t m, int64_t n,
                           int64_t k, const DeviceInfo& device);

}  // namespace mixed_gemm
