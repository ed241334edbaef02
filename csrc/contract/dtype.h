// The dtypes that torch has, as Python names them.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm::contract {

enum class Dtype : uint8_t {
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
  kBool,
  kFloat8E5M2,
  kFloat8E4M3,
  kFloat8E5M2Fnuz,
  kFloat8E4M3Fnuz,
  kUint16,
  kUint32,
  kUint64,
  kFloat8E8M0,
  kFloat4E2M1X2,
  kOther,
};
constexpr const char* kDtypeNames[] = {
    "uint8",    "int8",        "int16",          "int32",           "int64",           "float16",
    "bfloat16", "float32",     "float64",        "complex32",       "complex64",       "complex128",
    "bool",     "float8_e5m2", "float8_e4m3fn",  "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16",
    "uint32",   "uint64",      "float8_e8m0fnu", "float4_e2m1fn_x2"};
constexpr int kDtypes = static_cast<int>(Dtype::kOther);

// Whether it is float16, bfloat16 or float32, which GEMMs take and give.
constexpr bool is_element(Dtype type) { return type >= Dtype::kFloat16 && type <= Dtype::kFloat32; }
constexpr ElementType element_of(Dtype type) {
  return static_cast<ElementType>(static_cast<int>(type) - static_cast<int>(Dtype::kFloat16));
}
static_assert(element_of(Dtype::kBFloat16) == ElementType::kBFloat16 &&
              element_of(Dtype::kFloat32) == ElementType::kFloat32);

}  // namespace mixed_gemm::contract
