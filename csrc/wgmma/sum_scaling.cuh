// Scales that multiply the sums of a group, where a lane has fewer sums than pairs of weights. Zero
// points are whole numbers (wgmma/integer_zeros.cuh).
#pragma once
#include "wgmma/integer_zeros.cuh"
#include "wgmma/no_scaling.cuh"

namespace mixed_gemm {

template <typename Config>
class SumScaling : public NoScaling<Config> {
  using Staged = StagedColumns<Config>;
  using Sums = typename Config::Sums;
  using Converter = typename Config::Converter;
  static constexpr int kRowTiles = Config::kRowTiles;
  static constexpr bool kZeros = Config::kZeros;

 public:
  static constexpr ZeroPoints kZeroPoints = kZeros ? ZeroPoints::kWhole : ZeroPoints::kNone;
  static constexpr bool kLooksAhead = kZeros;  // 0.98 to 1.00 of the time

  __device__ SumScaling(const StagedScales& staged, int begin)
      : staged_(staged), starts_(staged.starts(begin)), offset_(Staged::lane_offset()) {
    // Begins as behind a group of zeros.
    products_.clear();
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) scales_[t] = 0;
  }

  __device__ float* products(Sums&) { return products_.data(); }

  __device__ void see_next(int tile) {
    if (kLooksAhead) begins_ = starts_.enter(staged_.rows, tile);
  }
  __device__ void load_next(uint32_t scales) {
    if (kLooksAhead && begins_) load(scales);
  }
  __device__ void prepare_step(uint32_t /*scales*/, int /*tile*/, int step) {
    if constexpr (kZeros) {
      if (step != 0 || !begins_) return;
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        offsets_[t] = Converter::fold_whole(loaded_[t][1], missed_);
      }
    }
  }
  __device__ void convert(const Converter& converter, uint32_t word, int step, int step_of_word,
                          int t, int half, uint32_t (&pairs)[2]) const {
    if constexpr (kZeros) {
      const PairOffsets offsets = {both_halves(offsets_[t].first, half),
                                   both_halves(offsets_[t].second, half)};
      converter.convert_step(word, step_of_word, offsets, pairs);
    } else {
      converter.convert_step(word, step_of_word, pairs);
    }
  }

  __device__ bool begin_tile(uint32_t scales, int tile, Sums& sums) {
    if (kLooksAhead ? !begins_ : !starts_.enter(staged_.rows, tile)) return false;
    cute::warpgroup_wait<0>();
    pin<Config::kSums>(products_.data());
    finish(sums);
    if (!kLooksAhead) load(scales);
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) scales_[t] = loaded_[t][0];
    return true;
  }
  __device__ void finish(Sums& sums) const {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kSums; ++i) {
      const uint32_t scales = scales_[i / Config::kSumsPerTile];
      const auto bits = static_cast<uint16_t>(scales >> i / 2 % 2 * 16);  // column g or g + 8
      sums[i] = fmaf(products_[i], float(reinterpret_cast<const typename Config::Element&>(bits)),
                     sums[i]);
    }
  }
  __device__ bool missed() const { return kZeros && IntegerZeros<Config>::is_any(missed_); }

 private:
  __device__ void load(uint32_t scales) {
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      load_transposed(scales + offset_ + t * Staged::kRowTileBytes, loaded_[t]);
    }
  }

  const StagedScales& staged_;
  GroupStarts starts_;
  uint32_t offset_;
  Sums products_;                               // of a group
  uint32_t scales_[kRowTiles];                  // of it, for two columns
  uint32_t loaded_[kRowTiles][kZeros ? 2 : 1];  // scales and zero points, perhaps of the next one
  // Used with zero points: whether the next k-tile to be multiplied begins a group.
  bool begins_;
  PairOffsets offsets_[kRowTiles];
  uint32_t missed_ = 0;
};

}  // namespace mixed_gemm
