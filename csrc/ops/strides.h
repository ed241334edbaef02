// Strides of tensors, as kernels count them.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "contract/given.h"

namespace mixed_gemm {

inline std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  }
  return strides;
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
