// One call as the rules of a contract see it. A tensor of a kernel, a meta tensor and a fake one
// look the same.
#pragma once
#include <string_view>

#include "contract/dtype.h"
#include "contract/size.h"

namespace mixed_gemm::contract {

constexpr int kMostArguments = 16;

// Devices by number. From kUnnamedDevices on they are of kinds that no text names.
constexpr int32_t kCpuDevice = 0, kCudaDevice = 1, kMetaDevice = 2, kUnnamedDevices = 3;

// Sizes of a tensor without elements may be any numbers beside the 0, whose product may not fit 64
// bits.
inline int64_t wrapping_product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// A tensor; or an argument that is a dtype, which has the dtype alone.
struct View {
  enum State : uint8_t { kNone, kUndefined, kGiven };
  State state;
  Dtype dtype;
  int32_t code;             // torch's number of the dtype, where a kernel asks
  const char* other_dtype;  // the name of a kOther
  int32_t device, index;
  int64_t dims;
  const int64_t *sizes, *strides;
  // Storage in bytes, -1 where it is not looked at; then neither are offset and item, the bytes of
  // an element.
  int64_t storage, offset, item;

  bool is_given() const { return state == kGiven; }
  int64_t last_size() const { return sizes[dims - 1]; }
  const char* dtype_name() const {
    return dtype == Dtype::kOther ? other_dtype : kDtypeNames[static_cast<int>(dtype)];
  }
  bool has_dtype_of(const View& other) const {
    return dtype == other.dtype &&
           (dtype != Dtype::kOther || std::string_view(other_dtype) == other.other_dtype);
  }
  int64_t elements() const {
    int64_t count = 1;
    for (int64_t i = 0; i < dims; ++i) count = wrapping_product(count, sizes[i]);
    return count;
  }
  // The product of all dimensions but the last.
  int64_t rows() const {
    int64_t count = 1;
    for (int64_t i = 0; i + 1 < dims; ++i) count = wrapping_product(count, sizes[i]);
    return count;
  }
};

// The arguments by place. Whoever describes a call fills in the field for the kind of each argument
// and no more: nothing is set before, since that would take as long as a check.
struct Given {
  View views[kMostArguments];       // tensors and dtypes
  int64_t numbers[kMostArguments];  // ints, bools; of a choice its index, once it is checked
  double reals[kMostArguments];     // floats
  std::string_view texts[kMostArguments];
  const int64_t* lists[kMostArguments];  // of ints; null: none given
  int64_t list_sizes[kMostArguments];
  int64_t symbols[kSymbols];

  int64_t operator[](Symbol symbol) const { return symbols[static_cast<int>(symbol)]; }
  int64_t& operator[](Symbol symbol) { return symbols[static_cast<int>(symbol)]; }
};

}  // namespace mixed_gemm::contract
