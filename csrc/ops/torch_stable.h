// Everything that we take from LibTorch, through its stable ABI: one binary serves every torch from
// 2.10 on, CPU or CUDA.
#pragma once
#ifndef TORCH_TARGET_VERSION
#error "build with -DTORCH_TARGET_VERSION=0x020a000000000000 (LibTorch stable ABI 2.10)"
#endif
#include <torch/headeronly/util/shim_utils.h>

#include "ops/errors.h"

// torch's headers throw "... API call failed at ..." for whatever went wrong behind a C shim. All
// of them use this macro, so that this one keeps torch's own words and kind.
#undef TORCH_ERROR_CODE_CHECK
#define TORCH_ERROR_CODE_CHECK(call)                       \
  if ((call) != TORCH_SUCCESS) {                           \
    ::mixed_gemm::torch_failed(#call, __FILE__, __LINE__); \
  }

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "ops/strides.h"

// torch takes a namespace of ops once a process. A build with another one (CMake's
// MIXED_GEMM_NAMESPACE) can be loaded beside this one, to be compared with it.
#define MIXED_GEMM_SCHEMAS_IN(name, m) STABLE_TORCH_LIBRARY(name, m)
#define MIXED_GEMM_SCHEMAS(m) MIXED_GEMM_SCHEMAS_IN(MIXED_GEMM_NAMESPACE, m)
#define MIXED_GEMM_KERNELS_IN(name, key, m) STABLE_TORCH_LIBRARY_IMPL(name, key, m)
#define MIXED_GEMM_KERNELS(key, m) MIXED_GEMM_KERNELS_IN(MIXED_GEMM_NAMESPACE, key, m)

// libtorch_cuda alone exports it. It is weak, so that the same library loads in a CPU-only torch,
// where it stays null.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream)
    __attribute__((weak));

namespace mixed_gemm {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// torch's own functions of these names look their operator up by its text and box the
// arguments, 1 to 2 us a call on the host. Most tensors are contiguous already, and a C shim makes
// an empty one.
inline Tensor as_contiguous(const Tensor& t) {
  return t.is_contiguous() ? t : torch::stable::contiguous(t);
}

// Makes a tensor on a device of torch's numbers.
inline Tensor empty_strided_on(int32_t device, int32_t index, const int64_t* sizes,
                               const int64_t* strides, int64_t dims, ScalarType dtype) {
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(dims, sizes, strides, static_cast<int32_t>(dtype),
                                                  device, index, &made));
  return Tensor(made);
}
inline Tensor empty_on(int32_t device, int32_t index, const std::vector<int64_t>& sizes,
                       ScalarType dtype) {
  std::vector<int64_t> strides(sizes.size());
  const auto dims = static_cast<int64_t>(sizes.size());
  set_contiguous_strides(sizes.data(), dims, strides.data());
  return empty_strided_on(device, index, sizes.data(), strides.data(), dims, dtype);
}
// Makes a tensor with the dtype and the device of `like`.
inline Tensor empty_on(const Tensor& like, const std::vector<int64_t>& sizes) {
  int32_t code = 0, device = 0, index = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &code));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &index));
  return empty_on(device, index, sizes, static_cast<ScalarType>(code));
}

inline void* current_cuda_stream(int32_t device_index) {
  MIXED_GEMM_CHECK(kUnsupported, aoti_torch_get_current_cuda_stream != nullptr, "stream",
                   "this torch has no CUDA");
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
  return stream;
}

// torch's C interface would report of an exception that a body failed and no more: the text of the
// first one is kept here, and thrown again. (Not in a std::exception_ptr, whose functions are of a
// newer libstdc++ than the library may need.)
inline void torch_parallel(int64_t begin, int64_t end, int64_t grain, const LoopBody& body) {
  std::mutex mutex;
  bool no_memory = false;
  std::string thrown;
  torch::stable::parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    try {
      body(first, last);
    } catch (const std::bad_alloc&) {
      const std::lock_guard<std::mutex> lock(mutex);
      no_memory = true;
    } catch (const std::exception& error) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (thrown.empty()) thrown = error.what();
    }
  });
  if (no_memory) throw std::bad_alloc();
  if (!thrown.empty()) throw std::runtime_error(thrown);
}

}  // namespace mixed_gemm
