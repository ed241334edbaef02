// Reads the values that a check depends on. On a device this waits for it.
#pragma once
#include "core/weight_type.h"
#include "ops/torch_stable.h"

namespace mixed_gemm {

// Refuses int8 values of any shape outside the range of `bits`; the text has the first of them and
// its index. Waits for the device, see on_host().
void check_range(const char* op, const char* argument, const Tensor& q, int64_t bits);

// Refuses int8 values of any shape that are no codes of a float weight, likewise.
void check_codes(const char* op, const char* argument, const Tensor& codes, WeightType weight);

// Refuses int32 or int64 values of any shape outside low..high, which is the range of `of`.
void check_indices(const char* op, const char* argument, const Tensor& indices, int64_t low,
                   int64_t high, const std::string& of);

// A contiguous tensor on the CPU. One on a device is copied, so this waits for the device.
Tensor on_host(const Tensor& t);

}  // namespace mixed_gemm
