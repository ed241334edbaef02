// How a kernel is to be launched: who shares out K, on which stream, and where partial sums go.
// With a problem it is all that a launcher takes.
#pragma once
#include "core/device.h"
#include "core/split.h"

namespace mixed_gemm {

struct Work {
  SplitK split = SplitK::kNone;
  int slices = 1;            // of K, where each tile's is cut
  int workers = 0;           // stream-K: blocks that take shares
  void* partials = nullptr;  // 4-byte sums. parallel: [slices, m, partial_stride(n)]; stream-K: a
                             // tile for each block
  int* flags = nullptr;      // stream-K: a semaphore for each block, zero
  int resident = 0;          // wgmma: blocks that the GPU holds at once, the grid at most
  Pdl pdl;
  void* stream = nullptr;  // cudaStream_t

  float* sums() const { return static_cast<float*>(partials); }
  int parts() const { return split == SplitK::kStreamK ? workers : slices; }
  unsigned cluster() const { return split == SplitK::kCluster ? static_cast<unsigned>(slices) : 1; }
};

}  // namespace mixed_gemm
