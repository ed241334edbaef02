// The mainloop for operands that go into mma.m16n8k32 as they are stored: int8 with int32 sums, fp8
// with fp32 sums. Both are rows of bytes along K, so one code serves both; Config names the Mma.
#pragma once
#include "mainloop/direct_stage.h"
#include "mainloop/row_operand.cuh"

namespace mixed_gemm {

// Leaves the sums of products as they are: over all of K, they are the result. block_gemm/sums.cuh
// has the other class, and says when each function is called.
template <typename Config>
struct WholeSums {
  using Sums = cutlass::Array<typename Config::Mma::ElementC, Config::kAccumulators>;
  using Accumulators = Sums;
  static constexpr int kSmemBytes = 0;
  struct Params {};

  __device__ WholeSums(const Params&, uint8_t*, int, int, int, int) {}
  __device__ void fetch() {}
  __device__ void next() {}
  __device__ Sums& sums(Accumulators& accumulators) { return accumulators; }
  __device__ void add_columns(const uint32_t*) {}
  __device__ void end_step(int, Accumulators&) {}
};

template <typename Config, typename CopyA = RowCopy<Config::kTile.m, Config::kThreads>,
          template <typename> class Sums_ = WholeSums>
class DirectMainloop {
  using Sums = Sums_<Config>;
  using CopyB = RowCopy<Config::kTile.n, Config::kThreads>;
  using FragmentA = RowFragment<Side::kLeft, 16 * Config::kMmaM>;
  using FragmentB = RowFragment<Side::kRight, 8 * Config::kMmaN>;
  static constexpr int kSteps = kScaledTileK / 32;
  static constexpr int kStageBytes = CopyA::kStageBytes + CopyB::kStageBytes;
  static_assert(kStageBytes == scaled_stage_bytes(Config::kTile),
                "mainloop/direct_stage.h must know the real stage size");

 public:
  using Mma = typename Config::Mma;
  using Accumulators = typename Sums::Accumulators;

  struct Params {
    typename CopyA::Params a;
    typename CopyB::Params b;
    typename Sums::Params sums;
  };

  struct SharedStorage : CopyA::Shared {
    alignas(128) uint8_t bytes[Config::kStages * kStageBytes + Sums::kSmemBytes];
  };

  // Multiplies lines [begin, end) of K for the output tile at (row0, column0).
  __device__ DirectMainloop(const Params& params, SharedStorage& storage, int row0, int column0,
                            int begin, int end, int thread)
      : smem_(storage.bytes),
        copy_a_(params.a, storage, row0, begin, end, thread),
        copy_b_(params.b, {}, column0, begin, end, thread),
        sums_(params.sums, smem_ + Config::kStages * kStageBytes, row0, column0, begin, thread),
        lines_(end - begin) {
    lane_a_ = FragmentA::lane_offset(Config::warp_row(thread), thread % 32);
    lane_b_ = CopyA::kStageBytes + FragmentB::lane_offset(Config::warp_column(thread), thread % 32);
  }

  // accumulators += A[:, lines] * B[:, lines]^T.
  __device__ void run(Accumulators& accumulators) {
    int write_stage = 0, read_stage = 0;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kStages - 1; ++i) {
      fetch(0, 1, write_stage);
      commit(write_stage);
    }
    wait_for_stage();
    load(read_stage, 0);

    CUTLASS_GEMM_LOOP
    for (; lines_ > 0; --lines_) {
      CUTLASS_PRAGMA_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        constexpr int kLast = kSteps - 1;
        if (step < kLast) fetch(step, kLast, write_stage);
        if (step == kLast - 1) commit(write_stage);
        multiply(step, read_stage, accumulators);
      }
    }
    cutlass::arch::cp_async_wait<0>();
    __syncthreads();  // the next item reuses the shared memory
  }

 private:
  // Starts one part of the copies of a line into the stage that was freed last.
  __device__ void fetch(int part, int parts, int write_stage) {
    uint8_t* stage = smem_ + write_stage * kStageBytes;
    copy_a_.copy(part, parts, stage);
    copy_b_.copy(part, parts, stage + CopyA::kStageBytes);
    if (part == 0) sums_.fetch();
  }

  // Commits even past the end, so that wait_for_stage can count groups.
  __device__ void commit(int& write_stage) {
    cutlass::arch::cp_async_fence();
    copy_a_.next();
    copy_b_.next();
    sums_.next();
    write_stage = write_stage + 1 == Config::kStages ? 0 : write_stage + 1;
  }

  // Returns when the next stage has arrived for all threads and all have read the one before.
  __device__ void wait_for_stage() {
    cutlass::arch::cp_async_wait<Config::kStages - 2>();
    __syncthreads();
  }

  __device__ void load(int read_stage, int step) {
    const uint8_t* stage = smem_ + read_stage * kStageBytes;
    a_[step % 2].load(stage + (lane_a_ ^ FragmentA::step_xor(step)));
    b_[step % 2].load(stage + (lane_b_ ^ FragmentB::step_xor(step)));
  }

  // The fragments of the next step arrive while this one is multiplied. In the last step they come
  // from the next stage: its barrier stands behind a part of the products, so that the tensor cores
  // have work while the warps meet.
  __device__ void multiply(int step, int& read_stage, Accumulators& accumulators) {
    constexpr int kBefore = Config::kMmaN / 4;
    const bool last = step == kSteps - 1;
    auto* sums = reinterpret_cast<typename Mma::FragmentC*>(&sums_.sums(accumulators));
    const auto* a = reinterpret_cast<const typename Mma::FragmentA*>(a_[step % 2].words);
    const auto* b = reinterpret_cast<const typename Mma::FragmentB*>(b_[step % 2].words);
    sums_.add_columns(b_[step % 2].words);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      if (j == (last ? kBefore : 0)) {
        if (last) {
          wait_for_stage();
          read_stage = read_stage + 1 == Config::kStages ? 0 : read_stage + 1;
        }
        load(read_stage, (step + 1) % kSteps);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kMmaM; ++i) {
        auto& sum = sums[i + j * Config::kMmaM];
        Mma()(sum, a[i], b[j], sum);
      }
    }
    sums_.end_step(step, accumulators);
  }

  uint8_t* smem_;
  CopyA copy_a_;
  CopyB copy_b_;
  Sums sums_;
  int lines_;
  int lane_a_, lane_b_;  // where this lane reads a stage
  FragmentA a_[2];       // one is multiplied while the other arrives
  FragmentB b_[2];
};

}  // namespace mixed_gemm
