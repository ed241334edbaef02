// The multistage mainloop: A, packed B and scales arrive together through kStages
// cp.async stages; per mma step the fragments of the next step are read from shared memory while
// this step's weights are converted, scaled and multiplied. fp32 accumulation throughout.
//
// With k_warps each warp is a pipeline of its own, which waits for nobody: for problems with too
// few tiles to fill the GPU, where the latency of one k-tile after the other is the time.
#pragma once
#include <type_traits>

#include "cutlass/arch/mma.h"
#include "cutlass/arch/mma_sm80.h"
#include "mainloop/activation_operand.cuh"
#include "mainloop/group_scaling.cuh"
#include "mainloop/scale_operand.cuh"
#include "mainloop/weight_operand.cuh"
#include "mainloop/zero_products.cuh"

namespace mixed_gemm {

// CopyA: how rows of A are found. ScaleRows: which row of the scales belongs to a part of K.
template <typename Config, typename CopyA = ActivationCopy<Config>, typename ScaleRows = GroupRows>
class MultistageMainloop {
  using CopyScales = ScaleCopy<Config, ScaleRows>;
  static constexpr bool kScaled = is_scaled(Config::kScales);
  static constexpr bool kScalesSums = Config::kScalesSums;
  using Groups = std::conditional_t<kScalesSums, GroupScaling<Config>, NoGroupScaling<Config>>;
  using Zeros = std::conditional_t<Config::kZeroProducts, ZeroProducts<Config>, NoZeroProducts>;
  static constexpr int kScaleRows = scale_rows(Config::kScales);
  static constexpr int kOffsetB = CopyA::kStageBytes;
  static constexpr int kOffsetScales = kOffsetB + WeightCopy<Config>::kStageBytes;
  static constexpr int kStageBytes = kOffsetScales + (kScaled ? CopyScales::kStageBytes : 0);
  static constexpr int kRing = ActivationFragment<Config>::kRing;
  static_assert(kStageBytes == stage_bytes(Config::kTile, Config::Weight::kType, Config::kScales),
                "mainloop/multistage_stage.h must know the real stage size");

  using Element = typename Config::Element;
  using Quad = cutlass::Array<float, 4>;

 public:
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                 cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                 float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
  static constexpr int kSliceBytes = Config::kStages * kStageBytes;

  // Accumulator (i, j) of the warp tile is at i + j * kMmaM, as epilogue/store_tile.cuh says.
  using Accumulators = cutlass::Array<float, Config::kAccumulators>;

  struct Params {
    typename CopyA::Params a;
    typename WeightCopy<Config>::Params b;
    typename CopyScales::Params scales;
    int k_tiles;
    ZeroMode zero_mode;
  };

  struct SharedStorage : CopyA::Shared {
    alignas(128) uint8_t bytes[Config::kKWarps * kSliceBytes];
  };

  // Multiplies k-tiles [begin, end) for the output tile at (row0, column0); a slice its share.
  __device__ MultistageMainloop(const Params& params, SharedStorage& storage, int row0, int column0,
                                int begin, int end, int thread)
      : params_(params),
        smem_(storage.bytes + Config::slice(thread) * kSliceBytes),
        fetch_tile_(share(Config::slice(thread), begin, end)),
        end_(share(Config::slice(thread) + 1, begin, end)),
        copy_a_(params.a, storage, row0, fetch_tile_, end_, thread),
        copy_b_(params.b, column0, fetch_tile_, Config::thread_of_slice(thread)),
        copy_scales_(params.scales, column0, Config::thread_of_slice(thread)),
        warp_column0_(Config::warp_column(thread)),
        lane_(thread % 32),
        zeros_(params.scales, params.scales.rows(fetch_tile_), column0 + warp_column0_, lane_) {
    lane_a_ = ActivationFragment<Config>::lane_offset(Config::warp_row(thread), lane_);
    lane_b_ = kOffsetB + WeightFragment<Config>::lane_offset(warp_column0_, lane_);
    if constexpr (kScalesSums) {
      const auto& tiles = params.scales.rows.parts_per_group;
      group_left_ = (tiles.div(fetch_tile_) + 1) * tiles.divisor - fetch_tile_;
    }
  }

  // accumulators += A[:, tiles] * B[tiles, :].
  __device__ void run(Accumulators& accumulators) {
    int write_stage = 0, read_stage = 0;
    if constexpr (Config::kZeroProducts) zeros_.begin_batch();
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kStages - 1; ++i) {
      fetch(0, 1, write_stage);
      commit(write_stage);
    }
    wait_for_stage();
    refill_weights(read_stage, 0);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kRing; ++i) refill_activations(read_stage, 0, i);

    CUTLASS_GEMM_LOOP
    while (fetch_tile_ < end_ + Config::kStages - 1) {
      CUTLASS_PRAGMA_UNROLL
      for (int step = 0; step < Config::kSteps; ++step) {
        constexpr int kLast = Config::kSteps - 1;
        // The copies of a later k-tile are spread over the steps, so that their addresses are
        // computed while the tensor cores are busy.
        if (step < kLast) fetch(step, kLast, write_stage);
        if (step == kLast - 1) commit(write_stage);
        multiply(step, read_stage, accumulators);
      }
    }
    if constexpr (kScalesSums) groups_.flush(tiles_of(accumulators));
    if constexpr (Config::kZeroProducts) zeros_.apply(params_.zero_mode, tiles_of(accumulators));
    if constexpr (Config::Converter::kPairScale != 1) finish(accumulators);
    cutlass::arch::cp_async_wait<0>();
    synchronize();  // the stages are used again, by the next item or for sums
  }

 private:
  // The k-tile where a slice begins and the slice before it ends.
  static __device__ int share(int slice, int begin, int end) {
    return Config::kKWarps == 1 ? (slice == 0 ? begin : end)
                                : begin + (end - begin) * slice / Config::kKWarps;
  }

  // All threads that copy and read the same stages meet.
  static __device__ void synchronize() {
    if constexpr (Config::kKWarps > 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  // Starts one part of the copies of a k-tile into the stage that was freed last.
  __device__ void fetch(int part, int parts, int write_stage) {
    uint8_t* stage = smem_ + write_stage * kStageBytes;
    const bool wanted = fetch_tile_ < end_;
    copy_a_.copy(part, parts, stage);
    copy_b_.copy(part, parts, wanted, stage + kOffsetB);
    if constexpr (kScaled) {
      if (part == parts - 1) copy_scales_.copy(fetch_tile_, wanted, stage + kOffsetScales);
    }
  }

  // Commits even when nothing was wanted, so that wait_for_stage can count groups.
  __device__ void commit(int& write_stage) {
    cutlass::arch::cp_async_fence();
    copy_a_.next();
    copy_b_.next();
    ++fetch_tile_;
    write_stage = write_stage + 1 == Config::kStages ? 0 : write_stage + 1;
  }

  // Returns when the next stage has arrived for all threads and all have read the one before.
  __device__ void wait_for_stage() {
    cutlass::arch::cp_async_wait<Config::kStages - 2>();
    synchronize();
  }

  __device__ void refill_activations(int read_stage, int step, int i) {
    a_.load(i, smem_ + read_stage * kStageBytes +
                   (lane_a_ ^ ActivationFragment<Config>::step_xor(step)));
  }

  // Loads the words and scales of `step`, where it begins new ones.
  __device__ void refill_weights(int read_stage, int step) {
    constexpr int kSteps = kStepsPerWord<typename Config::Weight>;
    const uint8_t* stage = smem_ + read_stage * kStageBytes;
    if (step % kSteps == 0)
      b_.load(stage + (lane_b_ ^ WeightFragment<Config>::block_xor(step / kSteps)));
    if constexpr (kScaled && !kScalesSums) {
      constexpr int kStepsPerRow = Config::kSteps / kScaleRows;
      if (step % kStepsPerRow == 0)
        scales_.load(stage + kOffsetScales, warp_column0_, step / kStepsPerRow, lane_);
    }
  }

  // Registers are refilled as soon as they have been used: A tile by tile in a ring, the words and
  // scales of B once the step's are converted. So one set of each operand is enough. In the last
  // step the refills of the next k-tile wait for its stage, and nothing of this stage is read after
  // that.
  __device__ void multiply(int step, int& read_stage, Accumulators& accumulators) {
    const auto converter =
        converter_of<typename Config::Converter, typename Config::Weight>(params_.b.values);
    uint32_t pairs[Config::kMmaN][2];
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      b_.convert(converter, j, step, pairs[j]);
      if constexpr (kScaled && !kScalesSums) scales_.apply(j, params_.zero_mode, pairs[j]);
    }
    const int next = (step + 1) % Config::kSteps;
    auto* tiles = tiles_of(accumulators);
    if constexpr (kScalesSums) {
      if (step == 0) begin_tile(accumulators);
      if (step == 1) {  // not only where a group ends: the branch cost 10 to 19 %
        const uint8_t* stage = smem_ + read_stage * kStageBytes;
        groups_.load_scales(stage + kOffsetScales, warp_column0_, lane_);
      }
      tiles = groups_.products;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kMmaM; ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < Config::kMmaN; ++j) {
        auto& accumulator = tiles[i + j * Config::kMmaM];
        Mma()(accumulator, a_.tile[i % kRing],
              reinterpret_cast<const cutlass::Array<Element, 4>&>(pairs[j]), accumulator);
      }
      if constexpr (Config::kZeroProducts) zeros_.template add<Mma>(a_.tile[i % kRing]);
      if (i == Config::kMmaM - kRing) {
        if (next == 0) {
          wait_for_stage();
          read_stage = read_stage + 1 == Config::kStages ? 0 : read_stage + 1;
        }
        refill_weights(read_stage, next);
      }
      const int ahead = i + kRing;
      refill_activations(read_stage, ahead < Config::kMmaM ? step : next, ahead % Config::kMmaM);
    }
  }

  static __device__ Quad* tiles_of(Accumulators& accumulators) {
    return reinterpret_cast<Quad*>(&accumulators);
  }

  __device__ void begin_tile(Accumulators& accumulators) {
    if (group_left_ == 0) {
      // Without this ptxas predicates it all, and every k-tile issues it: 1 to 3 %. (Zero points
      // are too much for that; before sm_90 this is a call.)
      if constexpr (!Config::kZeroProducts && !kBeforeSm90) __syncwarp();
      groups_.flush(tiles_of(accumulators));
      if constexpr (Config::kZeroProducts) {
        zeros_.end_group(params_.zero_mode, tiles_of(accumulators));
      }
      group_left_ = params_.scales.rows.parts_per_group.divisor;
    }
    --group_left_;
  }

  // Divides by kPairScale, which the pairs are times the weights.
  static __device__ void finish(Accumulators& accumulators) {
    CUTLASS_PRAGMA_UNROLL
    for (float& sum : accumulators) sum *= 1 / Config::Converter::kPairScale;
  }

  const Params& params_;
  uint8_t* smem_;
  int fetch_tile_, end_;
  CopyA copy_a_;
  WeightCopy<Config> copy_b_;
  CopyScales copy_scales_;
  int warp_column0_, lane_;
  int lane_a_, lane_b_;  // where this lane reads a stage
  ActivationFragment<Config> a_;
  WeightFragment<Config> b_;
  ScaleFragment<Config> scales_;
  Groups groups_;
  Zeros zeros_;
  int group_left_;  // k-tiles until the next group begins
};

}  // namespace mixed_gemm
