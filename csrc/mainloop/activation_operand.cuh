// Operand A: row-major 16-bit activations, device memory -> shared memory by cp.async, shared
// memory -> mma fragments by ldmatrix. CUTLASS's predicated iterator will not do: it visits a
// ragged k-tile first, and the k-tiles of A must stay in step with those of the packed weight.
#pragma once
#include "core/stage_check.h"
#include "cutlass/arch/memory_sm75.h"
#include "cutlass/arch/memory_sm80.h"
#include "cutlass/array.h"
#include "layout/swizzled_lines.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

template <typename Config>
class ActivationCopy {
  static constexpr int kRowsPerPass = Config::kThreads / kChunksPerLine;
  static constexpr int kPasses = Config::kTile.m / kRowsPerPass;
  static_assert(Config::kTile.m % kRowsPerPass == 0 && kRowsPerPass % 8 == 0,
                "a thread keeps its swizzle phase");
  static_assert(Config::kKWarps == 1, "all threads of the block copy together");

 public:
  using Element = typename Config::Element;
  static constexpr int kStageBytes = Config::kTile.m * kLineBytes;

  struct Shared {};  // nothing beside the stages
  struct Params {
    const Element* a;     // [m, k]
    int64_t stride;       // elements between rows
    int64_t pass_stride;  // kRowsPerPass rows; from the host, so that it stays in constant memory
    int m, k;
  };
  static Params params(const Element* a, int64_t stride, int m, int k) {
    return {a, stride, stride * kRowsPerPass, m, k};
  }

  // This block reads rows from row0 on, k-tiles [begin, end).
  __device__ ActivationCopy(const Params& params, const Shared&, int row0, int begin, int end,
                            int thread)
      : params_(params),
        smem_offset_(SwizzledLines::offset(thread / kChunksPerLine, thread % kChunksPerLine)) {
    const int row = row0 + thread / kChunksPerLine;
    const int k = begin * kTileK + thread % kChunksPerLine * 8;
    source_ = params.a + row * params.stride + k;
    k_left_ = min(params.k, end * kTileK) - k;
    CUTLASS_PRAGMA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      rows_ |= (row + pass * kRowsPerPass < params.m ? 1u : 0u) << pass;
    }
  }

  // Copies part `part` of `parts` of the current k-tile; zeros past the end.
  __device__ void copy(int part, int parts, uint8_t* stage) const {
    const uint32_t rows = k_left_ > 0 ? rows_ : 0u;
    CUTLASS_PRAGMA_UNROLL
    for (int pass = kPasses * part / parts; pass < kPasses * (part + 1) / parts; ++pass) {
      const int to = smem_offset_ + pass * kRowsPerPass * kLineBytes;
      MIXED_GEMM_CHECK_STAGE(to, kChunkBytes, kStageBytes);
      cutlass::arch::cp_async_zfill<kChunkBytes, cutlass::arch::CacheOperation::Global>(
          stage + to, source_ + pass * params_.pass_stride, rows >> pass & 1u);
    }
  }
  __device__ void next() {
    k_left_ -= kTileK;
    source_ += kTileK;
  }

 private:
  const Params& params_;
  int k_left_;
  uint32_t rows_ = 0;  // bit of a pass: its row exists
  const Element* source_;
  int smem_offset_;
};

// Fragments of 16 x 16, in a ring: tile i of a warp's kMmaM is in place i % kRing.
template <typename Config>
struct ActivationFragment {
  static constexpr int kRing = Config::kMmaM < 2 ? 1 : 2;
  static_assert(Config::kMmaM % kRing == 0, "tile i keeps its place in every step");
  cutlass::Array<typename Config::Element, 8> tile[kRing];

  // Where the lane reads step 0 of the first tile; step s is at offset ^ step_xor(s).
  static __device__ int lane_offset(int warp_row0, int lane) {
    return SwizzledLines::offset(warp_row0 + lane % 16, lane / 16);
  }
  static constexpr int step_xor(int step) { return 2 * step * kChunkBytes; }

  // ldmatrix.x4 order a0..a3: rows 0-7 and 8-15 of the first 8 k, then of the last 8 k.
  __device__ void load(int i, const uint8_t* lane_source) {
    cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(
        reinterpret_cast<cutlass::Array<unsigned, 4>&>(tile[i % kRing]),
        lane_source + 16 * i * kLineBytes);
  }
};

}  // namespace mixed_gemm
