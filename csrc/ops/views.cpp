#include "ops/views.h"

#include <array>
#include <iterator>

namespace mixed_gemm {
namespace {

using contract::Dtype;
using contract::View;

constexpr struct {
  ScalarType type;
  Dtype dtype;
} kDtypeCodes[] = {
    {ScalarType::Byte, Dtype::kUint8},
    {ScalarType::Char, Dtype::kInt8},
    {ScalarType::Short, Dtype::kInt16},
    {ScalarType::Int, Dtype::kInt32},
    {ScalarType::Long, Dtype::kInt64},
    {ScalarType::Half, Dtype::kFloat16},
    {ScalarType::BFloat16, Dtype::kBFloat16},
    {ScalarType::Float, Dtype::kFloat32},
    {ScalarType::Double, Dtype::kFloat64},
    {ScalarType::ComplexHalf, Dtype::kComplex32},
    {ScalarType::ComplexFloat, Dtype::kComplex64},
    {ScalarType::ComplexDouble, Dtype::kComplex128},
    {ScalarType::Bool, Dtype::kBool},
    {ScalarType::Float8_e5m2, Dtype::kFloat8E5M2},
    {ScalarType::Float8_e4m3fn, Dtype::kFloat8E4M3},
    {ScalarType::Float8_e5m2fnuz, Dtype::kFloat8E5M2Fnuz},
    {ScalarType::Float8_e4m3fnuz, Dtype::kFloat8E4M3Fnuz},
    {ScalarType::UInt16, Dtype::kUint16},
    {ScalarType::UInt32, Dtype::kUint32},
    {ScalarType::UInt64, Dtype::kUint64},
    {ScalarType::Float8_e8m0fnu, Dtype::kFloat8E8M0},
    {ScalarType::Float4_e2m1fn_x2, Dtype::kFloat4E2M1X2},
};
static_assert(std::size(kDtypeCodes) == contract::kDtypes);

constexpr int kCodes = 64;
constexpr std::array<Dtype, kCodes> dtypes_by_code() {
  std::array<Dtype, kCodes> dtypes{};
  for (int i = 0; i < kCodes; ++i) dtypes[static_cast<size_t>(i)] = Dtype::kOther;
  for (const auto& row : kDtypeCodes) dtypes[static_cast<size_t>(row.type)] = row.dtype;
  return dtypes;
}
constexpr std::array<Dtype, kCodes> kDtypesByCode = dtypes_by_code();

Dtype dtype_of_code(int32_t code) {
  return code < 0 || code >= kCodes ? Dtype::kOther : kDtypesByCode[static_cast<size_t>(code)];
}

}  // namespace

int32_t code_of(contract::Dtype dtype) {
  return static_cast<int32_t>(kDtypeCodes[static_cast<int>(dtype)].type);
}

void set_dtype(contract::View& v, int32_t code) {
  v.state = View::kGiven;
  v.code = code;
  v.dtype = dtype_of_code(code);
  if (v.dtype == Dtype::kOther) {
    v.other_dtype = torch::headeronly::toString(static_cast<ScalarType>(code));
  }
}

void look_at(AtenTensorHandle t, contract::View& v) {
  bool defined = false;
  TORCH_ERROR_CODE_CHECK(aoti_torch_is_defined(t, &defined));
  v.state = View::kUndefined;
  if (!defined) return;
  int32_t code = 0, device = 0;
  int64_t *sizes = nullptr, *strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(t, &code));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(t, &device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(t, &v.index));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(t, &v.dims));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(t, &sizes));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(t, &strides));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(t, &v.offset));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(t, &v.storage));
  static const int32_t kCpu = aoti_torch_device_type_cpu(), kCuda = aoti_torch_device_type_cuda();
  v.device = device == kCpu    ? contract::kCpuDevice
             : device == kCuda ? contract::kCudaDevice
                               : contract::kUnnamedDevices + device;
  v.sizes = sizes, v.strides = strides;
  v.item = static_cast<int64_t>(aoti_torch_dtype_element_size(code));
  set_dtype(v, code);
}

}  // namespace mixed_gemm
