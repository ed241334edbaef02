// Brings scales and zeros of one warp's iterations through shared memory, a batch of rows by one
// cp.async for each array, while the warp works with the batch before: the loop has no addresses,
// requests or registers for them. Fewer instructions count there; and with registers left, zero
// points can have weights as they are stored. us, with scales in registers and so:
//
//   28672 x 4096, M = 8, blocks of 64 columns         22.6 -> 20.8, with zero points 23.0 -> 20.9
//   the same in groups of 64                          24.6 -> 21.0, with zero points 30.1 -> 22.3
//   57344 x 8192, M = 1, 32 columns, zero points      68.9 -> 65.9
//   8192 x 8192, M = 1, 16 columns, zero points       12.1 -> 11.5
//
// It does not pay (skinny/config.h) for blocks of 16 and 32 columns without zero points: 2 %.
#pragma once
#include "core/stage_check.h"
#include "cutlass/arch/memory.h"
#include "cutlass/cutlass.h"
#include "skinny/config.cuh"
#include "skinny/scales.cuh"

namespace mixed_gemm {

template <typename Config>
class ScaleStage {
  using Element = typename Config::Element;
  static constexpr int kWarps = Config::kRow.warps;
  static constexpr int kVectorBytes = 16, kVector = kVectorBytes / 2;
  static constexpr int kVectors = Config::kN / kVector;  // of a row
  // Rows of an iteration; of a batch, a vector for each lane; iterations of a batch.
  static constexpr int kGroupSteps =
      Config::kOwnScales ? 4 * Config::kGroupSteps : Config::kGroupSteps;
  static constexpr int kRows = 32 / kVectors, kIterations = kRows / kGroupSteps;
  static constexpr int kRowBytes = Config::kN * 2, kIterationBytes = kGroupSteps * kRowBytes;
  static constexpr int kBatchBytes = kRows * kRowBytes;
  static_assert(kIterations > 0, "a batch is some iterations");

 public:
  using Params = SkinnyScaleParams<Element>;
  struct alignas(2 * kBatchBytes) Storage {
    Element rows[Config::kZeros ? 2 : 1][2 * kRows][Config::kN];  // of scales, of zeros
  };

  __device__ ScaleStage(const Params& params, Storage& storage, int column0)
      : p_(params), column_(column0 + kVector * (lane() % kVectors)) {
    storage_ = cutlass::arch::cutlass_get_smem_pointer(&storage);
  }

  // The address that this lane copies first.
  __device__ const Element* source(int first) const { return p_.scales + offset(first); }

  // Begins a warp's iterations first, first + kWarps .. before end.
  __device__ void start(int first, int end) {
    row_ = own(storage_);
    request(first, end, storage_);
    // Keeps ptxas from moving it behind all weights: 1 to 3 %. (Narrow blocks: 0 to 2 % slower.)
    if (Config::kNTiles == 4) __syncwarp();
  }

  // Called at the head of an iteration, behind its requests.
  __device__ void take(int iteration, int end) {
    if ((row_ & (kBatchBytes - kIterationBytes)) != 0) return;  // not a batch's first
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();  // all lanes have this batch, and have read the one before
    const unsigned half = row_ & kBatchBytes;
    row_ = own(storage_ + half);
    const int next = iteration + kIterations * kWarps;
    if (next < end) request(next, end, storage_ + (kBatchBytes - half));
  }
  __device__ void advance() { row_ += kIterationBytes; }

  __device__ void load(int, int) const {}
  // The scale of column g + 8 h of tile j.
  __device__ float scale(int j, int part, int h) const {
    return SkinnyScales<Config>::to_float(read<false>(j, part, h));
  }
  __device__ float zero(int j, int part, int h) const {
    return SkinnyScales<Config>::to_float(zero_bits(j, part, h));
  }
  __device__ uint32_t zero_bits(int j, int part, int h) const { return read<true>(j, part, h); }
  // Holds the scales of tile j from then on, where weights are scaled.
  __device__ void hold(int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      held_[h] = SkinnyScales<Config>::scale_for_weights(read<false>(j, 0, h),
                                                         Config::kZeros ? read<true>(j, 0, h) : 0u);
    }
  }
  __device__ PackedScale packed(int, int h, int) const { return held_[h]; }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ unsigned own(unsigned row) {
    return row + lane() / 4 * 2 + (Config::kOwnScales ? lane() % 4 * kRowBytes : 0);
  }

  // Written in PTX, or it is a generic load.
  template <bool kZero>
  __device__ uint32_t read(int j, int part, int h) const {
    const int offset = 2 * (16 * j + 8 * h) + part * kRowBytes + (kZero ? 2 * kBatchBytes : 0);
    uint32_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(bits) : "r"(row_ + offset) : "memory");
    return bits;
  }

  // The row of a batch that this lane copies.
  static __device__ int copied_row() { return lane() / kVectors; }
  static __device__ int copied_iteration(int first) {
    return first + copied_row() / kGroupSteps * kWarps;
  }
  __device__ int64_t offset(int first) const {
    int group =
        p_.steps_per_group.div(copied_iteration(first) * kGroupSteps + copied_row() % kGroupSteps);
    // Parts of the last iteration past the end of K take any group that is finite.
    if (kGroupSteps > 1) group = min(group, p_.groups - 1);
    return static_cast<int64_t>(group) * p_.stride + column_;
  }

  // Rows and columns that are not copied belong to iterations or outputs that do not exist.
  __device__ void request(int first, int end, unsigned batch) const {
    const bool exists = copied_iteration(first) < end && column_ < p_.columns;
    const int64_t from = offset(first);
    const unsigned to = batch + kVectorBytes * lane();
    MIXED_GEMM_CHECK_STAGE(int64_t{to} - storage_, kVectorBytes, 2 * kBatchBytes);
    copy_if(exists, to, p_.scales + from);
    if constexpr (Config::kZeros) copy_if(exists, to + 2 * kBatchBytes, p_.zeros + from);
  }
  static __device__ void copy_if(bool exists, unsigned to, const Element* from) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::
            "r"(to),
        "l"(from), "r"(static_cast<int>(exists))
        : "memory");
  }

  const Params& p_;
  int column_;  // the first that this lane copies
  unsigned storage_;
  unsigned row_;  // of the current iteration, where this lane reads it
  PackedScale held_[2];
};

}  // namespace mixed_gemm
