// Operand A: row-major 16-bit activations, device memory -> shared memory by cp.async, shared
// memory -> mma fragments by ldmatrix. Not CUTLASS's predicated iterator, because that one visits a
// ragged k-tile first, and the k-tiles of A must stay in step with those of the packed weight.
#pragma once
#include "cutlass/arch/memory_sm75.h"
#include "cutlass/arch/memory_sm80.h"
#include "cutlass/array.h"
#include "layout/smem_tile.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

template <typename Config>
class ActivationCopy {
  static constexpr int kRowsPerPass = Config::kThreads / kChunksPerLine;
  static constexpr int kPasses = Config::kTile.m / kRowsPerPass;
  static_assert(Config::kTile.m % kRowsPerPass == 0 && kRowsPerPass % 8 == 0,
                "a thread keeps its swizzle phase");

 public:
  using Element = typename Config::Element;
  static constexpr int kStageBytes = Config::kTile.m * WeightLayout<4>::kLineBytes;

  struct Params {
    const Element* a;     // [m, k]
    int64_t stride;       // elements between rows
    int64_t pass_stride;  // kRowsPerPass rows; from the host, so that it stays in constant memory
    int m, k;
  };
  static Params params(const Element* a, int64_t stride, int m, int k) {
    return {a, stride, stride * kRowsPerPass, m, k};
  }

  // This block reads rows from row0 on.
  __device__ ActivationCopy(const Params& params, int row0, int thread)
      : params_(params),
        row_(row0 + thread / kChunksPerLine),
        k_(thread % kChunksPerLine * 8),
        source_(params.a + row_ * params.stride + k_),
        smem_offset_(SmemActivationTile::offset(thread / kChunksPerLine, thread % kChunksPerLine)) {
  }

  __device__ void copy(int k_tile, uint8_t* stage) const {
    const bool in_k = k_tile * kTileK + k_ < params_.k;
    CUTLASS_PRAGMA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      cutlass::arch::cp_async_zfill<kChunkBytes, cutlass::arch::CacheOperation::Global>(
          stage + smem_offset_ + pass * kRowsPerPass * WeightLayout<4>::kLineBytes,
          source_ + static_cast<int64_t>(k_tile) * kTileK + pass * params_.pass_stride,
          in_k && row_ + pass * kRowsPerPass < params_.m);
    }
  }

 private:
  const Params& params_;
  int row_, k_;
  const Element* source_;
  int smem_offset_;
};

// The fragments of one mma step: kMmaM tiles of 16 x 16.
template <typename Config>
struct ActivationFragment {
  cutlass::Array<typename Config::Element, 8> tile[Config::kMmaM];

  __device__ void load(const uint8_t* stage, int warp_row0, int step, int lane) {
    // ldmatrix.x4 order a0..a3: rows 0-7 and 8-15 of the first 8 k, then of the last 8 k.
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kMmaM; ++i) {
      const int row = warp_row0 + 16 * i + lane % 16;
      cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(
          reinterpret_cast<cutlass::Array<unsigned, 4>&>(tile[i]),
          stage + SmemActivationTile::offset(row, 2 * step + lane / 16));
    }
  }
};

}  // namespace mixed_gemm
