// What dispatch/ hands to a scaled GEMM launcher: plain data, no CUTLASS (see gemm_args.h).
#pragma once
#include <cstdint>

#include "epilogue/scaled_epilogue_args.h"
#include "grid/gemm_args.h"

namespace mixed_gemm {

// Preconditions (dispatch/ establishes them): rows of a and b start on 16 bytes.
struct ScaledMmArgs {
  int m = 0, n = 0, k = 0;
  const void* a = nullptr;  // [m, k], a_stride bytes between rows
  int64_t a_stride = 0;
  const void* b = nullptr;  // [n, k], b_stride bytes between rows: the column-major [k, n]
  int64_t b_stride = 0;
  ScaledEpilogueArgs epilogue;
  void* d = nullptr;  // [m, n] of epilogue.out_type, contiguous
  SplitK split = SplitK::kNone;
  int slices = 1;
  void* partials = nullptr;  // 4-byte sums. parallel: [slices, m, round_up(n, 8)]; stream-K: a tile
                             // per block
  int* flags = nullptr;      // stream-K: one zeroed int per block
  int resident = 0;          // wgmma: blocks that the GPU holds at once, the grid at most
  EarlyStart early_start;
  void* stream = nullptr;  // cudaStream_t
};

using ScaledMmLaunch = int (*)(const ScaledMmArgs&);  // returns a cudaError_t

// Second kernel of a parallel split.
struct ScaledReduceArgs {
  ScaledEpilogueArgs epilogue;
  const void* partials = nullptr;  // [slices, m, partial_stride]
  int64_t partial_stride = 0;
  int slices = 1;
  int m = 0, n = 0;
  void* d = nullptr;
  EarlyStart early_start;
  void* stream = nullptr;
};

}  // namespace mixed_gemm
