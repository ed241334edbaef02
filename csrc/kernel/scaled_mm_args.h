// What dispatch/ hands to a scaled GEMM launcher: plain data, no CUTLASS (see gemm_args.h).
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "kernel/gemm_args.h"

namespace mixed_gemm {

struct ScaleVector {
  const float* values = nullptr;
  int stride = 0;  // 0: one value for all, 1: one each
};

// Which tree of epilogue/scaled_epilogue.cuh.
enum class EpilogueKind : int { kScaled, kBias, kAzp, kAzpPerToken };
constexpr int kNumEpilogueKinds = 4;
constexpr const char* kEpilogueNames[] = {"ScaledEpilogue", "ScaledEpilogueBias",
                                          "ScaledEpilogueAzp", "ScaledEpilogueAzpPerToken"};

struct ScaledEpilogueArgs {
  ScaleVector scale_a, scale_b;
  const void* bias = nullptr;        // [n] of out_type, or null
  const int32_t* azp_adj = nullptr;  // [n]
  const int32_t* azp = nullptr;      // [m]
  ElementType out_type = ElementType::kFloat16;
};

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
  void* stream = nullptr;    // cudaStream_t
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
  void* stream = nullptr;
};

}  // namespace mixed_gemm
