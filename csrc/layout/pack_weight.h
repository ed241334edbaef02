// Host pack and unpack, by the map of weight_layout.h. Padding holds q = 0.
#pragma once
#include <cstdint>

#include "core/parallel.h"
#include "core/weight_type.h"

namespace mixed_gemm {

// q is [n, k] row-major with q_stride elements between rows; packed has
// WeightLayout::packed_bytes(n, k) bytes.
void pack_weight(WeightType type, const int8_t* q, int64_t q_stride, int64_t n, int64_t k,
                 uint8_t* packed, const ParallelFor& parallel_for);
void unpack_weight(WeightType type, const uint8_t* packed, int64_t n, int64_t k, int8_t* q,
                   const ParallelFor& parallel_for);

}  // namespace mixed_gemm
