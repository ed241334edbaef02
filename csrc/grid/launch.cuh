// One launch for every kernel that may want more than 48 KB of shared memory, a cluster, or
// programmatic dependent launch.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "core/device.h"
#include "grid/work.h"

namespace mixed_gemm {

struct KernelLaunch {
  dim3 grid;
  int threads = 0;
  void* stream = nullptr;
  int smem_bytes = 0;      // dynamic
  dim3 cluster = dim3(1);  // the extents of a thread block cluster, all 1 for none (before sm_90)
  bool uses_pdl = false;   // grid/pdl.cuh; not before sm_90
  Pdl even = {};           // the same, and no SM gets more than its share
};

// The launch of a kernel whose blocks are the workers of a split.
inline KernelLaunch launch_of(const Work& work, int workers, int threads, int smem_bytes) {
  KernelLaunch launch;
  launch.grid = dim3(static_cast<unsigned>(workers));
  launch.threads = threads;
  launch.stream = work.stream;
  launch.smem_bytes = smem_bytes;
  launch.cluster = dim3(work.cluster());
  return launch;
}

template <typename Params>
int launch_kernel(void (*kernel)(Params), const KernelLaunch& launch, const Params& params) {
  const auto cluster_size =
      static_cast<int>(launch.cluster.x * launch.cluster.y * launch.cluster.z);
  const int64_t blocks = int64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  // Shares are even unless clusters would fit less often than their blocks do.
  const bool even = launch.even.sms > 0 && launch.even.share(blocks) % cluster_size == 0;
  int smem_bytes = launch.smem_bytes;
  if (even) smem_bytes = std::max(smem_bytes, launch.even.smem_of_share(blocks));
  // Set at every launch, which is cheap: a process-wide flag would leave a second GPU without it.
  // Always the same value, since another thread may be about to launch the kernel.
  const int most = std::max(launch.smem_bytes, launch.even.smem_bytes);
  if (most > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (cluster_size > 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = launch.cluster.x;
    cluster.val.clusterDim.y = launch.cluster.y;
    cluster.val.clusterDim.z = launch.cluster.z;
  }
  if (launch.uses_pdl || even) {
    cudaLaunchAttribute& pdl = attributes[count++];
    pdl.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    pdl.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.grid;
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<size_t>(smem_bytes);
  config.stream = static_cast<cudaStream_t>(launch.stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace mixed_gemm
