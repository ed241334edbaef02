// One launch for every kernel that may want more than 48 KB of shared memory, a cluster, or an
// early start.
#pragma once
#include <cuda_runtime_api.h>

namespace mixed_gemm {

struct KernelLaunch {
  dim3 grid;
  int threads = 0;
  void* stream = nullptr;
  int smem_bytes = 0;      // dynamic
  dim3 cluster = dim3(1);  // the extents of a thread block cluster, all 1 for none (before sm_90)
  bool starts_early = false;  // kernel/early_start.cuh; not before sm_90
};

template <typename Params>
int launch_kernel(void (*kernel)(Params), const KernelLaunch& launch, const Params& params) {
  // Per device and cheap; a process-wide flag would leave a second GPU without it.
  if (launch.smem_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, launch.smem_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (launch.cluster.x * launch.cluster.y * launch.cluster.z > 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = launch.cluster.x;
    cluster.val.clusterDim.y = launch.cluster.y;
    cluster.val.clusterDim.z = launch.cluster.z;
  }
  if (launch.starts_early) {
    cudaLaunchAttribute& early = attributes[count++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.grid;
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.smem_bytes);
  config.stream = static_cast<cudaStream_t>(launch.stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace mixed_gemm
