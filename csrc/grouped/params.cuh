// The parameters of kernels whose thread blocks have a row block each: those of one weight's
// kernel, and where an expert's rows and weight are.
#pragma once
#include "grouped/row_blocks.h"

namespace mixed_gemm {

template <typename Params>
struct GroupedParams {
  Params gemm;  // of expert 0
  GroupedRows rows;
  RowBlocks row_blocks;                 // null where blocks find their rows
  int64_t packed_stride, scale_stride;  // from an expert to the next one: bytes, elements
};

}  // namespace mixed_gemm
