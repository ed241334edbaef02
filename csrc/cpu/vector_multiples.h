// Adds multiples of rows to a row, for any vector type V. The unnamed namespace is explained in
// vector_kernels.h.
#pragma once
#include <cstdint>

namespace mixed_gemm::cpu {
namespace {

template <typename V>
void add_multiple(const float* from, int64_t count, float factor, float* to) {
  const auto factors = V::broadcast(factor);
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    V::store(to + i, V::fma(V::load(from + i), factors, V::load(to + i)));
  }
  if (i == count) return;
  // A partial vector goes through the stack: no byte outside is touched.
  alignas(64) float x[V::kLanes] = {}, sum[V::kLanes] = {};
  const auto bytes = static_cast<size_t>(count - i) * sizeof(float);
  __builtin_memcpy(x, from + i, bytes);
  __builtin_memcpy(sum, to + i, bytes);
  V::store(sum, V::fma(V::load(x), factors, V::load(sum)));
  __builtin_memcpy(to + i, sum, bytes);
}

}  // namespace
}  // namespace mixed_gemm::cpu
