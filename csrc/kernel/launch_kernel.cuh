// One launch for every kernel that may want more than 48 KB of shared memory, or a cluster.
#pragma once
#include <cuda_runtime_api.h>

namespace mixed_gemm {

// cluster: the extents of a thread block cluster, all 1 for none (before sm_90). starts_early:
// kernel/early_start.cuh.
template <typename Params>
int launch_kernel(void (*kernel)(Params), dim3 grid, int threads, int smem_bytes, dim3 cluster,
                  void* stream, const Params& params, bool starts_early = false) {
  // Per device and cheap; a process-wide flag would leave a second GPU without it.
  if (smem_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (cluster.x * cluster.y * cluster.z > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = cluster.x;
    attributes[count].val.clusterDim.y = cluster.y;
    attributes[count++].val.clusterDim.z = cluster.z;
  }
  if (starts_early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(smem_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, params);
}

// Static shared memory; starts_early: kernel/early_start.cuh.
template <typename Params>
int launch_kernel(void (*kernel)(Params), dim3 grid, int threads, bool starts_early, void* stream,
                  const Params& params) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = starts_early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace mixed_gemm
