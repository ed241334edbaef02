// Makes Float8Kernels from a vector type. Only the kernels_*.cpp include it, each compiled with its
// own flags: everything is in an unnamed namespace or inlined (tools/check_isa.py).
//
// A vector type V has: Floats, Operand (the decoded codes of one part of a step), kParts (of a
// step), kStep (codes), kABytes (of a decoded element),
//   Seen: remembers whether a column had a NaN where decoding does not make one of it,
//   decode(const uint8_t* p, Operand* parts, Seen&), decode(p, count < kStep, parts, Seen&),
//   store_a(parts, void* to, seen, codes) of a step, dot(b, const void* a, sum), zero(),
//   scaled_sum(sum, float scale, before), add_first(float, before) to one lane,
//   add_across(four sums, float* to).
// The order of K within a step is V's own, the same for both operands.
#pragma once
#include <cstdint>

#include "cpu/float8_kernels.h"
#include "cpu/vector_kernels.h"

namespace mixed_gemm::cpu {
namespace {

template <typename V>
void prepare_float8(const uint8_t* a, int64_t k, void* to) {
  auto* bytes = static_cast<char*>(to);
  typename V::Operand parts[V::kParts];
  for (int64_t i = 0; i < k; i += V::kStep, bytes += V::kStep * V::kABytes) {
    typename V::Seen seen;
    if (k - i < V::kStep) {
      V::decode(a + i, static_cast<int>(k - i), parts, seen);
    } else {
      V::decode(a + i, parts, seen);
    }
    V::store_a(parts, bytes, seen, k - i < V::kStep ? static_cast<int>(k - i) : V::kStep);
  }
}

// The sums of kRows x kColumns, one vector each; every index is a constant, which keeps them in
// registers.
template <typename V, int kRows, int kColumns>
struct Float8Sums {
  using Floats = typename V::Floats;
  static constexpr int kSums = kRows * kColumns, kPartBytes = V::kStep * V::kABytes / V::kParts;
  Floats sum[kSums];
  typename V::Seen seen[kColumns];

  [[gnu::always_inline]] void clear() {
    unroll<kSums>([&](auto i) __attribute__((always_inline)) { sum[i] = V::zero(); });
  }
  template <typename Decode>
  [[gnu::always_inline]] void add(const char* a, int64_t a_row_bytes, const Decode& decode) {
    unroll<kColumns>([&](auto c) __attribute__((always_inline)) {
      typename V::Operand parts[V::kParts];
      decode(c, parts, seen[c]);
      unroll<V::kParts>([&](auto part) __attribute__((always_inline)) {
        unroll<kRows>([&](auto r) __attribute__((always_inline)) {
          sum[r * kColumns + c] =
              V::dot(parts[part], a + r * a_row_bytes + part * kPartBytes, sum[r * kColumns + c]);
        });
      });
    });
  }
  template <int kIndex>
  [[gnu::always_inline]] static Floats at(const Floats* sums) {
    if constexpr (kIndex < kSums) {
      return sums[kIndex];
    } else {
      return V::zero();
    }
  }
  // sums[r * stride + c] += the lanes of `totals`.
  [[gnu::always_inline]] void finish(const Floats* totals, float* sums, int64_t stride) const {
    alignas(16) float lanes[(kSums + 3) / 4 * 4];
    unroll<(kSums + 3) / 4>([&](auto i) __attribute__((always_inline)) {
      constexpr int kFirst = 4 * decltype(i)::value;
      V::add_across(at<kFirst>(totals), at<kFirst + 1>(totals), at<kFirst + 2>(totals),
                    at<kFirst + 3>(totals), lanes + kFirst);
    });
    for (int c = 0; c < kColumns; ++c) {
      const float spoiled = seen[c].nan() ? __builtin_nanf("") : 0.f;
      for (int r = 0; r < kRows; ++r) sums[r * stride + c] += lanes[r * kColumns + c] + spoiled;
    }
  }
};

// Multiplies `count` codes of every column from `b` on. The columns of the next call are fetched on
// the way: a column of K = 4096 is one page, at whose end the hardware's prefetcher starts over.
template <typename V, int kRows, int kColumns>
[[gnu::always_inline]] inline void add_segment(Float8Sums<V, kRows, kColumns>& tile, const char* a,
                                               int64_t a_row_bytes, const uint8_t* b, int64_t ldb,
                                               int64_t count) {
  int64_t k = 0;
  for (; k + V::kStep <= count; k += V::kStep, a += V::kStep * V::kABytes) {
    tile.add(
        a, a_row_bytes,
        [&](auto c, typename V::Operand* parts, typename V::Seen& seen)
            __attribute__((always_inline)) {
              const uint8_t* from = b + c * ldb + k;
              __builtin_prefetch(from + kColumns * ldb);
              V::decode(from, parts, seen);
            });
  }
  if (k < count) {
    const int left = static_cast<int>(count - k);
    tile.add(
        a, a_row_bytes,
        [&](auto c, typename V::Operand* parts, typename V::Seen& seen)
            __attribute__((always_inline)) { V::decode(b + c * ldb + k, left, parts, seen); });
  }
}

// Whether lanes may be scaled before they are summed: none of them overflows alone, none is rounded
// as a subnormal, and infinity does not meet the zero of a lane.
[[gnu::always_inline]] inline bool is_moderate(float scale) {
  const float magnitude = __builtin_fabsf(scale);
  return magnitude >= 0x1p-64f && magnitude <= 0x1p64f;
}

template <typename V, int kRows, int kColumns>
void multiply_float8(const Float8Kernels::Operands& o, float* sums, int64_t stride) {
  using Floats = typename V::Floats;
  const int64_t a_row_bytes = o.a_stride * V::kABytes;
  const auto* a = static_cast<const char*>(o.a);
  Float8Sums<V, kRows, kColumns> tile;
  tile.clear();
  if (o.scale_a == nullptr) {
    add_segment(tile, a, a_row_bytes, o.b, o.ldb, o.k);
    tile.finish(tile.sum, sums, stride);
    return;
  }
  Floats totals[kRows * kColumns];
  unroll<kRows * kColumns>([&](auto i) __attribute__((always_inline)) { totals[i] = V::zero(); });
  int64_t segment = 0;
  for (int64_t k = 0; k < o.k; k += o.segments.length, ++segment) {
    const int64_t count = o.segments.length < o.k - k ? o.segments.length : o.k - k;
    add_segment(tile, a, a_row_bytes, o.b + k, o.ldb, count);
    a += o.segments.padded * V::kABytes;
    unroll<kRows * kColumns>([&](auto i) __attribute__((always_inline)) {
      constexpr int kRow = i / kColumns, kColumn = i % kColumns;
      const float scale =
          o.scale_a[kRow * o.scale_a_stride + segment] * o.scale_b[kColumn][segment];
      if (is_moderate(scale)) {
        totals[i] = V::scaled_sum(tile.sum[i], scale, totals[i]);
      } else {
        alignas(16) float lanes[4];
        V::add_across(tile.sum[i], V::zero(), V::zero(), V::zero(), lanes);
        totals[i] = V::add_first(scale * lanes[0], totals[i]);
      }
    });
    tile.clear();
  }
  tile.finish(totals, sums, stride);
}

template <typename V, int kRows, int kColumns>
constexpr Float8Kernels::Shape float8_shape() {
  return {kColumns, multiply_float8<V, kRows, kColumns>, multiply_float8<V, kRows, 1>};
}

}  // namespace
}  // namespace mixed_gemm::cpu
