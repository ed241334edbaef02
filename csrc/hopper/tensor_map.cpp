#include "hopper/tensor_map.h"

#include <cuda_runtime_api.h>

namespace mixed_gemm {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// From the driver at run time: the library links no libcuda, so that it loads without a GPU.
Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &result);
    const bool ok = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return found;
}

}  // namespace

int make_tensor_map(const BoxedMatrix& m, CUtensorMap& map) {
  if (encoder() == nullptr) return cudaErrorNotSupported;
  const auto type =
      m.element_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT16;
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(m.columns),
                                static_cast<cuuint64_t>(m.rows)};
  constexpr int64_t kRowMultiple = 16;  // bytes
  const int64_t row_bytes =
      (m.columns * m.element_bytes + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(m.rows == 1 ? row_bytes : m.stride)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(m.box_columns),
                            static_cast<cuuint32_t>(m.box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result =
      encoder()(&map, type, 2, const_cast<void*>(m.data), extents, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                m.permuted ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace mixed_gemm
