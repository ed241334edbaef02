// Scales and zeros of one warp's tiles, in registers as they were loaded: any arithmetic on them
// next to the loads would wait for the memory.
#pragma once
#include "cutlass/fast_math.h"
#include "dequant/apply_scale.h"
#include "dequant/weight_converter.h"
#include "mainloop/predicated_load.cuh"
#include "skinny/config.cuh"

namespace mixed_gemm {

template <typename Element>
struct SkinnyScaleParams {
  const Element* scales;
  const Element* zeros;
  int stride;
  int columns, groups;
  cutlass::FastDivmod steps_per_group;  // of Config::kGroupStepK
};

template <typename Config>
class SkinnyScales {
  using Element = typename Config::Element;
  static constexpr int kNTiles = Config::kNTiles;
  // Scales of a column in a tile and iteration.
  static constexpr int kGroupSteps = Config::kGroupSteps;
  // Whether lanes load for each other: before sm_90 ptxas needs one register more than there is.
  static constexpr bool kShared = kBeforeSm90 && Config::kScalesSums && !Config::kOwnScales;

 public:
  using Params = SkinnyScaleParams<Element>;

  struct Storage {};

  __device__ SkinnyScales(const Params& params, Storage&, int column0)
      : p_(params), column_(column0 + (kShared ? lane() % 16 : lane() / 4)) {
    // Made opaque, or the compiler reads the thread index anew in every iteration, which is slow.
    asm volatile("" : "+r"(column_));
  }

  // The address that this lane loads first.
  __device__ const Element* source(int iteration) const {
    if constexpr (!Config::kScaled) return p_.scales;
    return p_.scales + row_offset(first_step(iteration));
  }

  // The steps of ScaleStage; all but start() do nothing here.
  __device__ void start(int first, int end) {
    if (first >= end) return;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) load(first, j);
  }
  __device__ void take(int, int) const {}
  __device__ void advance() const {}
  __device__ void hold(int) const {}

  // Loads the scales of tile j.
  __device__ void load(int iteration, int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int u = 0; u < (Config::kScaled ? kGroupSteps : 0); ++u) {
      if constexpr (kShared) {
        load_shared(iteration, j, u);
      } else {
        load_own(iteration, j, u);
      }
    }
  }

  // The scale of column g + 8 h of tile j in a part of the iteration, as fp32 or bits.
  __device__ float scale(int j, int part, int h) const {
    return to_float(kShared ? __shfl_sync(0xffffffff, shared_[j][part], 8 * h + lane() / 4)
                            : scale_[j][h][part]);
  }
  __device__ uint32_t zero_bits(int j, int part, int h) const { return zero_[j][h][part]; }

  // The scale of step s of a word, where weights are scaled.
  __device__ PackedScale packed(int j, int h, int s) const {
    const int u = s * kGroupSteps / kStepsPerWord<typename Config::Weight>;
    return scale_for_weights(scale_[j][h][u], Config::kZeros ? zero_[j][h][u] : 0u);
  }
  static __device__ PackedScale scale_for_weights(uint32_t scale, uint32_t zero) {
    using Weight = typename Config::Weight;
    return PackedScale::pack(scale_of_pairs<typename Config::Format, Weight>(scale), zero);
  }

  // bf16 goes by volatile PTX: ptxas moved the shift behind the load of the next scale, which it
  // then copied from another register, and so waited for the memory.
  static __device__ float to_float(uint32_t bits) {
    if constexpr (Config::kBFloat16) {
      float value;
      asm volatile("shl.b32 %0, %1, 16;" : "=f"(value) : "r"(bits));
      return value;
    }
    const auto half = static_cast<uint16_t>(bits);
    return float(reinterpret_cast<const Element&>(half));
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  // The first step of this lane in an iteration.
  static __device__ int first_step(int iteration) {
    return (Config::kOwnScales ? 4 * iteration + lane() % 4 : iteration) * kGroupSteps;
  }
  // Steps past the end take the last group's row, whose scales are finite.
  __device__ int64_t row_offset(int step) const {
    int row = p_.steps_per_group.div(step);
    if constexpr (Config::kOwnScales || kGroupSteps > 1) row = min(row, p_.groups - 1);
    return static_cast<int64_t>(row) * p_.stride + column_;
  }
  __device__ bool inside(int column) const { return column_ + column < p_.columns; }

  // Takes one load for the 16 columns of a tile, and two shuffles.
  __device__ void load_shared(int iteration, int j, int part) {
    const Element* at = p_.scales + row_offset(first_step(iteration) + part);
    load_16_bits_if(inside(16 * j), shared_[j][part], at + 16 * j);
  }

  __device__ void load_own(int iteration, int j, int u) {
    const int64_t at = row_offset(first_step(iteration) + u);
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int column = 16 * j + 8 * h;
      load_16_bits_if(inside(column), scale_[j][h][u], p_.scales + at + column);
      if constexpr (Config::kZeros) {
        load_16_bits_if(inside(column), zero_[j][h][u], p_.zeros + at + column);
      }
    }
  }

  const Params& p_;
  int column_;  // whose scale this lane loads: the first
  uint32_t shared_[kNTiles][kGroupSteps] = {};
  uint32_t scale_[kNTiles][2][kGroupSteps] = {}, zero_[kNTiles][2][kGroupSteps] = {};
};

}  // namespace mixed_gemm
