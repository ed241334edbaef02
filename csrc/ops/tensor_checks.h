// Rules about one tensor that every op shares. Each throws an exception that names op, argument,
// what was expected with numbers, and what came.
#pragma once
#include <vector>

#include "ops/torch_stable.h"

namespace mixed_gemm {

std::string text(const std::vector<int64_t>& sizes);  // "(3, 4)"
std::vector<int64_t> sizes_of(const Tensor& t);
const char* dtype_name(ScalarType type);

// Index of `value` in a table of names from `first` on, or an exception that lists them.
template <size_t kCount>
int index_of(const char* op, const char* argument, const std::string& value,
             const char* const (&names)[kCount], size_t first) {
  std::string list;
  for (size_t i = first; i < kCount; ++i) {
    if (value == names[i]) return static_cast<int>(i);
    list += (i > first ? ", " : "") + std::string(names[i]);
  }
  STD_TORCH_CHECK(false, "mixed_gemm::", op, ": ", argument, " must be one of ", list, ", got ",
                  value);
  return 0;
}

// Defined, and on the device of `reference`.
void check_tensor(const char* op, const char* argument, const Tensor& t, const Tensor& reference,
                  const char* reference_name);

void check_dtype(const char* op, const char* argument, const Tensor& t, ScalarType expected,
                 const char* why);

// 1-D of `extent` elements.
void check_vector(const char* op, const char* argument, const Tensor& t, const char* extent_name,
                  int64_t extent);

// Inner dimension contiguous; the row stride may be anything.
Tensor with_unit_inner_stride(const Tensor& t);

// Views [..., K] as rows with one stride, if the leading dimensions allow it.
std::optional<int64_t> row_stride(const Tensor& a);

}  // namespace mixed_gemm
