// Reasons why a tile of the direct mainloop (8-bit operands) cannot run, whatever the family.
#pragma once
#include <cstdint>
#include <string>

#include "core/family.h"

namespace mixed_gemm {

// Reason why a tile cannot run a GEMM of m x n x k so, or empty.
std::string why_not_direct(const Choice& choice, const TileUse& use, int64_t m, int64_t n,
                           int64_t k, const DeviceInfo& device);

// sm_90 and sm_100 have no float8 mma.sync: ptxas makes float16 of the operands, for instructions
// of half the rate.
inline bool has_no_float8_mma(const DeviceInfo& device) {
  return device.sm / 10 == 9 || device.sm / 10 == 10;
}

// Whether a kernel multiplies float8 with scales of blocks of block_n rows of the weight and
// block_k elements of K: wgmma's do, whose blocks are of one line of K.
bool has_scales_of_blocks(const DeviceInfo& device, int64_t block_n, int64_t block_k);

}  // namespace mixed_gemm
