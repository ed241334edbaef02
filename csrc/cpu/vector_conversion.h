// Converts rows of fp16, bf16 or fp32 to fp32 and back, for any vector type V. The unnamed
// namespace is explained in vector_kernels.h.
#pragma once
#include <cstdint>

#include "cpu/cpu_kernels.h"

namespace mixed_gemm::cpu {
namespace {

template <typename V, ElementType kElement>
void widen_rows(const FloatRows& from, int64_t rows, int64_t columns, float* to,
                int64_t to_stride) {
  constexpr int kBytes = kElement == ElementType::kFloat32 ? 4 : 2;
  const auto* source = static_cast<const char*>(from.data);
  for (int64_t i = 0; i < rows; ++i, source += from.stride * kBytes, to += to_stride) {
    int64_t j = 0;
    for (; j + V::kLanes <= columns; j += V::kLanes) {
      V::store(to + j, V::template widen<kElement>(source + j * kBytes));
    }
    if (j < columns) {  // a partial vector goes through the stack: no byte outside is touched
      alignas(64) char in[V::kLanes * kBytes] = {};
      alignas(64) float wide[V::kLanes];
      __builtin_memcpy(in, source + j * kBytes, (columns - j) * kBytes);
      V::store(wide, V::template widen<kElement>(in));
      __builtin_memcpy(to + j, wide, (columns - j) * sizeof(float));
    }
  }
}

template <typename V, ElementType kElement>
void narrow_row(const float* from, int64_t count, void* to) {
  constexpr int kBytes = kElement == ElementType::kFloat32 ? 4 : 2;
  auto* target = static_cast<char*>(to);
  int64_t j = 0;
  for (; j + V::kLanes <= count; j += V::kLanes) {
    V::template narrow<kElement>(V::load(from + j), target + j * kBytes);
  }
  if (j < count) {
    alignas(64) float wide[V::kLanes] = {};
    alignas(64) char out[V::kLanes * kBytes];
    __builtin_memcpy(wide, from + j, (count - j) * sizeof(float));
    V::template narrow<kElement>(V::load(wide), out);
    __builtin_memcpy(target + j * kBytes, out, (count - j) * kBytes);
  }
}

template <typename V>
void to_float(const FloatRows& from, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  switch (from.element) {
    case ElementType::kFloat16:
      return widen_rows<V, ElementType::kFloat16>(from, rows, columns, to, to_stride);
    case ElementType::kBFloat16:
      return widen_rows<V, ElementType::kBFloat16>(from, rows, columns, to, to_stride);
    case ElementType::kFloat32:
      return widen_rows<V, ElementType::kFloat32>(from, rows, columns, to, to_stride);
  }
}

template <typename V>
void from_float(const float* from, int64_t count, ElementType element, void* to) {
  switch (element) {
    case ElementType::kFloat16:
      return narrow_row<V, ElementType::kFloat16>(from, count, to);
    case ElementType::kBFloat16:
      return narrow_row<V, ElementType::kBFloat16>(from, count, to);
    case ElementType::kFloat32:
      return narrow_row<V, ElementType::kFloat32>(from, count, to);
  }
}

}  // namespace
}  // namespace mixed_gemm::cpu
