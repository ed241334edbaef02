// What several runners need before they launch.
#pragma once
#include "core/tile.h"
#include "dispatch/cuda_runner.h"

namespace mixed_gemm {

// Rows of scales, and of zeros if there are any, that cp.async can take, with one stride: those
// given, or copies of both with another stride.
Status align_scales(ElementType element, int64_t groups, int64_t n, const void*& scales,
                    const void*& zeros, int64_t& stride, const Allocate& allocate, void* stream);

Status current_device(DeviceInfo& info);

// Stream-K: a tile of 4-byte sums and a zeroed flag for every worker.
struct StreamKSlots {
  int workers = 0;
  void* sums = nullptr;
  int* flags = nullptr;
};
Status stream_k_slots(const TileConfig& tile, int64_t m, int64_t n, int64_t k_tiles,
                      int blocks_per_sm, const Allocate& allocate, void* stream,
                      StreamKSlots& slots);

}  // namespace mixed_gemm
