// An operand that needs no conversion: rows of bytes along K, device memory -> shared memory by
// cp.async in lines of 128 bytes, shared memory -> mma fragments by ldmatrix.
#pragma once
#include "core/stage_check.h"
#include "cutlass/arch/memory_sm75.h"
#include "cutlass/arch/memory_sm80.h"
#include "cutlass/array.h"
#include "layout/swizzled_lines.h"

namespace mixed_gemm {

// kRows rows of a tile, copied by kThreads threads.
template <int kRows, int kThreads>
class RowCopy {
  static constexpr int kLineBytes = kChunksPerLine * kChunkBytes;
  static constexpr int kRowsPerPass = kThreads / kChunksPerLine;
  static constexpr int kPasses = kRows / kRowsPerPass;
  static_assert(kRows % kRowsPerPass == 0 && kRowsPerPass % 8 == 0,
                "a thread keeps its swizzle phase");

 public:
  static constexpr int kStageBytes = kRows * kLineBytes;

  struct Shared {};  // nothing beside the stages
  struct Params {
    const uint8_t* rows;  // starts on 16 bytes
    int64_t stride;       // bytes between rows, a multiple of 16
    int64_t pass_stride;  // kRowsPerPass rows; from the host, so that it stays in constant memory
    int count;            // rows
    int k;                // bytes of a row, any number
  };
  static Params params(const void* rows, int64_t stride, int count, int k) {
    return {static_cast<const uint8_t*>(rows), stride, stride * kRowsPerPass, count, k};
  }

  // This block reads rows from row0 on, lines [begin, end) of K.
  __device__ RowCopy(const Params& params, const Shared&, int row0, int begin, int end, int thread)
      : params_(params),
        smem_offset_(SwizzledLines::offset(thread / kChunksPerLine, thread % kChunksPerLine)) {
    const int row = row0 + thread / kChunksPerLine;
    const int k = begin * kLineBytes + thread % kChunksPerLine * kChunkBytes;
    source_ = params.rows + row * params.stride + k;
    k_left_ = min(params.k, end * kLineBytes) - k;
    CUTLASS_PRAGMA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      exists_ |= (row + pass * kRowsPerPass < params.count ? 1u : 0u) << pass;
    }
  }

  // Copies part `part` of `parts` of the current line; zeros past the end.
  __device__ void copy(int part, int parts, uint8_t* stage) const {
    const int bytes = max(0, min(k_left_, kChunkBytes));
    CUTLASS_PRAGMA_UNROLL
    for (int pass = kPasses * part / parts; pass < kPasses * (part + 1) / parts; ++pass) {
      const int to = smem_offset_ + pass * kRowsPerPass * kLineBytes;
      MIXED_GEMM_CHECK_STAGE(to, kChunkBytes, kStageBytes);
      copy_chunk(stage + to, source_ + pass * params_.pass_stride,
                 exists_ >> pass & 1u ? bytes : 0);
    }
  }
  __device__ void next() {
    k_left_ -= kLineBytes;
    source_ += kLineBytes;
  }

 private:
  // Copies the first `bytes` of 16, then zeros. CUTLASS's cp_async_zfill copies all or nothing. To
  // compute-sanitizer this reads all 16: our own copies of rows fill with zeros what it does not.
  static __device__ void copy_chunk(void* to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
                     cutlass::arch::cutlass_get_smem_pointer(to)),
                 "l"(from), "r"(bytes));
  }

  const Params& params_;
  int k_left_;
  uint32_t exists_ = 0;  // bit of a pass: its row exists
  const uint8_t* source_;
  int smem_offset_;
};

// Fragments of mma.m16n8k32 for the kCount rows of a warp from `row0` of a tile on, one mma step
// (32 bytes of K) at a time. kOrder: which of four 8 x 16 byte matrices ldmatrix gives first.
//   left operand (16 rows a tile): rows 0-7, rows 8-15, then the same of the next 16 bytes
//   right operand (8 rows a tile): both halves of rows 0-7, then both of rows 8-15
enum class Side { kLeft, kRight };

template <Side kSide, int kCount>
struct RowFragment {
  static constexpr int kLoads = kCount / 16;
  static_assert(kCount % 16 == 0, "one ldmatrix.x4 is 16 rows");
  uint32_t words[4 * kLoads];

  // Where the lane reads step 0; step s is at offset ^ step_xor(s).
  static __device__ int lane_offset(int row0, int lane) {
    const int low = lane % 8, bit3 = lane / 8 % 2, bit4 = lane / 16;
    return kSide == Side::kLeft ? SwizzledLines::offset(row0 + low + 8 * bit3, bit4)
                                : SwizzledLines::offset(row0 + low + 8 * bit4, bit3);
  }
  static constexpr int step_xor(int step) { return 2 * step * kChunkBytes; }

  __device__ void load(const uint8_t* lane_source) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(
          reinterpret_cast<cutlass::Array<unsigned, 4>*>(words)[i],
          lane_source + 16 * i * kChunksPerLine * kChunkBytes);
    }
  }
};

}  // namespace mixed_gemm
