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
  kText,
  kDtype,
  kPair,  // two ints
  kOptionalPair,
};
constexpr const char* kKindNames[] = {"Tensor", "Tensor?",    "Tensor", "Tensor[]",
                                      "int",    "int?",       "bool",   "float",
                                      "str",    "ScalarType", "int[2]", "int[2]?"};

struct Argument {
  const char* name = "";
  Kind kind = Kind::kTensor;
  const char* fallback = nullptr;  // as the schema writes it; null: the argument is required
  bool is_keyword = false;
  int8_t symbol = -1;  // that it is the value of

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
constexpr Argument real(const char* name) { return {name, Kind::kFloat}; }
constexpr Argument text(const char* name, const char* fallback = nullptr) {
  return {name, Kind::kText, fallback};
}
constexpr Argument dtype_argument(const char* name) { return {name, Kind::kDtype}; }
constexpr Argument pair(const char* name, const char* fallback = nullptr) {
  return {name, Kind::kPair, fallback};
}
constexpr Argument optional_pair(const char* name) { return {name, Kind::kOptionalPair, "None"}; }

}  // namespace mixed_gemm::contract
