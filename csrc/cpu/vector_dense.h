// The dense kernels of cpu_kernels.h for any vector type V, and the tables. The unnamed namespace
// is explained in vector_kernels.h.
#pragma once
#include "cpu/vector_kernels.h"

namespace mixed_gemm::cpu {
namespace {

// The Fill of depth 1 makes real weights in fp32.
template <typename V, typename Weight>
void dequantize(const PackedColumns& b, const ColumnScales& scales, int64_t tile_begin,
                int64_t tile_end, void* to, int64_t stride) {
  using F = typename V::Floats;
  auto* panel = static_cast<float*>(to);
  int64_t group = tile_begin * kSegments / scales.segments_per_group;
  int64_t segments_left = (group + 1) * scales.segments_per_group - tile_begin * kSegments;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile, panel += kTileK * stride) {
    typename V::Words words[kTileK / WeightLayout<Weight>::kPerWord];
    V::template load_words<Weight>(b.first + tile * kTileBytes, b.group_stride, words);
    prefetch_ahead<V, Weight>(b, tile, b.group_stride / kTileBytes);
    unroll<kSegments>([&](auto segment) __attribute__((always_inline)) {
      const F scale = V::load(scales.scale + group * scales.stride);
      F subtrahend = V::zero(), addend = V::zero();
      if (scales.zero_mode != ZeroMode::kNone) {
        const F zero = V::load(scales.zero + group * scales.stride);
        (scales.zero_mode == ZeroMode::kSub ? subtrahend : addend) = zero;
      }
      for_each_weight<V, Weight, segment>(
          words, [&](auto k, F q) __attribute__((always_inline)) {
            V::store(panel + k * stride, V::fma(V::sub(q, subtrahend), scale, addend));
          });
      if (--segments_left == 0) {
        ++group;
        segments_left = scales.segments_per_group;
      }
    });
  }
}

// The Fills of depth 2 make pairs of what codes stand for, or of that times scales.
template <typename V, typename Weight, bool kScaled>
void decode(const PackedColumns& b, const ColumnScales& scales, int64_t tile_begin,
            int64_t tile_end, void* to, int64_t stride) {
  auto* panel = static_cast<uint32_t*>(to);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile, panel += kTileK / V::kDepth * stride) {
    typename V::Words words[kTileK / WeightLayout<Weight>::kPerWord];
    V::template load_words<Weight>(b.first + tile * kTileBytes, b.group_stride, words);
    prefetch_ahead<V, Weight>(b, tile, b.group_stride / kTileBytes);
    unroll<kSegments>([&](auto segment) __attribute__((always_inline)) {
      typename V::Floats scale;
      if constexpr (kScaled) {
        const int64_t group = (tile * kSegments + segment) / scales.segments_per_group;
        scale = V::load(scales.scale + group * scales.stride);
      }
      for_each_weight<V, Weight, segment>(
          words, [&](auto k, typename V::Operand q) __attribute__((always_inline)) {
            if constexpr (kScaled) q = V::scaled(q, scale);
            V::store_operand(panel + k / V::kDepth * stride, q);
          });
    });
  }
}

// The sums of kRows rows and one panel of columns, in registers.
template <typename V, int kRows>
struct PanelSums {
  using F = typename V::Floats;
  F sum[kRows][kUnitsPerPanel];

  template <typename Body>
  [[gnu::always_inline]] static void for_each(const Body& body) {
    unroll<kRows * kUnitsPerPanel>([&](auto i) __attribute__((always_inline)) {
      constexpr int kRow = i / kUnitsPerPanel, kUnit = i % kUnitsPerPanel;
      body(std::integral_constant<int, kRow>{}, std::integral_constant<int, kUnit>{});
    });
  }

  [[gnu::always_inline]] void clear() {
    for_each([&](auto r, auto u) __attribute__((always_inline)) { sum[r][u] = V::zero(); });
  }
  [[gnu::always_inline]] void load(const float* from, int64_t stride) {
    for_each([&](auto r, auto u) __attribute__((always_inline)) {
      sum[r][u] = V::load(from + r * stride + u * V::kLanes);
    });
  }
  [[gnu::always_inline]] void store(float* to, int64_t stride) const {
    for_each([&](auto r, auto u) __attribute__((always_inline)) {
      V::store(to + r * stride + u * V::kLanes, sum[r][u]);
    });
  }
  // Adds `count` words of K: a_stride words between two of A, kUnitsPerPanel * lanes between two of
  // W, which comes from L2: the prefetch took N = 1536, K = 384, M = 1024 from 105 to 113 GFLOP/s.
  [[gnu::always_inline]] void add_products(const uint32_t* a, int64_t a_stride, const uint32_t* w,
                                           int64_t count) {
    constexpr int kAhead = 16;
    for (; count > 0; --count, a += a_stride, w += kUnitsPerPanel * V::kLanes) {
      typename V::Operand columns[kUnitsPerPanel], x;
      for (int u = 0; u < kUnitsPerPanel; ++u) {
        __builtin_prefetch(w + (kAhead * kUnitsPerPanel + u) * V::kLanes);
      }
      for (int u = 0; u < kUnitsPerPanel; ++u) columns[u] = V::load_operand(w + u * V::kLanes);
      for_each([&](auto r, auto u) __attribute__((always_inline)) {
        if (u == 0) x = V::broadcast_operand(a + r);
        sum[r][u] = V::dot(columns[u], x, sum[r][u]);
      });
    }
  }
  // to (+)= s * (sum - z a) or s * sum + z a, rounded as fused() does; `a` holds the group's sums.
  [[gnu::always_inline]] void end_group(const ColumnScales& scales, int64_t group, const float* a,
                                        float* to, int64_t stride) const {
    const float* scale = scales.scale + group * scales.stride;
    const float* zero = scales.zero + group * scales.stride;
    for_each([&](auto r, auto u) __attribute__((always_inline)) {
      constexpr int64_t kColumn = u * V::kLanes;
      float* target = to + r * stride + kColumn;
      const F s = V::load(scale + kColumn), before = group == 0 ? V::zero() : V::load(target);
      F q_sum = sum[r][u];
      if (scales.zero_mode == ZeroMode::kAdd) {
        const F shift = V::mul(V::load(zero + kColumn), V::broadcast(a[r]));
        V::store(target, V::add(before, V::fma(q_sum, s, shift)));
        return;
      }
      if (scales.zero_mode == ZeroMode::kSub) {
        q_sum = V::fnma(V::load(zero + kColumn), V::broadcast(a[r]), q_sum);
      }
      V::store(target, V::fma(q_sum, s, before));
    });
  }
};

// Calls body(first row, sums) for blocks of rows whose sums fit in the registers.
template <typename V, int kRows, typename Body>
[[gnu::always_inline]] inline void for_each_row_block(const Body& body) {
  constexpr int kBlock = kRows < V::kDenseRows ? kRows : V::kDenseRows;
  for (int first = 0; first < kRows; first += kBlock) body(first, PanelSums<V, kBlock>{});
}

// The Multiply of depth 1.
template <typename V, int kRows>
void multiply(const ActivationRows& a, const PanelSlab& slab, float* c, float* /*open*/,
              int64_t stride) {
  for_each_row_block<V, kRows>([&](int first, auto sums) __attribute__((always_inline)) {
    if (slab.k_begin == 0) {
      sums.clear();
    } else {
      sums.load(c + first * stride, stride);
    }
    sums.add_products(static_cast<const uint32_t*>(a.values) + first, kRows,
                      static_cast<const uint32_t*>(slab.values), slab.k_end - slab.k_begin);
    sums.store(c + first * stride, stride);
  });
}

// The Multiply of depth 2 takes the sums of one group at a time.
template <typename V, int kRows>
void multiply_groups(const ActivationRows& a, const PanelSlab& slab, float* c, float* open,
                     int64_t stride) {
  const int64_t group_k = slab.scales.segments_per_group * kSegmentK;
  for_each_row_block<V, kRows>([&](int first, auto sums) __attribute__((always_inline)) {
    const auto* a_k = static_cast<const uint32_t*>(a.values) + first;
    const auto* w_k = static_cast<const uint32_t*>(slab.values);
    int64_t group = slab.k_begin / group_k;
    for (int64_t k = slab.k_begin; k < slab.k_end; ++group) {
      const int64_t group_end = (group + 1) * group_k;
      const int64_t end = group_end < slab.k_end ? group_end : slab.k_end;
      const int64_t count = (end - k + V::kDepth - 1) / V::kDepth;
      if (k == group * group_k) {
        sums.clear();
      } else {
        sums.load(open + first * stride, stride);
      }
      sums.add_products(a_k, kRows, w_k, count);
      a_k += count * kRows;
      w_k += count * kUnitsPerPanel * V::kLanes;
      k = end;
      if (end == group_end || slab.last) {
        sums.end_group(slab.scales, group, a.group_sums + group * kRows + first, c + first * stride,
                       stride);
      } else {
        sums.store(open + first * stride, stride);
      }
    }
  });
}

// The kernel of a weight type; null if these vectors do not decode it.
template <typename V, typename Weight, int kRows>
constexpr OperandKernels::Fused fused_of() {
  if constexpr (V::template kDecodes<Weight>) return fused<V, Weight, kRows>;
  return nullptr;
}
template <typename V, typename Weight>
constexpr DenseKernels::Fill fill_of() {
  if constexpr (!V::template kDecodes<Weight>) {
    return nullptr;
  } else if constexpr (V::kDepth == 1) {
    return dequantize<V, Weight>;
  } else {
    return decode<V, Weight, /*kScaled=*/false>;
  }
}
// Scales of 4-bit floats are of few bits by their formats.
template <typename V, typename Weight>
constexpr DenseKernels::Fill fill_scaled_of() {
  if constexpr (V::kDepth == 2 && std::is_same_v<Weight, E2M1>) {
    return decode<V, Weight, /*kScaled=*/true>;
  }
  return nullptr;
}
template <typename V, int kChoice, typename... Weights>
constexpr void set_fused(OperandKernels& kernels, WeightList<Weights...>) {
  ((kernels.fused[kChoice][static_cast<int>(Weights::kType)] =
        fused_of<V, Weights, (1 << kChoice)>()),
   ...);
}
template <typename V, typename... Weights>
constexpr void set_fill(DenseKernels& dense, WeightList<Weights...>) {
  ((dense.fill[static_cast<int>(Weights::kType)] = fill_of<V, Weights>()), ...);
  ((dense.fill_scaled[static_cast<int>(Weights::kType)] = fill_scaled_of<V, Weights>()), ...);
}

// The kernels for 1, 2, 4 .. V::kBlockRows rows.
template <typename V, int... kChoice>
constexpr OperandKernels make_operand_kernels(std::integer_sequence<int, kChoice...>) {
  static_assert(1 << (sizeof...(kChoice) - 1) == V::kBlockRows && V::kBlockRows <= kMaxRows);
  OperandKernels kernels = {{V::kDepth, V::kBlockRows, kVectorBlocking, {}, {}}, {}, {}};
  for (int weight = 0; weight < kNumWeights; ++weight) {
    kernels.max_fused_rows[weight] = V::kMaxFusedRows[weight];
  }
  (set_fused<V, kChoice>(kernels, WeightTypes()), ...);
  DenseKernels& dense = kernels.dense;
  set_fill<V>(dense, WeightTypes());
  if constexpr (V::kDepth == 1) {
    ((dense.multiply[kChoice] = multiply<V, (1 << kChoice)>), ...);
  } else {
    ((dense.multiply[kChoice] = multiply_groups<V, (1 << kChoice)>), ...);
  }
  return kernels;
}

template <typename V>
constexpr OperandKernels make_operand_kernels() {
  constexpr int kChoices = kRowChoices - (V::kBlockRows < kMaxRows);
  return make_operand_kernels<V>(std::make_integer_sequence<int, kChoices>{});
}

}  // namespace
}  // namespace mixed_gemm::cpu
