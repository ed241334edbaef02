// The readable reference: plain C++ for any machine. A tile is decoded word by word with the map of
// weight_layout.h; everything after that is a loop over [k][lane].
#include <cmath>
#include <cstring>

#include "core/half_arithmetic.h"
#include "cpu/cpu_kernels.h"
#include "cpu/float8_portable.h"
#include "cpu/integer_portable.h"
#include "cpu/vector_gate.h"
#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm::cpu {
namespace {

constexpr int kLanes = 8;
constexpr int kGateLanes = 4;  // of vectors that every machine has
constexpr int kBlockRows = 8;
constexpr int kDenseColumns = kUnitsPerPanel * kLanes;

// Decodes a 64 x kLanes tile: q[k * kLanes + lane] is the number that a code stands for.
template <typename Weight>
void decode_tile(const uint8_t* tile, int64_t group_stride, float* q) {
  using Layout = WeightLayout<Weight>;
  constexpr int kWords = kTileK / Layout::kPerWord;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint8_t* column =
        tile + lane / Layout::kInterleave * group_stride + lane % Layout::kInterleave * kWords * 4;
    for (int word = 0; word < kWords; ++word) {
      uint32_t bits;
      std::memcpy(&bits, column + 4 * word, 4);
      for (int slot = 0; slot < Layout::kPerWord; ++slot) {
        const auto k = Layout::element(word, slot, kTileK).k;
        q[k * kLanes + lane] = Weight::value(Places<Weight>::gather(bits, slot));
      }
    }
  }
}

template <typename Weight, int kRows>
void fused(const PackedColumns& b, const ColumnScales& scales, const ActivationRows& a,
           int64_t tiles, float* out) {
  const int64_t segments = tiles * (kTileK / kSegmentK);
  const auto* values = static_cast<const float*>(a.values);
  float q[kTileK * kLanes], sum[kRows * kLanes] = {};
  std::memset(out, 0, sizeof(sum));
  for (int64_t segment = 0; segment < segments; ++segment) {
    const int64_t k_in_tile = segment * kSegmentK % kTileK;
    if (k_in_tile == 0) {
      decode_tile<Weight>(b.first + segment * kSegmentK / kTileK * kTileBytes, b.group_stride, q);
    }
    for (int k = 0; k < kSegmentK; ++k) {
      for (int r = 0; r < kRows; ++r) {
        const float x = values[(segment * kSegmentK + k) * kRows + r];
        const float* weights = q + (k_in_tile + k) * kLanes;
        for (int j = 0; j < kLanes; ++j) sum[r * kLanes + j] += x * weights[j];
      }
    }
    const bool group_ends = (segment + 1) % scales.segments_per_group == 0;
    if (!group_ends && segment + 1 < segments) continue;

    const int64_t group = segment / scales.segments_per_group;
    const float* s = scales.scale + group * scales.stride;
    const float* z = scales.zero + group * scales.stride;
    for (int i = 0; i < kRows * kLanes; ++i) {
      const int r = i / kLanes, j = i % kLanes;
      switch (scales.zero_mode) {
        case ZeroMode::kNone:
          out[i] += sum[i] * s[j];
          break;
        case ZeroMode::kSub:
          out[i] += (sum[i] - z[j] * a.group_sums[group * kRows + r]) * s[j];
          break;
        case ZeroMode::kAdd:
          out[i] += sum[i] * s[j] + z[j] * a.group_sums[group * kRows + r];
          break;
      }
      sum[i] = 0;
    }
  }
}

template <typename Weight>
void dequantize(const PackedColumns& b, const ColumnScales& scales, int64_t tile_begin,
                int64_t tile_end, void* to, int64_t stride) {
  auto* panel = static_cast<float*>(to);
  float q[kTileK * kLanes];
  for (int64_t tile = tile_begin; tile < tile_end; ++tile, panel += kTileK * stride) {
    decode_tile<Weight>(b.first + tile * kTileBytes, b.group_stride, q);
    for (int k = 0; k < kTileK; ++k) {
      const int64_t group = (tile * kTileK + k) / kSegmentK / scales.segments_per_group;
      const float* s = scales.scale + group * scales.stride;
      const float* z = scales.zero + group * scales.stride;
      for (int j = 0; j < kLanes; ++j) {
        const float value = q[k * kLanes + j];
        float& w = panel[k * stride + j];
        switch (scales.zero_mode) {
          case ZeroMode::kNone:
            w = value * s[j];
            break;
          case ZeroMode::kSub:
            w = (value - z[j]) * s[j];
            break;
          case ZeroMode::kAdd:
            w = value * s[j] + z[j];
            break;
        }
      }
    }
  }
}

template <int kRows>
void multiply(const ActivationRows& rows, const PanelSlab& slab, float* c, float* /*open*/,
              int64_t stride) {
  const auto* a = static_cast<const float*>(rows.values);
  const auto* w = static_cast<const float*>(slab.values);
  float sum[kRows][kDenseColumns] = {};
  for (int r = 0; r < kRows && slab.k_begin > 0; ++r) {
    std::memcpy(sum[r], c + r * stride, sizeof(sum[r]));
  }
  for (int64_t k = slab.k_begin; k < slab.k_end; ++k, a += kRows, w += kDenseColumns) {
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kDenseColumns; ++j) sum[r][j] += a[r] * w[j];
    }
  }
  for (int r = 0; r < kRows; ++r) std::memcpy(c + r * stride, sum[r], sizeof(sum[r]));
}

float widen(ElementType element, const char* p) {
  if (element == ElementType::kFloat32) {
    float x;
    std::memcpy(&x, p, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return static_cast<float>(element == ElementType::kFloat16 ? decode<Half>(bits)
                                                             : decode<BFloat16>(bits));
}

void to_float(const FloatRows& from, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  const int64_t bytes = from.element == ElementType::kFloat32 ? 4 : 2;
  const auto* source = static_cast<const char*>(from.data);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      to[i * to_stride + j] = widen(from.element, source + (i * from.stride + j) * bytes);
    }
  }
}

void from_float(const float* from, int64_t count, ElementType element, void* to) {
  if (element == ElementType::kFloat32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t j = 0; j < count; ++j) {
    const uint16_t bits =
        element == ElementType::kFloat16 ? encode<Half>(from[j]) : encode<BFloat16>(from[j]);
    std::memcpy(static_cast<char*>(to) + 2 * j, &bits, 2);
  }
}

void add_multiple(const float* from, int64_t count, float factor, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::fma(from[i], factor, to[i]);
}

// The kernels for every weight type: other sets leave those that they do not decode to these.
template <typename... Weights>
constexpr OperandKernels operand_kernels(WeightList<Weights...>) {
  return {{1,
           kBlockRows,
           kVectorBlocking,
           {dequantize<Weights>...},
           {multiply<1>, multiply<2>, multiply<4>, multiply<8>}},
          {(void(Weights()), kBlockRows)...},
          {{fused<Weights, 1>...},
           {fused<Weights, 2>...},
           {fused<Weights, 4>...},
           {fused<Weights, 8>...}}};
}

}  // namespace

const CpuKernels& portable_kernels() {
  static constexpr CpuKernels kKernels = {"portable",
                                          kLanes,
                                          operand_kernels(WeightTypes()),
                                          nullptr,
                                          nullptr,
                                          &kIntegerPortable,
                                          to_float,
                                          from_float,
                                          &kFloat8Portable,
                                          add_multiple,
                                          activate_row<kGateLanes>,
                                          gate_row<kGateLanes>};
  return kKernels;
}

}  // namespace mixed_gemm::cpu
