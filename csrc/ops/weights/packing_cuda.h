// Packing and unpacking on a GPU, for every op that does.
#pragma once
#include "ops/cuda_call.h"
#include "ops/weights/contract.h"
#include "transform/launchers.h"

namespace mixed_gemm::weights {

// doing: what a failed launch was to do, in a word.
void run_packing(const CudaCall& cuda, const Packing& x, int (*launch)(const PackArgs&),
                 const char* doing);

}  // namespace mixed_gemm::weights
