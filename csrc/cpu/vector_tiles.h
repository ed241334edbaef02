// The tile kernels of cpu_kernels.h. T holds the tile instructions: AMX in kernels_avx512_amx.cpp,
// its emulation in the tests, so that all around them is tested on any AVX-512 machine. See
// vector_kernels.h for the unnamed namespace.
//
// C = A B of up to 32 rows and 32 columns stays in four tile registers for one group of K; two hold
// A, two B. A register of B takes 16 rows of the slab as they are: 16 columns of bf16 pairs.
#pragma once
#include "cpu/vector_bf16_pairs.h"
#include "cpu/vector_dense.h"

namespace mixed_gemm::cpu {
namespace {

constexpr int kTileColumns = kUnitsPerPanel * Avx512::kLanes;
constexpr int kTileRowBytes = 64, kTileRegisterBytes = kTileRows * kTileRowBytes;

// The registers: C of row tile r, column tile u is 2 r + u.
constexpr int kTileA = 4, kTileB = 6;

// An odd number of segments ends between the two segments of a register: half of it is used then.
constexpr int tile_step(int64_t segments_per_group) {
  return segments_per_group % 2 == 0 ? kTileStep : kSegmentK;
}

template <typename T>
void begin_tiles(int64_t segments_per_group) {
  T::configure(tile_step(segments_per_group));
}

template <typename T, int kRowTiles, typename Body>
[[gnu::always_inline]] inline void for_each_sum(const Body& body) {
  unroll<2 * kRowTiles>([&](auto i) __attribute__((always_inline)) {
    body(i, i / 2 * kTileRows, i % 2 * Avx512::kLanes);
  });
}

template <typename T, int kRowTiles>
void multiply_tiles(const ActivationRows& a, const PanelSlab& slab, float* c, float* open,
                    int64_t stride) {
  constexpr int kRows = kRowTiles * kTileRows, kRowsPerSum = 4;
  constexpr int64_t kPanelBytes = kTileColumns * 4;  // between pairs of K
  const int64_t group_k = slab.scales.segments_per_group * kSegmentK;
  const int step = tile_step(slab.scales.segments_per_group);
  const auto* b = static_cast<const char*>(slab.values);
  const auto* a_values = static_cast<const char*>(a.values);
  alignas(64) float sums[kRows * kTileColumns];
  int64_t group = slab.k_begin / group_k;
  for (int64_t k = slab.k_begin; k < slab.k_end; ++group) {
    const int64_t group_end = (group + 1) * group_k;
    const int64_t end = group_end < slab.k_end ? group_end : slab.k_end;
    if (k == group * group_k) {
      for_each_sum<T, kRowTiles>([](auto i, int, int)
                                     __attribute__((always_inline)) { T::template zero<i>(); });
    } else {
      for_each_sum<T, kRowTiles>([&](auto i, int row, int column) __attribute__((always_inline)) {
        T::template load<i>(open + row * stride + column, stride * 4);
      });
    }
    for (; k < end; k += step) {
      const int64_t done = k - slab.k_begin;
      const char* b_step = b + done / 2 * kPanelBytes;
      T::template load<kTileB>(b_step, kPanelBytes);
      T::template load<kTileB + 1>(b_step + kTileRowBytes, kPanelBytes);
      const char* a_step = a_values + done / kTileStep * a.parts * kRowTiles * kTileRegisterBytes +
                           done % kTileStep * 2;
      for (int part = 0; part < a.parts; ++part, a_step += kRowTiles * kTileRegisterBytes) {
        unroll<kRowTiles>([&](auto r) __attribute__((always_inline)) {
          T::template load<kTileA + r>(a_step + r * kTileRegisterBytes, kTileRowBytes);
          T::template dot<2 * r, kTileA + r, kTileB>();
          T::template dot<2 * r + 1, kTileA + r, kTileB + 1>();
        });
      }
    }
    k = end;
    const bool complete = end == group_end || slab.last;
    float* to = complete ? sums : open;
    const int64_t to_stride = complete ? kTileColumns : stride;
    for_each_sum<T, kRowTiles>([&](auto i, int row, int column) __attribute__((always_inline)) {
      T::template store<i>(to + row * to_stride + column, to_stride * 4);
    });
    if (!complete) continue;
    for (int row = 0; row < a.real_rows; row += kRowsPerSum) {
      PanelSums<Avx512, kRowsPerSum> of_rows;
      of_rows.load(sums + row * kTileColumns, kTileColumns);
      of_rows.end_group(slab.scales, group, a.group_sums + group * kRows + row, c + row * stride,
                        stride);
    }
  }
}

// Parts are truncated, so that the rest has 8 bits less and no part can overflow. Infinities and
// NaNs are all in the first part. Below 2^-110 the last part may be subnormal, which the
// instruction takes for zero.
inline void split_row(const float* from, int64_t count, int parts, uint16_t* to,
                      int64_t part_stride) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  constexpr int kInfinityOrNan = 0x99;  // VFPCLASSPS: quiet NaN, both infinities, signaling NaN
  for (int64_t k = 0; k < count; k += kTileStep, to += parts * part_stride) {
    for (int half = 0; half < 2; ++half) {
      __m512 rest = _mm512_loadu_ps(from + k + half * Avx512::kLanes);
      for (int part = 0; part < parts; ++part) {
        const __m512i bits = _mm512_castps_si512(rest);
        const __mmask16 nan = _mm512_cmp_ps_mask(rest, rest, _CMP_UNORD_Q);
        const __m512i quiet = _mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(0x400000));
        const __m512i first = _mm512_and_si512(quiet, high);
        _mm256_storeu_si256(
            reinterpret_cast<__m256i*>(to + part * part_stride + half * Avx512::kLanes),
            _mm512_cvtepi32_epi16(_mm512_srli_epi32(first, 16)));
        const __m512 value = _mm512_castsi512_ps(first);
        const __mmask16 finite = ~_mm512_fpclass_ps_mask(value, kInfinityOrNan);
        rest = _mm512_maskz_sub_ps(finite, rest, value);
      }
    }
  }
}

// Sums in double and rounds once; ActivationPanel::fill_group_sums() says why.
inline void sum_groups_of_row(const uint16_t* from, int64_t k_pad, int parts, int64_t part_stride,
                              int64_t segments_per_group, float* sums, int64_t stride) {
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
  int64_t left = segments_per_group;
  for (int64_t k = 0; k < k_pad; k += kSegmentK) {
    const uint16_t* at = from + k / kTileStep * parts * part_stride + k % kTileStep;
    __m512 values = _mm512_setzero_ps();
    for (int part = parts - 1; part >= 0; --part) {  // exact: these are the parts of a float
      values =
          _mm512_add_ps(values, Avx512::widen<ElementType::kBFloat16>(at + part * part_stride));
    }
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(values)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1)));
    if (--left > 0 && k + kSegmentK < k_pad) continue;
    *sums = static_cast<float>(_mm512_reduce_add_pd(_mm512_add_pd(low, high)));
    sums += stride;
    low = high = _mm512_setzero_pd();
    left = segments_per_group;
  }
}

template <typename T>
constexpr TileKernels make_tile_kernels() {
  using Pairs = Bf16Pairs<void>;  // decoded here, multiplied by T
  TileKernels kernels = {
      {Pairs::kDepth, 2 * kTileRows, T::kWide, {}, {multiply_tiles<T, 1>, multiply_tiles<T, 2>}},
      T::kNarrowBytes,
      {},
      {},
      begin_tiles<T>,
      T::release,
      split_row,
      sum_groups_of_row};
  set_fill<Pairs>(kernels.dense, WeightTypes());
  for (int weight = 0; weight < kNumWeights; ++weight) {
    kernels.narrow[weight] = T::kNarrow[weight];
    kernels.min_rows[weight] = T::kMinRows[weight];
  }
  return kernels;
}

}  // namespace
}  // namespace mixed_gemm::cpu
