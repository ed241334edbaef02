// Strides of tensors, as kernels count them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "contract/given.h"

namespace mixed_gemm {

inline void set_contiguous_strides(const int64_t* sizes, int64_t dims, int64_t* strides) {
  int64_t step = 1;
  for (int64_t i = dims; i-- > 0;) {
    strides[i] = step;
    step = contract::wrapping_product(step, std::max<int64_t>(sizes[i], 1));
  }
}

// Whether a tensor is contiguous as torch counts it: strides may be anything where a size is 1, and
// in a tensor without elements.
inline bool is_contiguous(const contract::View& v) {
  bool lies_so = true;
  int64_t step = 1;
  for (int64_t i = v.dims; i-- > 0;) {
    if (v.sizes[i] == 0) return true;
    lies_so &= v.sizes[i] == 1 || v.strides[i] == step;
    step = contract::wrapping_product(step, v.sizes[i]);
  }
  return lies_so;
}

// Views [..., K] as rows with one stride, if the leading dimensions allow it.
inline std::optional<int64_t> row_stride(const contract::View& a) {
  const int64_t dims = a.dims;
  if (std::find(a.sizes, a.sizes + dims, 0) != a.sizes + dims) {
    return a.last_size();  // strides of nothing may be any number
  }
  if (a.last_size() > 1 && a.strides[dims - 1] != 1) return std::nullopt;
  std::optional<int64_t> stride;
  int64_t expected = 0;
  for (int64_t i = dims - 2; i >= 0; --i) {
    if (a.sizes[i] == 1) continue;  // its stride may be anything
    if (!stride) {
      stride = a.strides[i];
    } else if (a.strides[i] != expected) {
      return std::nullopt;
    }
    expected = a.strides[i] * a.sizes[i];
  }
  return stride.value_or(0);
}

}  // namespace mixed_gemm
