#include "dispatch/workspace_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/mutant.h"
#include "grid/grid.h"
#include "transform/launchers.h"

namespace mixed_gemm {

Status align_scales(ElementType element, int64_t groups, int64_t n, const void*& scales,
                    const void*& zeros, int64_t& stride, const Allocate& allocate, void* stream) {
  constexpr int64_t kVectorBytes = 16, kVector = 8;  // of 16-bit elements
  const auto aligned = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0;
  };
  const bool rows_fit = groups == 1 || stride >= n;  // the copy engine takes none that overlap
  if (aligned(scales) && aligned(zeros) && stride % kVector == 0 && rows_fit) return Status();
  const int64_t new_stride = round_up(n, kVector);
  for (const void** rows : {&scales, &zeros}) {
    if (*rows == nullptr) continue;
    CopyPaddedArgs copy;
    copy.element = element;
    copy.src = *rows;
    copy.src_stride = stride;
    copy.rows = groups;
    copy.columns = n;
    copy.dst_columns = new_stride;
    copy.dst = allocate(groups * new_stride * (element == ElementType::kFloat32 ? 4 : 2));
    copy.stream = stream;
    *rows = copy.dst;
    const Status status = cuda_status(launch_copy_padded(copy), "copying scales");
    if (!status.ok()) return status;
  }
  stride = new_stride;
  return Status();
}

Status current_device(DeviceInfo& info) {
  int device = 0;
  const Status status = cuda_status(cudaGetDevice(&device), "asking for the device");
  if (status.ok()) info = cuda_device_info(device);
  return status;
}

Status stream_k_slots(const TileConfig& tile, int64_t m, int64_t n, int64_t k_tiles,
                      int blocks_per_sm, const Allocate& allocate, void* stream,
                      StreamKSlots& slots) {
  constexpr int64_t kSumBytes = 4;
  DeviceInfo device;
  const Status status = current_device(device);
  if (!status.ok()) return status;
  const int64_t units = ceil_div(m, tile.m) * ceil_div(n, tile.n) * k_tiles;
  slots.workers = static_cast<int>(
      std::min<int64_t>(units, static_cast<int64_t>(blocks_per_sm) * device.sm_count));
  slots.sums = allocate(slots.workers * kSumBytes * tile.m * tile.n);
  slots.flags = static_cast<int*>(allocate(slots.workers * int64_t{sizeof(int)}));
  if (MIXED_GEMM_MUTATED(UnzeroedFlags)) return status;
  return cuda_status(launch_zero_flags({slots.flags, slots.workers, device.early_start(), stream}),
                     "zeroing flags");
}

}  // namespace mixed_gemm
