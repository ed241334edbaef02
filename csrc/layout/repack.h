// Host repacking of checkpoint weights (layout/checkpoint_layout.h) to the packed layout.
#pragma once
#include <cstdint>

#include "core/parallel.h"
#include "layout/checkpoint_layout.h"

namespace mixed_gemm {

// Makes columns [n_begin, n_end) a packed weight of their own, of WeightLayout<Int4>::packed_bytes(
// n_end - n_begin, k) bytes. n_begin and n_end are multiples of 8. It transposes 8 x 8 nibbles, 16
// columns of SIMD at a time, so that a GEMM can afford it at every call (cpu/awq/awq_cpu.cpp).
void repack_awq_columns(const AwqWeight& weight, int64_t n_begin, int64_t n_end, uint8_t* packed);

void repack_awq(const AwqWeight& weight, uint8_t* packed, const ParallelFor& parallel_for);

// bits: 2, 3 and 4 give a packed 4-bit weight, 8 an 8-bit one. perm: [k] or null.
void repack_gptq(const uint32_t* qweight, const int32_t* perm, int bits, int64_t n, int64_t k,
                 uint8_t* packed, const ParallelFor& parallel_for);

}  // namespace mixed_gemm
