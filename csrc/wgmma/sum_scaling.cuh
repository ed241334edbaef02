// Scales that multiply the sums of a group, where a lane has fewer of these than pairs of weights.
#pragma once
#include "wgmma/no_scaling.cuh"

namespace mixed_gemm {

template <typename Config>
class SumScaling : public NoScaling<Config> {
  using Staged = StagedColumns<Config>;
  using Sums = typename Config::Sums;
  static constexpr int kRowTiles = Config::kRowTiles;
  // Of one k-tile a stage the compiler makes of clear() a wgmma that does not add, of the second of
  // two it does not; told so itself, three blocks of 32 tokens spill (1.01 to 1.03).
  static constexpr bool kClears = Config::kTile.k_tiles == 1;
  static_assert(!Config::kZeros, "see scales_sums()");

 public:
  __device__ SumScaling(const StagedScales& staged, int begin)
      : staged_(staged), starts_(staged.starts(begin)), offset_(Staged::lane_offset()) {
    // As behind a group of zeros.
    products_.clear();
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) scales_[t][0] = 0;
  }

  __device__ float* products(Sums&) { return products_.data(); }

  __device__ bool enter(uint32_t scales, int tile, Sums& sums) {
    if (!starts_.enter(staged_.rows, tile)) return false;
    cute::warpgroup_wait<0>();
    pin<Config::kSums>(products_.data());
    finish(sums);
    if (kClears) products_.clear();
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      load_transposed(scales + offset_ + t * Staged::kRowTileBytes, scales_[t]);
    }
    return !kClears;
  }
  __device__ void finish(Sums& sums) const {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kSums; ++i) {
      const uint32_t scales = scales_[i / Config::kSumsPerTile][0];
      const auto bits = static_cast<uint16_t>(scales >> i / 2 % 2 * 16);  // column g or g + 8
      sums[i] = fmaf(products_[i], float(reinterpret_cast<const typename Config::Element&>(bits)),
                     sums[i]);
    }
  }

 private:
  const StagedScales& staged_;
  GroupStarts starts_;
  uint32_t offset_;
  Sums products_;                  // of a group
  uint32_t scales_[kRowTiles][1];  // of it, for two columns
};

}  // namespace mixed_gemm
