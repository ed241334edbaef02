// One launch for every kernel that may want more than 48 KB of shared memory, or a cluster.
#pragma once
#include <cuda_runtime_api.h>

namespace mixed_gemm {

// cluster: the extents of a thread block cluster, all 1 for none (before sm_90).
template <typename Params>
int launch_kernel(void (*kernel)(Params), dim3 grid, int threads, int smem_bytes, dim3 cluster,
                  void* stream, const Params& params) {
  // Per device and cheap; a process-wide flag would leave a second GPU without it.
  if (smem_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = cluster.x;
  attributes[0].val.clusterDim.y = cluster.y;
  attributes[0].val.clusterDim.z = cluster.z;
  // Its blocks stream from memory: an SM each.
  attributes[1].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
  attributes[1].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(smem_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = cluster.x * cluster.y * cluster.z > 1 ? 2 : 0;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace mixed_gemm
