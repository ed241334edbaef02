// Products of float8 operands by torch: those that torch._scaled_mm (cuBLAS) takes, and those with
// scales of blocks, which torch.mm adds up one by one.
#pragma once
#include "core/family.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

struct TorchScaled {
  static const Family<ScaledMmProblem> plan;
  static Run<ScaledMmProblem> run;
};

struct TorchBlocks {
  static const Family<ScaledMmProblem> plan;
  static Run<ScaledMmProblem> run;
};

// Whether torch runs the problem on the device, whatever kernels this build has: scaled_mm asks
// before it refuses a GPU that the build has no code for.
bool prefers_torch(const ScaledMmProblem& problem, const DeviceInfo& device);

// Reason why no kernel, of ours or of torch, multiplies these operands with these scales as they
// are; or empty. A layer makes its weight dense then, which is faster than adding up blocks.
std::string why_no_kernel(const ScaledMmProblem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
