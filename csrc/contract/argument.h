// An argument of an op, as its schema writes it.
#pragma once
#include <cstdint>
#include <optional>

#include "contract/size.h"

namespace mixed_gemm::contract {

enum class Kind : uint8_t {
  kTensor,
  kOptionalTensor,
  kWrittenTensor,
  kWrittenTensors,  // a list of them
  kInt,
  kOptionalInt,
  kBool,
  kFloat,
  kOptionalFloat,
  kText,
  kDtype,
  kPair,  // two ints
  kOptionalPair,
};
constexpr const char* kKindNames[] = {"Tensor",     "Tensor?", "Tensor", "Tensor[]", "int",
                                      "int?",       "bool",    "float",  "float?",   "str",
                                      "ScalarType", "int[2]",  "int[2]?"};

struct Argument {
  const char* name = "";
  Kind kind = Kind::kTensor;
  const char* fallback = nullptr;  // as the schema writes it; null: the argument is required
  bool is_keyword = false;
  int8_t symbol = -1;            // that it is the value of
  const char* dtype_words = "";  // for docs/ops.md, where a function checks it
  const char* shape_words = "";  // the same of a shape, or of a value
  const char* only_with = "";    // that shape holds where this argument is given

  constexpr Argument keyword() const {
    Argument copy = *this;
    copy.is_keyword = true;
    return copy;
  }
  constexpr Argument binds(Symbol bound) const {
    Argument copy = *this;
    copy.symbol = static_cast<int8_t>(bound);
    return copy;
  }
  constexpr Argument must_be(const char* dtype, const char* shape, const char* with = "") const {
    Argument copy = *this;
    copy.dtype_words = dtype;
    copy.shape_words = shape;
    copy.only_with = with;
    return copy;
  }
  constexpr bool is_tensor() const { return kind <= Kind::kWrittenTensor; }
};

constexpr Argument tensor(const char* name) { return {name, Kind::kTensor}; }
constexpr Argument optional_tensor(const char* name, const char* fallback = "None") {
  return {name, Kind::kOptionalTensor, fallback};
}
constexpr Argument written_tensor(const char* name) { return {name, Kind::kWrittenTensor}; }
constexpr Argument written_tensors(const char* name) { return {name, Kind::kWrittenTensors}; }
constexpr Argument integer(const char* name, const char* fallback = nullptr) {
  return {name, Kind::kInt, fallback};
}
constexpr Argument optional_integer(const char* name) { return {name, Kind::kOptionalInt, "None"}; }
constexpr Argument boolean(const char* name, const char* fallback) {
  return {name, Kind::kBool, fallback};
}
constexpr Argument real(const char* name, const char* fallback = nullptr) {
  return {name, Kind::kFloat, fallback};
}
constexpr Argument optional_real(const char* name) { return {name, Kind::kOptionalFloat, "None"}; }
constexpr Argument text(const char* name, const char* fallback = nullptr) {
  return {name, Kind::kText, fallback};
}
constexpr Argument dtype_argument(const char* name) { return {name, Kind::kDtype}; }
constexpr Argument pair(const char* name, const char* fallback = nullptr) {
  return {name, Kind::kPair, fallback};
}
constexpr Argument optional_pair(const char* name) { return {name, Kind::kOptionalPair, "None"}; }

}  // namespace mixed_gemm::contract
