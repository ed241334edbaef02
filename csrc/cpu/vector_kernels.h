// Decoding and the fused kernel of cpu_kernels.h for any vector type V (vector_avx2.h,
// vector_avx512.h, vector_bf16_pairs.h); vector_dense.h holds the dense kernels.
//
// V::Operand is a vector of words (cpu_kernels.h), V::kDepth the elements of K in each:
// V::decode<bits, slot> makes one from packed words, V::dot multiplies two and adds to V::Floats.
//
// Everything here and in V sits in an unnamed namespace on purpose: this header is compiled with
// different -m flags in each kernels_*.cpp, and a template with external linkage would let the
// linker keep the AVX-512 copy for a machine that has only AVX2. For the same reason these files
// use no standard containers and call no inline function of ours outside a constant expression.
#pragma once
#include <cstdint>
#include <utility>

#include "cpu/cpu_kernels.h"
#include "cpu/vector_conversion.h"
#include "layout/weight_layout.h"

namespace mixed_gemm::cpu {
namespace {

template <typename Body, int... kIndex>
[[gnu::always_inline]] inline void unroll(std::integer_sequence<int, kIndex...>, const Body& body) {
  (body(std::integral_constant<int, kIndex>{}), ...);
}

constexpr int kSegments = kTileK / kSegmentK;
using SegmentIndices = std::make_integer_sequence<int, kSegments>;

// Where the 16 elements of a segment lie: element kI is row kK of the tile, in slot kSlot
// of word kWord of the tile. Ordered by word, so that a word is in a register for its slots.
template <int kBits, int kSegment, int kI>
struct SegmentElement {
  using Layout = WeightLayout<kBits>;
  static constexpr int kQuad = kI / 4, kPair = kI % 4 / 2, kMember = kI % 2;
  static constexpr int kK = kSegment * kSegmentK + kPair * 8 + kQuad * 2 + kMember;
  static constexpr auto kPlace = Layout::place(0, kK, kTileK);
  static constexpr int kWord = static_cast<int>(kPlace.word), kSlot = kPlace.slot;
};

// A stored field u as a float without integer conversion: put it into the mantissa of the power of
// two at which bit 0 of the field weighs 1, then subtract that power and the bias, exactly. Two
// neighbouring slots share one shift.
template <int kFieldBits, int kSlot>
struct MantissaField {
  static constexpr int kShift = kSlot / 2 * 2 * kFieldBits, kPosition = kSlot % 2 * kFieldBits;
  static constexpr int kMask = ((1 << kFieldBits) - 1) << kPosition;
  static constexpr int kBits = (127 + 23 - kPosition) << 23;
  static_assert(kPosition + kFieldBits <= 23, "the field must lie in the mantissa");
  static constexpr float kSubtrahend =
      static_cast<float>((1 << (23 - kPosition)) + (1 << (kFieldBits - 1)));
};

// body(k, w): the decoded words of one segment; k is a constant, 0 to 63 in the tile.
template <typename V, int kBits, int kSegment, typename Body>
[[gnu::always_inline]] inline void for_each_weight(const typename V::Words* words,
                                                   const Body& body) {
  unroll(
      std::make_integer_sequence<int, kSegmentK / V::kDepth>{}, [&](auto i) __attribute__((
                                                                    always_inline)) {
        using Element = SegmentElement<kBits, kSegment, i * V::kDepth>;
        body(std::integral_constant<int, Element::kK>{},
             V::template decode<kBits, Element::kSlot>(words[Element::kWord]));
      });
}

// The tile four ahead in each column group, at the end of the columns the first tiles of the next
// unit: the hardware prefetcher starts cold there. M = 1, 4096 x 4096, one thread of a Cascade
// Lake: int4 1.13 -> 0.96 ms, int8 1.78 -> 1.54 ms; without the wrap at the end 1.08 and 1.70.
template <typename V, int kBits>
[[gnu::always_inline]] inline void prefetch_ahead(const PackedColumns& b, int64_t tile,
                                                  int64_t tiles) {
  constexpr int kAhead = 4, kGroups = V::kLanes / WeightLayout<kBits>::kInterleave;
  const int64_t to_next_unit = tile + kAhead < tiles ? 0 : (kGroups - 1) * b.group_stride;
  const uint8_t* ahead = b.first + (tile + kAhead) * kTileBytes + to_next_unit;
  for (int i = 0; i < kGroups; ++i, ahead += b.group_stride) {
    __builtin_prefetch(ahead);
    __builtin_prefetch(ahead + 64);
  }
}

template <typename V, int kBits, int kRows>
void fused(const PackedColumns& b, const ColumnScales& scales, const ActivationRows& a,
           int64_t tiles, float* out) {
  using F = typename V::Floats;
  // Enough independent chains to cover the latency of an fma: 4 cycles at 2 per cycle.
  constexpr int kChains = kRows >= 8 ? 1 : kRows >= 4 ? 2 : 4;
  F sum[kRows][kChains], total[kRows];
  const auto clear = [&]() __attribute__((always_inline)) {
    for (auto& row : sum) {
      for (F& chain : row) chain = V::zero();
    }
  };
  clear();
  for (F& row : total) row = V::zero();

  int64_t group = 0;
  // total += s * (sum(q a) - z sum(a)) or s * sum(q a) + z sum(a), in an order that leaves one
  // rounding when `a` is one-hot: reading a weight back gives dequantize's bits.
  const auto end_group = [&]() __attribute__((always_inline)) {
    const F s = V::load(scales.scale + group * scales.stride);
    const float* zero = scales.zero + group * scales.stride;
    for (int r = 0; r < kRows; ++r) {
      F q_sum = sum[r][0];
      for (int chain = 1; chain < kChains; ++chain) q_sum = V::add(q_sum, sum[r][chain]);
      if (scales.zero_mode == ZeroMode::kSub) {
        q_sum = V::fnma(V::load(zero), V::broadcast(a.group_sums[group * kRows + r]), q_sum);
      }
      if (scales.zero_mode == ZeroMode::kAdd) {
        const F offset = V::mul(V::load(zero), V::broadcast(a.group_sums[group * kRows + r]));
        total[r] = V::add(total[r], V::fma(q_sum, s, offset));
      } else {
        total[r] = V::fma(q_sum, s, total[r]);
      }
    }
    clear();
    ++group;
  };

  int64_t segments_left = scales.segments_per_group;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    typename V::Words words[kTileK / WeightLayout<kBits>::kPerWord];
    V::template load_words<kBits>(b.first + tile * kTileBytes, b.group_stride, words);
    prefetch_ahead<V, kBits>(b, tile, tiles);
    const auto* a_tile = static_cast<const uint32_t*>(a.values) + tile * kTileK / V::kDepth * kRows;
    unroll(
        SegmentIndices{}, [&](auto segment) __attribute__((always_inline)) {
          for_each_weight<V, kBits, segment>(
              words, [&](auto k, typename V::Operand w) __attribute__((always_inline)) {
                constexpr int kWord = k / V::kDepth;
                for (int r = 0; r < kRows; ++r) {
                  F& chain = sum[r][kWord % kChains];
                  chain = V::dot(w, V::broadcast_operand(a_tile + kWord * kRows + r), chain);
                }
              });
          if (--segments_left == 0) {
            end_group();
            segments_left = scales.segments_per_group;
          }
        });
  }
  if (segments_left != scales.segments_per_group) end_group();
  for (int r = 0; r < kRows; ++r) V::store(out + r * V::kLanes, total[r]);
}

}  // namespace
}  // namespace mixed_gemm::cpu
