// The body of a kernel that is one GEMM of a tile in the dynamic shared memory of its block.
#pragma once
#include <cstdint>

namespace mixed_gemm {

// `params`: the kernel's parameter, a __grid_constant__, so that it stays in constant memory.
template <typename Gemm>
__device__ __forceinline__ void run_in_dynamic_shared(const typename Gemm::Params& params) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Gemm::run(params, *reinterpret_cast<typename Gemm::SharedStorage*>(shared_bytes));
}

}  // namespace mixed_gemm
