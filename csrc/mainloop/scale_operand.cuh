// Group scales and zeros: rows of them travel through the same cp.async stages as A and B, then
// each lane keeps one (scale, zero) per octet of columns, broadcast into both halves of a word.
#pragma once
#include "core/bit_ops.h"
#include "core/stage_check.h"
#include "cutlass/arch/memory_sm80.h"
#include "cutlass/fast_math.h"
#include "dequant/apply_scale.h"
#include "dequant/weight_converter.h"
#include "layout/swizzled_lines.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

// Which row of the scales belongs to a part of K: 64, 32 or 16 of it.
struct GroupRows {
  cutlass::FastDivmod parts_per_group;
  int groups;
  // Parts past the last group belong to zero-filled activations; any valid row will do for them.
  __device__ int operator()(int part) const { return min(parts_per_group.div(part), groups - 1); }
};

template <typename Config, typename ScaleRows = GroupRows>
class ScaleCopy {
  static constexpr int kRows = scale_rows(Config::kScales);
  static constexpr int kOperands = Config::kStagesZeros ? 2 : 1;
  static constexpr int kChunkScales = kChunkBytes / scale_bytes(Config::kScales.type);
  static constexpr int kChunksPerRow = Config::kTile.n / kChunkScales;
  static constexpr int kChunks = kRows * kOperands * kChunksPerRow;

 public:
  using Element = typename Config::Element;
  static constexpr int kRowBytes = kChunksPerRow * kChunkBytes;
  static constexpr int kOperandBytes = kRows * kRowBytes;
  static constexpr int kStageBytes = kOperands * kOperandBytes;

  struct Params {
    const Element* scales;
    const Element* zeros;
    int64_t stride;  // elements between rows, a multiple of 8
    int n;
    ScaleRows rows;
  };

  __device__ ScaleCopy(const Params& params, int column0, int thread)
      : params_(params), column0_(column0), thread_(thread) {}

  // The copy is predicated, not branched around: the mainloop's step stays one block of
  // instructions. A chunk that is not copied belongs to columns that do not exist.
  __device__ void copy(int k_tile, bool wanted, uint8_t* stage) const {
    CUTLASS_PRAGMA_UNROLL
    for (int first = 0; first < kChunks; first += Config::kSliceThreads) {
      const int chunk = first + thread_;
      const int row = chunk / kChunksPerRow;
      const int column = column0_ + chunk % kChunksPerRow * kChunkScales;
      const Element* source = row < kRows ? params_.scales : params_.zeros;
      const int group = params_.rows(k_tile * kRows + row % kRows);
      MIXED_GEMM_CHECK_STAGE(chunk < kChunks ? chunk * kChunkBytes : 0, kChunkBytes, kStageBytes);
      cutlass::arch::cp_async<kChunkBytes, cutlass::arch::CacheOperation::Always>(
          stage + chunk * kChunkBytes, source + group * params_.stride + column,
          wanted && chunk < kChunks && column < params_.n);
    }
  }

 private:
  const Params& params_;
  int column0_, thread_;
};

template <typename Config>
struct ScaleFragment {
  PackedScale octets[Config::kMmaN];  // one register each: two spilled

  // Loads row `row` of the stage; the column of an octet is warp_column0 + 8 * octet + lane / 4.
  __device__ void load(const uint8_t* stage, int warp_column0, int row, int lane) {
    CUTLASS_PRAGMA_UNROLL
    for (int octet = 0; octet < Config::kMmaN; ++octet) {
      const auto* at = reinterpret_cast<const uint16_t*>(stage) + row * Config::kTile.n +
                       warp_column0 + lane / 4 + 8 * octet;
      // Without zeros both halves hold the scale, which then needs no broadcast when it is used.
      octets[octet] = PackedScale::pack(
          at[0], at[Config::kScales.zeros ? ScaleCopy<Config>::kOperandBytes / 2 : 0]);
      if constexpr (!Config::Weight::kIsInteger) {
        octets[octet].bits =
            scale_of_pairs<typename Config::Format, typename Config::Weight>(octets[octet].bits);
      }
    }
  }

  __device__ void apply(int octet, ZeroMode zero_mode, uint32_t (&pairs)[2]) const {
    using Format = typename Config::Format;
    if constexpr (Config::kScales.zeros) {
      octets[octet].template apply<Format, true>(zero_mode, pairs);
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int p = 0; p < 2; ++p) pairs[p] = apply_scale<Format>(pairs[p], octets[octet].bits);
    }
  }
};

}  // namespace mixed_gemm
