// What dispatch/ hands to a multistage launcher: plain data, no CUTLASS, so that everything above
// compiles with g++.
#pragma once
#include <cstdint>

#include "core/device.h"
#include "core/split.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Preconditions (dispatch/ establishes them): a rows start on 16 bytes and a_stride % 8 == 0; k % 8
// == 0; scale rows start on 16 bytes, scale_stride % 8 == 0.
struct GemmArgs {
  int m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t a_stride = 0;
  const uint8_t* b_packed = nullptr;
  const void* scales = nullptr;
  const void* zeros = nullptr;
  int64_t scale_stride = 0;
  int groups = 1;
  int group_size = 0;  // one group: at least k, which may be more than the K of the problem
  ZeroMode zero_mode = ZeroMode::kNone;
  const void* bias = nullptr;
  Activation activation = Activation::kIdentity;
  void* d = nullptr;
  SplitK split = SplitK::kNone;
  int slices = 1;
  float* partials = nullptr;  // parallel: [slices, m, round_up(n, 8)]; stream-K: a tile per block
  int* flags = nullptr;       // stream-K: one zeroed int per block
  int resident = 0;           // wgmma: blocks that the GPU holds at once, the grid at most
  EarlyStart early_start;
  void* stream = nullptr;  // cudaStream_t
};

constexpr int64_t kGemmVector = 8;  // 16-bit elements that one cp.async moves

// A problem as its kernels take it: here K becomes the kernels' K. problem.a has zeros behind K up
// to a multiple of kGemmVector. No CUDA, so that tests hold against each other what why_not sizes a
// kernel by and what the kernel is told.
GemmArgs gemm_args_of(const GemmProblem& problem, int64_t scale_stride, void* stream);

// Whether the scales are what a kernel was compiled for: with or without zero points, a row of
// scales for each `k_of_row` elements of K or (0) one for all of it. dispatch/ has chosen it by the
// problem; the kernel is told what it copies by these arguments, so launchers hold both together.
inline bool scales_fit(const GemmArgs& args, bool zeros, int k_of_row) {
  if ((args.zeros != nullptr) != zeros) return false;
  return args.groups <= 1 || (k_of_row > 0 && args.group_size % k_of_row == 0);
}

using GemmLaunch = int (*)(const GemmArgs&);  // returns a cudaError_t

}  // namespace mixed_gemm
