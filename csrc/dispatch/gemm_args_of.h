// A fpA_intB problem -> what its kernels take. Here K becomes the kernels' K; no CUDA, so that
// tests hold against each other what why_not sizes a kernel by and what the kernel is told.
#pragma once
#include "grid/gemm_args.h"
#include "problem/gemm.h"

namespace mixed_gemm {

constexpr int64_t kGemmVector = 8;  // 16-bit elements that one cp.async moves

// problem.a has zeros behind K up to a multiple of kGemmVector.
GemmArgs gemm_args_of(const GemmProblem& problem, int64_t scale_stride, void* stream);

}  // namespace mixed_gemm
