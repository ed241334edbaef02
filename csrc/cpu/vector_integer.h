// Makes IntegerKernels from a vector type. Only the kernels_*.cpp include it, each compiled with
// its own flags: everything is in an unnamed namespace or inlined (tools/check_isa.py).
//
// A vector type V has: Words, kStep (elements of K in a step), kABytes (of an element of A),
//   zero(), load_a(const void*), load_b(const int8_t*), load_b(const int8_t*, count < kStep),
//   dot(sum, b, a), prepare(const int8_t* a, count, void* to) for one step, and add_across of four
//   sums.
#pragma once
#include <algorithm>

#include "cpu/integer_kernels.h"
#include "cpu/vector_kernels.h"

namespace mixed_gemm::cpu {
namespace {

template <typename V>
void prepare_row(const int8_t* a, int64_t k, void* to) {
  auto* bytes = static_cast<char*>(to);
  for (int64_t i = 0; i < k; i += V::kStep, bytes += V::kStep * V::kABytes) {
    V::prepare(a + i, static_cast<int>(std::min<int64_t>(V::kStep, k - i)), bytes);
  }
}

// The sums of kRows x kColumns, one vector each. Every index is a constant: a variable one would
// put all of them into memory (GCC 12 stored each after every product, 47 instead of 140 GMAC/s).
template <typename V, int kRows, int kColumns>
struct IntegerSums {
  using Words = typename V::Words;
  static constexpr int kSums = kRows * kColumns;
  Words sum[kSums];

  [[gnu::always_inline]] void clear() {
    unroll<kSums>([&](auto i) __attribute__((always_inline)) { sum[i] = V::zero(); });
  }
  template <typename Load>
  [[gnu::always_inline]] void add(const char* a, int64_t a_row_bytes, const Load& load_b) {
    Words b[kColumns];
    unroll<kColumns>([&](auto c) __attribute__((always_inline)) { b[c] = load_b(c); });
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const Words row = V::load_a(a + r * a_row_bytes);
      unroll<kColumns>([&](auto c) __attribute__((always_inline)) {
        sum[r * kColumns + c] = V::dot(sum[r * kColumns + c], b[c], row);
      });
    });
  }
  template <int kIndex>
  [[gnu::always_inline]] Words at() const {
    if constexpr (kIndex < kSums) {
      return sum[kIndex];
    } else {
      return V::zero();
    }
  }
  // totals[row * kColumns + column], with room for four more.
  [[gnu::always_inline]] void add_across(int32_t* totals) const {
    unroll<(kSums + 3) / 4>([&](auto i) __attribute__((always_inline)) {
      constexpr int kFirst = 4 * decltype(i)::value;
      V::add_across(at<kFirst>(), at<kFirst + 1>(), at<kFirst + 2>(), at<kFirst + 3>(),
                    totals + kFirst);
    });
  }
};

template <typename V, int kRows, int kColumns>
void multiply_integer(const IntegerKernels::Operands& o, int32_t* sums, int64_t stride) {
  const int64_t a_row_bytes = o.a_stride * V::kABytes;
  const auto* a = static_cast<const char*>(o.a);
  IntegerSums<V, kRows, kColumns> tile;
  tile.clear();
  int64_t k = 0;
  for (; k + V::kStep <= o.k; k += V::kStep, a += V::kStep * V::kABytes) {
    tile.add(
        a, a_row_bytes, [&](int c) __attribute__((always_inline)) {
          return V::load_b(o.b + c * o.ldb + k);
        });
  }
  if (k < o.k) {
    const int count = static_cast<int>(o.k - k);
    tile.add(
        a, a_row_bytes, [&](int c) __attribute__((always_inline)) {
          return V::load_b(o.b + c * o.ldb + k, count);
        });
  }
  alignas(16) int32_t totals[(kRows * kColumns + 3) / 4 * 4];
  tile.add_across(totals);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      sums[r * stride + c] = static_cast<int32_t>(static_cast<uint32_t>(sums[r * stride + c]) +
                                                  static_cast<uint32_t>(totals[r * kColumns + c]));
    }
  }
}

template <typename V, int kRows, int kColumns>
constexpr IntegerKernels::Shape shape() {
  return {kColumns, multiply_integer<V, kRows, kColumns>, multiply_integer<V, kRows, 1>};
}

}  // namespace
}  // namespace mixed_gemm::cpu
