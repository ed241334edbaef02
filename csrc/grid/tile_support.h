// Reasons why a tile of the multistage and wgmma mainloops cannot run, whatever the family.
#pragma once
#include <string>

#include "core/family.h"

namespace mixed_gemm {

// Reason why a tile cannot run the problem so, or empty.
std::string why_not_tile(const Choice& choice, const TileUse& use, int64_t m, int64_t n, int64_t k,
                         const DeviceInfo& device);

}  // namespace mixed_gemm
