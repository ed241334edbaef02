// Values that every part of one CPU call derives from its GemmProblem: padded sizes, groups,
// pointers into the packed weight, and the fp32 copies of scales, zeros and bias.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/aligned_buffer.h"
#include "cpu/cpu_kernels.h"
#include "layout/weight_layout.h"
#include "problem/gemm.h"

namespace mixed_gemm::cpu {

inline int64_t element_bytes(ElementType element) {
  return element == ElementType::kFloat32 ? 4 : 2;
}

// The significant bits of the numbers of a weight type, at most.
template <typename Weight>
constexpr int significant_bits() {
  int most = 0;
  for (uint32_t code = 0; code < 1u << Weight::kBits; ++code) {
    float number = Weight::value(code) < 0 ? -Weight::value(code) : Weight::value(code);
    if (number == 0) continue;
    for (; number < 1; number *= 2) {
    }
    for (; number >= 2; number /= 2) {
    }
    int bits = 1;
    for (number -= 1; number != 0; ++bits) {
      number *= 2;
      if (number >= 1) number -= 1;
    }
    most = bits > most ? bits : most;
  }
  return most;
}
template <typename... Weights>
constexpr OfWeights<int> significant_bits(WeightList<Weights...>) {
  return {{significant_bits<Weights>()...}};
}
constexpr OfWeights<int> kSignificantBits = significant_bits(WeightTypes());
constexpr int kBf16Bits = 8;  // significant ones
constexpr bool fits_bf16(WeightType type) {
  return kSignificantBits.items[static_cast<int>(type)] <= kBf16Bits;
}

struct CallShape {
  CallShape(const GemmProblem& problem, const CpuKernels& kernel_table)
      : p(problem),
        kernels(kernel_table),
        operands(operands_for(problem, kernel_table)),
        tiles(ceil_div(p.k, kPadK)) {
    const int64_t segments = tiles * (kTileK / kSegmentK);
    // One group over all of K may have any size; every other size is a multiple of a segment.
    const bool one_group = p.scheme.scales.group >= p.k;
    segments_per_group =
        one_group ? std::max<int64_t>(1, segments) : p.scheme.scales.group / kSegmentK;
    groups = p.k == 0 ? 0 : one_group ? 1 : num_groups(p);
    groups_pad = std::max<int64_t>(1, ceil_div(segments, segments_per_group));
  }

  // Whether a weight may be made of pairs of bf16: where bf16 has its numbers, or activations of
  // bf16 let them be rounded.
  static bool takes_pairs(const GemmProblem& p, const DenseKernels& kernels) {
    return kernels.decodes(p.scheme.weight) &&
           (fits_bf16(p.scheme.weight) || p.element == ElementType::kBFloat16);
  }

  // The kernels for the operands. bf16 times pre_scale is no bf16, so such a product needs fp32.
  static const OperandKernels& operands_for(const GemmProblem& p, const CpuKernels& kernels) {
    const bool pairs = kernels.bf16_pairs && p.element == ElementType::kBFloat16 && !p.pre_scale &&
                       takes_pairs(p, kernels.bf16_pairs->dense);
    return pairs ? *kernels.bf16_pairs : kernels.fp32;
  }

  int depth() const { return operands.dense.depth; }
  int weight() const { return static_cast<int>(p.scheme.weight); }  // in tables of kernels
  int64_t units() const { return ceil_div(p.n, kernels.lanes); }

  // Columns [unit * lanes, ...) of the packed weight.
  PackedColumns columns(int64_t unit) const {
    const int64_t column_bytes = tiles * kTileK * bits_of(p.scheme.weight) / 8;
    return {p.b_packed + unit * kernels.lanes * column_bytes, tiles * kTileBytes};
  }

  // Iterations of `work` multiply-adds each that are worth a task of their own: about 10 us. With
  // 20 us one row by 576 x 576 ran on one thread, int4 24 us and int8 31; on two it is 19 and 20.
  static int64_t grain(int64_t work) {
    return std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(1, work));
  }

  const GemmProblem& p;
  const CpuKernels& kernels;
  const OperandKernels& operands;
  int64_t tiles;               // of 64 elements of K
  int64_t segments_per_group;  // of 16 elements of K
  int64_t groups;              // that exist in scales
  int64_t groups_pad;          // that padded K touches; the rest have scale and zero 0
};

// Scales and zeros of a few neighbouring units of columns in fp32; one per thread.
class UnitScales {
 public:
  UnitScales(const CallShape& shape, int64_t max_units)
      : shape_(shape), values_(2 * shape.groups_pad * max_units * shape.kernels.lanes) {}

  void load(int64_t unit_begin, int64_t unit_end) {
    first_unit_ = unit_begin;
    stride_ = (unit_end - unit_begin) * shape_.kernels.lanes;
    fill(shape_.p.scales, values_.data());
    if (shape_.p.scheme.scales.zeros != ZeroMode::kNone) fill(shape_.p.zeros, zeros());
  }

  // Whether each scale times each number of the weight type is one of bf16, and none is so small or
  // so large that a product with an activation is lost that would not be without it.
  bool make_pairs() const {
    constexpr uint32_t kSign = 0x80000000u;
    constexpr uint32_t kLeast = (127 - 60) << 23, kMost = (127 + 60) << 23;  // 2^-60, 2^60
    const int spare = kBf16Bits - kSignificantBits.items[shape_.weight()];
    if (spare < 1) return false;
    const uint32_t rest = (1u << (24 - spare)) - 1;
    uint32_t more = 0, outside = 0;
    for (int64_t i = 0; i < shape_.groups_pad * stride_; ++i) {
      uint32_t scale;
      std::memcpy(&scale, values_.data() + i, sizeof scale);
      scale &= ~kSign;
      more |= scale & rest;
      outside |= static_cast<uint32_t>(scale != 0) &
                 static_cast<uint32_t>(scale - kLeast > kMost - kLeast);
    }
    return more == 0 && outside == 0;
  }

  ColumnScales at(int64_t unit) const {
    const int64_t offset = (unit - first_unit_) * shape_.kernels.lanes;
    return {values_.data() + offset, zeros() + offset, stride_, shape_.segments_per_group,
            shape_.p.scheme.scales.zeros};
  }

 private:
  float* zeros() const { return values_.data() + shape_.groups_pad * stride_; }

  void fill(const void* source, float* to) {
    const GemmProblem& p = shape_.p;
    const int64_t first = first_unit_ * shape_.kernels.lanes;
    const int64_t count = std::min(stride_, p.n - first);
    const int64_t begin = count < stride_ ? 0 : shape_.groups * stride_;
    std::fill(to + begin, to + shape_.groups_pad * stride_, 0.f);
    if (shape_.groups == 0) return;  // k = 0
    const char* from = static_cast<const char*>(source) + first * element_bytes(p.element);
    shape_.kernels.to_float({p.element, from, p.scale_stride}, shape_.groups, count, to, stride_);
  }

  const CallShape& shape_;
  AlignedBuffer values_;
  int64_t first_unit_ = 0, stride_ = 0;
};

}  // namespace mixed_gemm::cpu
