// When kernels whose blocks have no even share of the SMs are launched with PDL (grid/pdl.cuh).
#pragma once
#include <algorithm>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// Whether a kernel of so many blocks is. It is not where the blocks of one kernel leave room for
// some of the next one's: those would crowd on a few SMs (8192 x 8192 with 256 blocks of 3 an SM: 7
// to 16 % slower; all other grids 0 to 10 % faster). Even shares by shared memory would take L1
// from the tokens of skinny kernels. per_sm: blocks that an SM holds.
inline bool uses_pdl(int sms, int64_t blocks, int per_sm) {
  const bool all_places_used = ceil_div(blocks, std::max(sms, 1)) >= per_sm;
  const bool both_fit = 2 * blocks <= int64_t{sms} * per_sm;
  return sms > 0 && (all_places_used || both_fit);
}

}  // namespace mixed_gemm
