// float8 products by torch's own operators: what the families of dense/scaled.h run. Each takes a
// checked call whose result is made, with at least one row and one column; `at` as in contract.h.
#pragma once
#include "ops/scaled_mm/contract.h"

namespace mixed_gemm::scaled_mm {

// Scales of rows and columns, by aten::_scaled_mm.
void multiply_scaled(Call& call, const Places& at);

// Scales of blocks: a product in fp32 for each block of K, by aten::mm, where all of a block are
// exact (of TF32 too, which has more than their 4 significant bits).
void multiply_blocks(Call& call, const Places& at);

}  // namespace mixed_gemm::scaled_mm
