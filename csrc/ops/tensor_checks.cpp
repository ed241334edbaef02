#include "ops/tensor_checks.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace mixed_gemm {
namespace {

// As Python names them.
constexpr struct {
  ScalarType type;
  const char* name;
} kDtypeNames[] = {
    {ScalarType::Byte, "uint8"},
    {ScalarType::Char, "int8"},
    {ScalarType::Short, "int16"},
    {ScalarType::Int, "int32"},
    {ScalarType::Long, "int64"},
    {ScalarType::Half, "float16"},
    {ScalarType::Float, "float32"},
    {ScalarType::Double, "float64"},
    {ScalarType::ComplexHalf, "complex32"},
    {ScalarType::ComplexFloat, "complex64"},
    {ScalarType::ComplexDouble, "complex128"},
    {ScalarType::Bool, "bool"},
    {ScalarType::BFloat16, "bfloat16"},
    {ScalarType::Float8_e5m2, "float8_e5m2"},
    {ScalarType::Float8_e4m3fn, "float8_e4m3fn"},
    {ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz"},
    {ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz"},
    {ScalarType::UInt16, "uint16"},
    {ScalarType::UInt32, "uint32"},
    {ScalarType::UInt64, "uint64"},
    {ScalarType::Float8_e8m0fnu, "float8_e8m0fnu"},
    {ScalarType::Float4_e2m1fn_x2, "float4_e2m1fn_x2"},
};

struct Place {
  int32_t type = 0, index = 0;
  explicit Place(const Tensor& t) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(t.get(), &type));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(t.get(), &index));
  }
  bool is_cuda() const { return type == aoti_torch_device_type_cuda(); }
  bool operator==(const Place& other) const {
    return type == other.type && (index == other.index || !is_cuda());
  }
  std::string text() const {
    return is_cuda()                              ? "cuda:" + std::to_string(index)
           : type == aoti_torch_device_type_cpu() ? "cpu"
                                                  : "another device";
  }
};

// A view keeps its sizes when its storage is freed or shrunk under it, and data_ptr() may be null
// then or, behind a storage offset, point to nothing.
void check_storage(const char* op, const TensorArgument& x) {
  const AtenTensorHandle t = x.tensor->get();
  int64_t dims = 0, last = 0, held = 0, *sizes = nullptr, *strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(t, &dims));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(t, &sizes));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(t, &strides));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(t, &last));
  // Before any product: strides of nothing may be any number.
  if (std::find(sizes, sizes + dims, 0) != sizes + dims) return;
  for (int64_t i = 0; i < dims; ++i) last += (sizes[i] - 1) * strides[i];
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(t, &held));
  const int64_t needed = (last + 1) * static_cast<int64_t>(x.tensor->element_size());
  if (needed <= held) return;
  wrong_value(op, {x.name, joined("have a storage of ", needed, " bytes or more"),
                   joined(held, " bytes"), "its shape is " + text(sizes_of(*x.tensor)),
                   "the storage was freed or resized, as FSDP does between steps: gather the "
                   "parameters first"});
}

}  // namespace

std::string text(const std::vector<int64_t>& sizes) {
  std::string result = "(";
  for (size_t i = 0; i < sizes.size(); ++i) result += (i ? ", " : "") + std::to_string(sizes[i]);
  return result + (sizes.size() == 1 ? ",)" : ")");
}
std::vector<int64_t> sizes_of(const Tensor& t) { return {t.sizes().begin(), t.sizes().end()}; }
std::string strides_text(const Tensor& t) { return text({t.strides().begin(), t.strides().end()}); }

std::string dtype_name(ScalarType type) {
  const auto* row = std::find_if(std::begin(kDtypeNames), std::end(kDtypeNames),
                                 [type](const auto& x) { return x.type == type; });
  return row == std::end(kDtypeNames) ? torch::headeronly::toString(type) : row->name;
}

ScalarType dtype_of(const Tensor& t) {
  int32_t code = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(t.get(), &code));
  return dtype_of(code);
}

void check_tensors(const char* op, std::initializer_list<TensorArgument> tensors) {
  const TensorArgument& first = *tensors.begin();
  if (!first.tensor->defined()) wrong_type(op, {first.name, "be a tensor", "None"});
  const Place place(*first.tensor);
  for (const TensorArgument& x : tensors) {
    if (x.tensor == nullptr || &x == &first) continue;
    if (!x.tensor->defined()) wrong_type(op, {x.name, "be a tensor", "None"});
    const Place other(*x.tensor);
    if (other == place) continue;
    wrong_value(
        op, {"all tensors", "be on one device",
             joined(first.name, " on ", place.text(), " and ", x.name, " on ", other.text()), "",
             "move them with .to(device)"});
  }
  for (const TensorArgument& x : tensors) {
    if (x.tensor != nullptr) check_storage(op, x);
  }
}

void check_dtype(const char* op, const char* argument, const Tensor& t, ScalarType expected,
                 const char* why, const char* hint) {
  if (dtype_of(t) == expected) return;
  wrong_type(op, {argument, "be " + dtype_name(expected) + why, dtype_name(dtype_of(t)), "", hint});
}

void check_dims(const char* op, const char* argument, const Tensor& t, int64_t dims,
                const char* rule) {
  if (t.dim() == dims) return;
  wrong_value(op, {argument, joined("be ", dims, "-d ", rule), text(sizes_of(t))});
}

void check_rows(const char* op, const char* argument, const Tensor& t) {
  if (t.dim() < 1) wrong_value(op, {argument, "be (..., K)", "a 0-d tensor"});
}

bool is_matrix(const Tensor& t, int64_t rows, int64_t columns) {
  return t.dim() == 2 && t.size(0) == rows && t.size(1) == columns;
}

void wrong_matrix(const char* op, const char* argument, const Tensor& t, const char* rule,
                  int64_t rows, int64_t columns, const std::string& because, bool transposable) {
  const bool transposed = transposable && is_matrix(t, columns, rows);
  wrong_value(op, {argument, joined("be ", rule, " = ", text({rows, columns})), text(sizes_of(t)),
                   because, transposed ? "it looks transposed, pass .t().contiguous()" : ""});
}

void check_column_major(const char* op, const Tensor& a, const Tensor& b) {
  check_dims(op, "b", b, 2, "(K, N)");
  const int64_t k = a.size(a.dim() - 1);
  if (b.size(0) != k) {
    const bool transposed = b.size(1) == k;
    wrong_value(op, {"b", joined("be (K, N) with K=", k, " of a"), text(sizes_of(b)), "",
                     transposed ? "it looks transposed, pass weight.t() of an [N, K] weight" : ""});
  }
  if (k > 1 && b.stride(0) != 1) {
    wrong_value(op, {"b",
                     "be column-major, stride(0) == 1 as weight.t() of a contiguous [N, K] weight "
                     "has it",
                     "strides " + strides_text(b), "", "b.t().contiguous().t(), once"});
  }
}

void check_vector(const char* op, const char* argument, const Tensor& t, const char* extent_name,
                  int64_t extent) {
  if (t.dim() == 1 && t.size(0) == extent) return;
  wrong_value(op,
              {argument, joined("be (", extent_name, ",) = (", extent, ",)"), text(sizes_of(t))});
}

int64_t rows_of(const Tensor& a) {
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < a.dim(); ++i) rows *= a.size(i);
  return rows;
}

Tensor contiguous_elements(const Tensor& t) {
  const Tensor kept = as_contiguous(t);
  const auto size = static_cast<uintptr_t>(kept.element_size());
  const bool aligned = reinterpret_cast<uintptr_t>(kept.const_data_ptr()) % size == 0;
  return aligned ? kept : torch::stable::clone(kept);
}

Tensor with_unit_inner_stride(const Tensor& t) {
  return t.size(t.dim() - 1) <= 1 || t.stride(t.dim() - 1) == 1 ? t : as_contiguous(t);
}

std::optional<int64_t> row_stride(const Tensor& a) {
  const int64_t dims = a.dim();
  if (a.numel() == 0) return a.size(dims - 1);  // strides of nothing may be any number
  if (a.size(dims - 1) > 1 && a.stride(dims - 1) != 1) return std::nullopt;
  std::optional<int64_t> stride;
  int64_t expected = 0;
  for (int64_t i = dims - 2; i >= 0; --i) {
    if (a.size(i) == 1) continue;  // its stride may be anything
    if (!stride) {
      stride = a.stride(i);
    } else if (a.stride(i) != expected) {
      return std::nullopt;
    }
    expected = a.stride(i) * a.size(i);
  }
  return stride.value_or(0);
}

}  // namespace mixed_gemm
