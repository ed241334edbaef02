// Matrices as TMA of sm_90 sees them. Made on the host, passed to a kernel by value.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace mixed_gemm {

struct BoxedMatrix {
  const void* data;       // starts on 16 bytes
  int element_bytes;      // 1 or 2
  int64_t columns, rows;  // elements of a row; rows
  int64_t stride;         // bytes between rows, a multiple of 16; anything for a single row
  int box_columns, box_rows;
  bool permuted;  // rows of 128 bytes, their 16-byte chunks swizzled (SwizzledLines)
};

// Describes a matrix to TMA; returns a cudaError_t.
int make_tensor_map(const BoxedMatrix& matrix, CUtensorMap& map);

}  // namespace mixed_gemm
