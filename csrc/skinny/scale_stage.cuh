// Scales and zeros of one warp's iterations through shared memory, a batch of rows by one cp.async
// for each array, while the warp works with the batch before: in the loop no addresses, requests,
// or registers for them. Fewer instructions are what counts there; and since they leave registers,
// zero points can have weights as they are stored (us with scales in registers):
//
//   28672 x 4096, M = 8, blocks of 64 columns    22.6 -> 20.8, with zero points 23.0 -> 20.9
//   57344 x 8192, M = 1, 32 columns, zero points 68.9 -> 66.1
//   8192 x 8192, M = 1, 16 columns, zero points  12.2 -> 11.7
//
// Blocks of 16 and 32 columns without zero points were 2 % faster with registers.
#pragma once
#include "cutlass/arch/memory.h"
#include "cutlass/cutlass.h"
#include "skinny/skinny_config.cuh"
#include "skinny/skinny_scales.cuh"

namespace mixed_gemm {

template <typename Config>
class ScaleStage {
  using Element = typename Config::Element;
  static constexpr int kWarps = Config::kRow.warps;
  static constexpr int kVectorBytes = 16, kVector = kVectorBytes / 2;
  static constexpr int kVectors = Config::kN / kVector;  // of a row
  static constexpr int kRows = 32 / kVectors;            // of a batch: a vector for each lane
  static constexpr int kRowBytes = Config::kN * 2, kBatchBytes = kRows * kRowBytes;

 public:
  using Params = SkinnyScaleParams<Element>;
  struct alignas(2 * kBatchBytes) Storage {
    Element rows[Config::kZeros ? 2 : 1][2 * kRows][Config::kN];  // of scales, of zeros
  };

  __device__ ScaleStage(const Params& params, Storage& storage, int column0)
      : p_(params), column_(column0 + kVector * (lane() % kVectors)) {
    storage_ = cutlass::arch::cutlass_get_smem_pointer(&storage);
  }

  // What this lane copies first.
  __device__ const Element* source(int first) const { return p_.scales + offset(first); }

  // For a warp's iterations first, first + kWarps .. before end.
  __device__ void start(int first, int end) {
    row_ = own(storage_);
    request(first, end, storage_);
    // Or ptxas puts it behind the weights of all tiles: 1 to 3 %. (Narrow blocks: 0 to 2 % slower.)
    if (Config::kNTiles == 4) __syncwarp();
  }

  // At the head of an iteration, behind its requests.
  __device__ void take(int iteration, int end) {
    if ((row_ & (kBatchBytes - kVectorBytes)) != 0) return;  // not a first row
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();  // all lanes have this batch, and have read the one before
    const unsigned half = row_ & kBatchBytes;
    row_ = own(storage_ + half);
    const int next = iteration + kRows * kWarps;
    if (next < end) request(next, end, storage_ + (kBatchBytes - half));
  }
  __device__ void advance() { row_ += kRowBytes; }

  __device__ void load(int, int) const {}
  // Of column g + 8 h of tile j.
  __device__ float scale(int j, int, int h) const { return read(2 * (16 * j + 8 * h)); }
  __device__ float zero(int j, int, int h) const {
    return read(2 * (16 * j + 8 * h) + 2 * kBatchBytes);
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ unsigned own(unsigned row) { return row + lane() / 4 * 2; }

  // In PTX, or it is a generic load.
  __device__ float read(int offset) const {
    uint32_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(bits) : "r"(row_ + offset) : "memory");
    return SkinnyScales<Config>::to_float(bits);
  }

  // This lane's iteration of a batch.
  static __device__ int own_iteration(int first) { return first + lane() / kVectors * kWarps; }
  __device__ int64_t offset(int first) const {
    const int group = p_.units_per_group.div(own_iteration(first));
    return static_cast<int64_t>(group) * p_.stride + column_;
  }

  // What is not copied belongs to iterations or columns that do not exist.
  __device__ void request(int first, int end, unsigned batch) const {
    const bool exists = own_iteration(first) < end && column_ < p_.columns;
    const int64_t from = offset(first);
    const unsigned to = batch + kVectorBytes * lane();
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
};

}  // namespace mixed_gemm
