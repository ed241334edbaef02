// Decoding and the fused kernel of cpu_kernels.h for any vector type V (vector_avx2.h,
// vector_avx512.h, vector_bf16_pairs.h); vector_dense.h holds the dense kernels.
//
// V::Operand is a vector of words (cpu_kernels.h), V::kDepth the elements of K in each:
// V::decode<Weight, slot> makes one from packed words, V::dot multiplies two and adds to V::Floats.
//
// Everything here and in V sits in an unnamed namespace on purpose: this header is compiled with
// different -m flags in each kernels_*.cpp, and a template with external linkage would let the
// linker keep the AVX-512 copy for a machine that has only AVX2. For the same reason these files
// use no standard containers and call no inline function of ours outside a constant expression.
#pragma once
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cpu/cpu_kernels.h"
#include "cpu/vector_conversion.h"
#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm::cpu {
namespace {

template <typename Body, int... kIndex>
[[gnu::always_inline]] inline void unroll(std::integer_sequence<int, kIndex...>, const Body& body) {
  (body(std::integral_constant<int, kIndex>{}), ...);
}

// Calls body(0) to body(kCount - 1) with constants: arrays indexed by a variable stay in memory.
template <int kCount, typename Body>
[[gnu::always_inline]] inline void unroll(const Body& body) {
  unroll(std::make_integer_sequence<int, kCount>{}, body);
}

// Whether a template was specialised for its arguments.
template <typename T, typename = void>
constexpr bool kIsDefined = false;
template <typename T>
constexpr bool kIsDefined<T, std::void_t<decltype(sizeof(T))>> = true;

constexpr int kSegments = kTileK / kSegmentK;

// Where the 16 elements of a segment lie: element kI is row kK of the tile, in slot kSlot
// of word kWord of the tile. Ordered by word, so that a word is in a register for its slots.
template <typename Weight, int kSegment, int kI>
struct SegmentElement {
  using Layout = WeightLayout<Weight>;
  static constexpr int kQuad = kI / 4, kPair = kI % 4 / 2, kMember = kI % 2;
  static constexpr int kK = kSegment * kSegmentK + kPair * 8 + kQuad * 2 + kMember;
  static constexpr auto kPlace = Layout::place(0, kK, kTileK);
  static constexpr int kWord = static_cast<int>(kPlace.word), kSlot = kPlace.slot;
};

// A stored field u becomes a float without integer conversion: it goes into the mantissa of the
// power of two at which bit 0 of the field weighs 1, then that power and the bias are subtracted,
// exactly. Two neighbouring slots share one shift.
template <int kFieldBits, int kSlot>
struct MantissaField {
  static constexpr int kShift = kSlot / 2 * 2 * kFieldBits, kPosition = kSlot % 2 * kFieldBits;
  static constexpr int kMask = ((1 << kFieldBits) - 1) << kPosition;
  static constexpr int kBits = (127 + 23 - kPosition) << 23;
  static_assert(kPosition + kFieldBits <= 23, "the field must lie in the mantissa");
  static constexpr float kSubtrahend =
      static_cast<float>((1 << (23 - kPosition)) + (1 << (kFieldBits - 1)));
};

// Half a tile: its two segments, in the first half of the tile's words or in the second.
constexpr int kHalfSegments = kSegments / 2, kHalfK = kTileK / 2;
template <typename Weight>
struct HalfTile {
  static constexpr int kWords = kHalfK / WeightLayout<Weight>::kPerWord;

  template <int kSegment, int kI>
  static constexpr bool alike() {
    using First = SegmentElement<Weight, kSegment, kI>;
    using Second = SegmentElement<Weight, kSegment + kHalfSegments, kI>;
    return Second::kWord == First::kWord + kWords && Second::kSlot == First::kSlot &&
           Second::kK == First::kK + kHalfK;
  }
  template <int... kI>
  static constexpr bool alike(std::integer_sequence<int, kI...>) {
    return (alike<kI / kSegmentK, kI % kSegmentK>() && ...);
  }
  static_assert(alike(std::make_integer_sequence<int, kHalfK>{}), "halves differ in words only");
};

// Calls body(k, w) with the decoded words of one segment; k is a constant, 0 to 63 in the tile.
template <typename V, typename Weight, int kSegment, typename Body>
[[gnu::always_inline]] inline void for_each_weight(const typename V::Words* words,
                                                   const Body& body) {
  unroll<kSegmentK / V::kDepth>([&](auto i) __attribute__((always_inline)) {
    using Element = SegmentElement<Weight, kSegment, i * V::kDepth>;
    body(std::integral_constant<int, Element::kK>{},
         V::template decode<Weight, Element::kSlot>(words[Element::kWord]));
  });
}

// Prefetches the tile 8 KB of the unit ahead in each column group, at the end of the columns the
// first tiles of the next unit: the hardware prefetcher starts cold there. M = 1, 4096 x 4096, four
// tiles ahead, one thread of a Cascade Lake: int4 1.13 -> 0.96 ms, int8 1.78 -> 1.54 ms; without
// the wrap at the end 1.08 and 1.70. Two threads of a Zen 5 then took 0.21 and 0.29 ms, 8 KB ahead
// 0.15 and 0.29.
template <typename V, typename Weight>
[[gnu::always_inline]] inline void prefetch_ahead(const PackedColumns& b, int64_t tile,
                                                  int64_t tiles) {
  constexpr int kAhead = 64 / Weight::kBits,
                kGroups = V::kLanes / WeightLayout<Weight>::kInterleave;
  const int64_t to_next_unit = tile + kAhead < tiles ? 0 : (kGroups - 1) * b.group_stride;
  const uint8_t* ahead = b.first + (tile + kAhead) * kTileBytes + to_next_unit;
  for (int i = 0; i < kGroups; ++i, ahead += b.group_stride) {
    __builtin_prefetch(ahead);
    __builtin_prefetch(ahead + 64);
  }
}

// More rows loop over the halves of a tile, which keeps the code small: with bodies of 13 to 24 KB
// two of some twenty copies of the library took twice their time, by where they lay in physical
// memory (Zen 5). Up to 4 rows the loop would cost 5 to 10 %.
constexpr int kMaxUnrolledRows = 4;

template <typename V, typename Weight, int kRows>
void fused(const PackedColumns& b, const ColumnScales& scales, const ActivationRows& a,
           int64_t tiles, float* out) {
  using F = typename V::Floats;
  // There are enough independent chains to cover the latency of a dot product, at 2 per cycle.
  constexpr int kMost = 8, kEnough = (V::kChains + kRows - 1) / kRows;
  constexpr int kChains = kEnough < kMost ? kEnough : kMost;
  F sum[kRows * kChains], total[kRows];
  const auto clear_sums = [&]() __attribute__((always_inline)) {
    unroll<kRows * kChains>([&](auto i) __attribute__((always_inline)) { sum[i] = V::zero(); });
  };
  clear_sums();
  unroll<kRows>([&](auto r) __attribute__((always_inline)) { total[r] = V::zero(); });

  int64_t group = 0;
  // total += s * (sum(q a) - z sum(a)) or s * sum(q a) + z sum(a), in an order that leaves one
  // rounding when `a` is one-hot: reading a weight back gives dequantize's bits.
  const auto end_group = [&]() __attribute__((always_inline)) {
    const F s = V::load(scales.scale + group * scales.stride);
    const float* zero = scales.zero + group * scales.stride;
    const float* a_sums = a.group_sums + group * kRows;
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      F q_sum = sum[r * kChains];
      const auto add = [&](auto i) __attribute__((always_inline)) {
        q_sum = V::add(q_sum, sum[r * kChains + 1 + i]);
      };
      unroll<kChains - 1>(add);
      if (scales.zero_mode == ZeroMode::kSub) {
        q_sum = V::fnma(V::load(zero), V::broadcast(a_sums[r]), q_sum);
      }
      if (scales.zero_mode == ZeroMode::kAdd) {
        const F offset = V::mul(V::load(zero), V::broadcast(a_sums[r]));
        total[r] = V::add(total[r], V::fma(q_sum, s, offset));
      } else {
        total[r] = V::fma(q_sum, s, total[r]);
      }
    });
    clear_sums();
    ++group;
  };

  int64_t segments_left = scales.segments_per_group;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    typename V::Words words[kTileK / WeightLayout<Weight>::kPerWord];
    V::template load_words<Weight>(b.first + tile * kTileBytes, b.group_stride, words);
    prefetch_ahead<V, Weight>(b, tile, tiles);
    const auto* a_half = static_cast<const uint32_t*>(a.values) + tile * kTileK / V::kDepth * kRows;
    const auto add_half = [&](int half) __attribute__((always_inline)) {
      const auto add_segment = [&](auto segment) __attribute__((always_inline)) {
        const auto add = [&](auto k, typename V::Operand w) __attribute__((always_inline)) {
          constexpr int kWord = k / V::kDepth;
          unroll<kRows>([&](auto r) __attribute__((always_inline)) {
            F& chain = sum[r * kChains + kWord % kChains];
            chain = V::dot_word(w, a_half + kWord * kRows + r, chain);
          });
        };
        for_each_weight<V, Weight, segment>(words + half * HalfTile<Weight>::kWords, add);
        if (--segments_left > 0) return;
        end_group();
        segments_left = scales.segments_per_group;
      };
      unroll<kHalfSegments>(add_segment);
      a_half += kHalfK / V::kDepth * kRows;
    };
    if constexpr (kRows <= kMaxUnrolledRows) {
      add_half(0);
      add_half(1);
    } else {
      for (int half = 0; half < 2; ++half) add_half(half);
    }
  }
  if (segments_left != scales.segments_per_group) end_group();
  unroll<kRows>([&](auto r)
                    __attribute__((always_inline)) { V::store(out + r * V::kLanes, total[r]); });
}

}  // namespace
}  // namespace mixed_gemm::cpu
