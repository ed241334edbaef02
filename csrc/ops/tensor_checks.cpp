#include "ops/tensor_checks.h"

namespace mixed_gemm {
namespace {

std::string device_text(const Tensor& t) {
  return t.is_cuda()  ? "cuda:" + std::to_string(t.get_device_index())
         : t.is_cpu() ? "cpu"
                      : "another device (meta?)";
}

}  // namespace

std::string text(const std::vector<int64_t>& sizes) {
  std::string result = "(";
  for (size_t i = 0; i < sizes.size(); ++i) result += (i ? ", " : "") + std::to_string(sizes[i]);
  return result + (sizes.size() == 1 ? ",)" : ")");
}
std::vector<int64_t> sizes_of(const Tensor& t) { return {t.sizes().begin(), t.sizes().end()}; }

const char* dtype_name(ScalarType type) { return torch::headeronly::toString(type); }

void check_tensor(const char* op, const char* argument, const Tensor& t, const Tensor& reference,
                  const char* reference_name) {
  STD_TORCH_CHECK(t.defined(), "mixed_gemm::", op, ": ", argument,
                  " is undefined (None was passed for a required Tensor)");
  const bool same = t.is_cuda() == reference.is_cuda() && t.is_cpu() == reference.is_cpu() &&
                    (!t.is_cuda() || t.get_device_index() == reference.get_device_index());
  STD_TORCH_CHECK(same, "mixed_gemm::", op, ": all tensors must be on one device, got ",
                  reference_name, " on ", device_text(reference), " and ", argument, " on ",
                  device_text(t), ". Hint: move them with .to(device)");
}

void check_dtype(const char* op, const char* argument, const Tensor& t, ScalarType expected,
                 const char* why) {
  STD_TORCH_CHECK(t.scalar_type() == expected, "mixed_gemm::", op, ": ", argument, " must be ",
                  dtype_name(expected), why, ", got ", dtype_name(t.scalar_type()));
}

void check_vector(const char* op, const char* argument, const Tensor& t, const char* extent_name,
                  int64_t extent) {
  STD_TORCH_CHECK(t.dim() == 1 && t.size(0) == extent, "mixed_gemm::", op, ": ", argument,
                  " must be (", extent_name, ",) = (", extent, ",), got ", text(sizes_of(t)));
}

Tensor with_unit_inner_stride(const Tensor& t) {
  return t.size(t.dim() - 1) <= 1 || t.stride(t.dim() - 1) == 1 ? t : torch::stable::contiguous(t);
}

std::optional<int64_t> row_stride(const Tensor& a) {
  const int64_t dims = a.dim();
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
