// Zero points of groups whose sums are scaled (mainloop/group_scaling.cuh), and the bias of weights
// as they are stored. A group adds too much to an output: the sum of its tokens times a factor of
// the column, s (z + bias), or s bias - z where zero points are added. So all groups together are
// one more product of matrices, with groups for K, and an mma takes four of them at once: 45
// instructions a group for 16 by 64 outputs where the sums of each group took 80, which moreover
// were a chain of dependent ones (57344 x 8192, M = 16: 91.6 us -> 83.8; without zero points
// 79).
//
// Lane (g, q) of a warp makes the factors of group q of each batch, for column g of each octet. It
// asks for scales and zero points as the batch begins, from device memory.
//
// Both operands come in two parts of a tf32, so 22 bits of the factors and of the sums count.
#pragma once
#include "core/quant_scheme.h"
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/array.h"
#include "cutlass/tfloat32.h"
#include "mainloop/predicated_load.cuh"
#include "mainloop/scale_operand.cuh"

namespace mixed_gemm {

template <typename Config>
class ZeroProducts {
  using Params = typename ScaleCopy<Config>::Params;
  using Element = typename Config::Element;
  using Quad = cutlass::Array<float, 4>;
  static constexpr int kBatch = 4;
  static_assert(Config::kMmaM == 1, "one row of mma tiles");

 public:
  // The first group that the warp has a part of is `group`, its first column column0.
  __device__ ZeroProducts(const Params& params, int group, int column0, int lane)
      : params_(params), group_(group + lane % 4), column_(column0 + lane / 4) {}

  // Asks for the next four groups; the first time, before anything else.
  __device__ void begin_batch() {
    index_ = 0;
    sums_.clear();
    // Groups past the end have sums of 0: any that are finite.
    const int row = min(group_, params_.rows.groups - 1);
    const int64_t at = row * params_.stride + column_;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      const bool exists = column_ + 8 * j < params_.n;
      load_16_bits_if(exists, scales_[j], params_.scales + at + 8 * j);
      load_16_bits_if(exists, zeros_[j], params_.zeros + at + 8 * j);
    }
  }

  // Sums the tokens of a step, as the operand of 16 rows.
  template <typename Mma, typename Tokens>
  __device__ void add(const Tokens& tokens) {
    // Columns 2 i and 2 i + 1 of the sums belong to group i of the batch: lane q has its own.
    const uint32_t one =
        static_cast<int>(threadIdx.x) % 32 / 8 == index_ ? Config::Format::kOneX2 : 0u;
    const uint32_t ones[2] = {one, one};
    Mma()(sums_, tokens, reinterpret_cast<const cutlass::Array<Element, 4>&>(ones), sums_);
  }

  __device__ void end_group(ZeroMode mode, Quad* accumulators) {
    if (++index_ < kBatch) return;
    apply(mode, accumulators);
    group_ += kBatch;
    begin_batch();
  }

  // Adds the products of the batch's groups, times kPairScale, to the accumulators.
  __device__ void apply(ZeroMode mode, Quad* accumulators) const {
    using Tf32 = cutlass::tfloat32_t;
    using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 8>, 32, Tf32,
                                   cutlass::layout::RowMajor, Tf32, cutlass::layout::ColumnMajor,
                                   float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
    constexpr float kPairScale = Config::Converter::kPairScale, kBias = Config::Converter::kBias;
    // Rows g and g + 8, for k q and q + 4: those meet the high and the low part of a factor.
    const Parts rows[2] = {Parts(sums_[0] * kPairScale), Parts(sums_[2] * kPairScale)};
    const float high[4] = {rows[0].high, rows[1].high, rows[0].high, rows[1].high};
    const float low[4] = {rows[0].low, rows[1].low, rows[0].low, rows[1].low};
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      const float scale = to_float(scales_[j]), zero = to_float(zeros_[j]);
      const Parts factor(fmaf(mode == ZeroMode::kAdd ? 1.f : -scale, zero, -kBias * scale));
      const auto& columns = reinterpret_cast<const cutlass::Array<Tf32, 2>&>(factor);
      Quad& sum = accumulators[j];
      Mma()(sum, reinterpret_cast<const cutlass::Array<Tf32, 4>&>(high), columns, sum);
      Mma()(sum, reinterpret_cast<const cutlass::Array<Tf32, 4>&>(low), columns, sum);
    }
  }

 private:
  // high + low is the value; high has the bits of a tf32.
  struct Parts {
    float high, low;
    __device__ explicit Parts(float value) {
      const uint32_t bits = reinterpret_cast<const uint32_t&>(value) & 0xffffe000u;
      high = reinterpret_cast<const float&>(bits);
      low = value - high;
    }
  };

  static __device__ float to_float(uint32_t bits) {
    const auto half = static_cast<uint16_t>(bits);
    return float(reinterpret_cast<const Element&>(half));
  }

  const Params& params_;
  int group_, column_;  // of this lane
  int index_;           // of the group in its batch
  Quad sums_;
  uint32_t scales_[Config::kMmaN] = {}, zeros_[Config::kMmaN] = {};  // of this lane's group
};

// Does nothing, where there are no zero points or they meet weights.
struct NoZeroProducts {
  template <typename Params>
  __device__ NoZeroProducts(const Params&, int, int, int) {}
};

}  // namespace mixed_gemm
