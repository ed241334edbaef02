// Rules about one tensor that every op shares. Each throws an exception that names op, argument,
// what was expected with numbers, and what came.
#pragma once
#include <initializer_list>
#include <vector>

#include "ops/torch_stable.h"

namespace mixed_gemm {

std::string text(const std::vector<int64_t>& sizes);  // "(3, 4)"
std::vector<int64_t> sizes_of(const Tensor& t);
std::string strides_text(const Tensor& t);
std::string dtype_name(ScalarType type);  // "float16"
ScalarType dtype_of(const Tensor& t);     // of any tensor, where scalar_type() may throw

// Index of `value` in a table of names from `first` on, or an exception that lists them.
template <size_t kCount>
int index_of(const char* op, const char* argument, const std::string& value,
             const char* const (&names)[kCount], size_t first) {
  std::string list;
  for (size_t i = first; i < kCount; ++i) {
    if (value == names[i]) return static_cast<int>(i);
    list += (i > first ? ", " : "") + std::string(names[i]);
  }
  wrong_value(op, {argument, "be one of " + list, "'" + value + "'"});
}

// A tensor argument; no tensor where an optional one was not given.
struct TensorArgument {
  TensorArgument(const char* argument, const Tensor& t) : name(argument), tensor(&t) {}
  TensorArgument(const char* argument, const std::optional<Tensor>& t)
      : name(argument), tensor(t ? &*t : nullptr) {}
  const char* name;
  const Tensor* tensor;
};

// The first thing an op does: all of its tensors are tensors, on the device of the first of them,
// and their storage holds what their sizes and strides say.
void check_tensors(const char* op, std::initializer_list<TensorArgument> tensors);

// why: behind the dtype, such as " (the dtype of a)".
void check_dtype(const char* op, const char* argument, const Tensor& t, ScalarType expected,
                 const char* why = "", const char* hint = "");

void check_dims(const char* op, const char* argument, const Tensor& t, int64_t dims,
                const char* rule);

// At least one dimension: [..., K].
void check_rows(const char* op, const char* argument, const Tensor& t);

bool is_matrix(const Tensor& t, int64_t rows, int64_t columns);
[[noreturn]] void wrong_matrix(const char* op, const char* argument, const Tensor& t,
                               const char* rule, int64_t rows, int64_t columns,
                               const std::string& because, bool transposable);

// 2-D [rows, columns]; rule is the same in words, because() says where the numbers come from, when
// it is asked: building a text takes longer than all of a check. transposable: whether it is worth
// a hint that the two are exchanged.
template <typename Because>
void check_matrix(const char* op, const char* argument, const Tensor& t, const char* rule,
                  int64_t rows, int64_t columns, const Because& because,
                  bool transposable = false) {
  if (is_matrix(t, rows, columns)) return;
  wrong_matrix(op, argument, t, rule, rows, columns, because(), transposable);
}

// b is [K, N] with the K of a [..., K], column-major.
void check_column_major(const char* op, const Tensor& a, const Tensor& b);

// 1-D of `extent` elements.
void check_vector(const char* op, const char* argument, const Tensor& t, const char* extent_name,
                  int64_t extent);

// Product of all dimensions but the last.
int64_t rows_of(const Tensor& a);

// Contiguous, and where its elements may be read as such: a tensor over a file or a buffer of
// somebody else's (torch.frombuffer) begins at any byte.
Tensor contiguous_elements(const Tensor& t);

// Inner dimension contiguous; the row stride may be anything.
Tensor with_unit_inner_stride(const Tensor& t);

// Views [..., K] as rows with one stride, if the leading dimensions allow it.
std::optional<int64_t> row_stride(const Tensor& a);

}  // namespace mixed_gemm
