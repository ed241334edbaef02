// The multistage mainloop (seed 000): A, packed B and scales arrive together through kStages
// cp.async stages; per mma step the fragments of the next step are read from shared memory while
// this step's weights are converted, scaled and multiplied. fp32 accumulation throughout.
#pragma once
#include "cutlass/arch/mma.h"
#include "cutlass/arch/mma_sm80.h"
#include "mainloop/activation_operand.cuh"
#include "mainloop/scale_operand.cuh"
#include "mainloop/weight_operand.cuh"

namespace mixed_gemm {

template <typename Config>
class MultistageMainloop {
  static constexpr bool kScaled = Config::kMode != ScaleMode::kPerChannel;
  static constexpr int kScaleRows = scale_rows(Config::kMode);
  static constexpr int kOffsetB = ActivationCopy<Config>::kStageBytes;
  static constexpr int kOffsetScales = kOffsetB + WeightCopy<Config>::kStageBytes;
  static constexpr int kStageBytes = kOffsetScales + (kScaled ? ScaleCopy<Config>::kStageBytes : 0);
  static_assert(kStageBytes == stage_bytes(Config::kTile, Config::kBits, Config::kMode),
                "tile_config.h must know the real stage size");

  using Element = typename Config::Element;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                 cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                 float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;

 public:
  // Accumulator (i, j) of the warp tile is at i + j * kMmaM, the order CUTLASS's epilogue expects.
  using Accumulators = cutlass::Array<float, Config::kAccumulators>;

  struct Params {
    typename ActivationCopy<Config>::Params a;
    typename WeightCopy<Config>::Params b;
    typename ScaleCopy<Config>::Params scales;
    int k_tiles;
    ZeroMode zero_mode;
  };

  struct SharedStorage {
    alignas(128) uint8_t bytes[Config::kStages * kStageBytes];
  };

  __device__ MultistageMainloop(const Params& params, SharedStorage& storage, int row0, int column0,
                                int thread)
      : params_(params),
        smem_(storage.bytes),
        copy_a_(params.a, row0, thread),
        copy_b_(params.b, column0, thread),
        copy_scales_(params.scales, column0, thread),
        warp_row0_(thread / 32 % Config::kWarpsM * Config::kTile.warp_m),
        warp_column0_(thread / 32 / Config::kWarpsM * Config::kTile.warp_n),
        lane_(thread % 32) {}

  // accumulators += A[:, tiles] * B[tiles, :] over k-tiles [begin, end).
  __device__ void run(int begin, int end, Accumulators& accumulators) {
    int write_stage = 0, read_stage = 0;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kStages - 1; ++i) fetch(begin + i, end, write_stage);
    wait_for_stage();
    load_fragments(read_stage, 0);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) load_scales(read_stage, 0, j);

    CUTLASS_GEMM_LOOP
    for (int tile = begin; tile < end; ++tile) {
      fetch(tile + Config::kStages - 1, end, write_stage);
      CUTLASS_PRAGMA_UNROLL
      for (int step = 0; step < Config::kSteps; ++step) {
        if (step == Config::kSteps - 1) {
          wait_for_stage();
          read_stage = read_stage + 1 == Config::kStages ? 0 : read_stage + 1;
        }
        load_fragments(read_stage, (step + 1) % Config::kSteps);
        multiply(step, read_stage, accumulators);
      }
    }
    cutlass::arch::cp_async_wait<0>();
    __syncthreads();  // the epilogue reuses the shared memory
  }

 private:
  // Starts the copies of one k-tile into the stage that was freed last. Commits even when there is
  // nothing left, so that wait_for_stage can count groups.
  __device__ void fetch(int tile, int end, int& write_stage) {
    if (tile < end) {
      uint8_t* stage = smem_ + write_stage * kStageBytes;
      copy_a_.copy(tile, stage);
      copy_b_.copy(tile, stage + kOffsetB);
      if constexpr (kScaled) copy_scales_.copy(tile, stage + kOffsetScales);
    }
    cutlass::arch::cp_async_fence();
    write_stage = write_stage + 1 == Config::kStages ? 0 : write_stage + 1;
  }

  // The next stage has arrived for all threads, and all threads are done reading the previous one.
  __device__ void wait_for_stage() {
    cutlass::arch::cp_async_wait<Config::kStages - 2>();
    __syncthreads();
  }

  __device__ void load_fragments(int read_stage, int step) {
    constexpr int kSteps = kStepsPerWord<Config::kBits>;
    const uint8_t* stage = smem_ + read_stage * kStageBytes;
    a_[step % 2].load(stage, warp_row0_, step, lane_);
    if (step % kSteps == 0)
      b_[step / kSteps % 2].load(stage + kOffsetB, warp_column0_, step / kSteps, lane_);
  }

  // The scales of one octet of columns for `step`, if that step begins a new scale row.
  __device__ void load_scales(int read_stage, int step, int octet) {
    if constexpr (kScaled) {
      if (kScaleRows == 1 && step != 0) return;
      scales_.load(smem_ + read_stage * kStageBytes + kOffsetScales, warp_column0_,
                   step % kScaleRows, octet, lane_);
    }
  }

  // read_stage is that of the next step.
  __device__ void multiply(int step, int read_stage, Accumulators& accumulators) {
    auto* tiles = reinterpret_cast<cutlass::Array<float, 4>*>(&accumulators);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      uint32_t pairs[2];
      b_[step / kStepsPerWord<Config::kBits> % 2].convert(j, step, pairs);
      if constexpr (kScaled) scales_.apply(j, params_.zero_mode, pairs);
      load_scales(read_stage, (step + 1) % Config::kSteps, j);
      const auto& b = reinterpret_cast<const cutlass::Array<Element, 4>&>(pairs);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kMmaM; ++i) {
        auto& accumulator = tiles[i + j * Config::kMmaM];
        Mma()(accumulator, a_[step % 2].tile[i], b, accumulator);
      }
    }
  }

  const Params& params_;
  uint8_t* smem_;
  ActivationCopy<Config> copy_a_;
  WeightCopy<Config> copy_b_;
  ScaleCopy<Config> copy_scales_;
  int warp_row0_, warp_column0_, lane_;
  ActivationFragment<Config> a_[2];
  WeightFragment<Config> b_[2];
  ScaleFragment<Config> scales_;
};

}  // namespace mixed_gemm
