// Operand B: the packed weight, device memory -> shared memory by cp.async in whole 128-byte lines,
// shared memory -> registers by ldmatrix. After the row permutation of the layout, the 32-bit word
// that ldmatrix gives a lane holds just the elements of that lane's mma fragment.
#pragma once
#include "core/stage_check.h"
#include "cutlass/arch/memory_sm75.h"
#include "cutlass/arch/memory_sm80.h"
#include "dequant/weight_converter.h"
#include "layout/swizzled_lines.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

template <typename Config>
class WeightCopy {
  using Weight = typename Config::Weight;
  using Layout = WeightLayout<Weight>;
  static constexpr int kLines = Config::kTile.n / Layout::kInterleave;
  static constexpr int kLinesPerPass = Config::kSliceThreads / kChunksPerLine;
  static constexpr int kPasses = kLines / kLinesPerPass;
  static_assert(kLines % kLinesPerPass == 0 && kLinesPerPass % Layout::kBlocksPerTile == 0,
                "a thread keeps its swizzle phase");

 public:
  static constexpr int kStageBytes = kLines * kLineBytes;

  struct Params {
    const uint8_t* b;     // packed weight
    int64_t line_stride;  // bytes between lines of one k-tile
    int64_t pass_stride;  // kLinesPerPass of them
    int lines;            // n_pad / I
    CodeValues<Weight> values;
  };
  static Params params(const uint8_t* b, int n_pad, int k_tiles,
                       const CodeValues<Weight>& values = {}) {
    const int64_t line_stride = static_cast<int64_t>(k_tiles) * kLineBytes;
    return {b, line_stride, line_stride * kLinesPerPass, n_pad / Layout::kInterleave, values};
  }

  // This block reads columns from column0 on, k-tiles from k_tile on.
  __device__ WeightCopy(const Params& params, int column0, int k_tile, int thread)
      : params_(params),
        smem_offset_(
            SwizzledWeightLines<Weight>::offset(thread / kChunksPerLine, thread % kChunksPerLine)) {
    const int line = column0 / Layout::kInterleave + thread / kChunksPerLine;
    source_ = params.b + line * params.line_stride + static_cast<int64_t>(k_tile) * kLineBytes +
              thread % kChunksPerLine * kChunkBytes;
    CUTLASS_PRAGMA_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      lines_ |= (line + pass * kLinesPerPass < params.lines ? 1u : 0u) << pass;
    }
  }

  // Copies part `part` of `parts` of the current k-tile, or zeros if it is not wanted.
  __device__ void copy(int part, int parts, bool wanted, uint8_t* stage) const {
    const uint32_t lines = wanted ? lines_ : 0u;
    CUTLASS_PRAGMA_UNROLL
    for (int pass = kPasses * part / parts; pass < kPasses * (part + 1) / parts; ++pass) {
      const int to = smem_offset_ + pass * kLinesPerPass * kLineBytes;
      MIXED_GEMM_CHECK_STAGE(to, kChunkBytes, kStageBytes);
      cutlass::arch::cp_async_zfill<kChunkBytes, cutlass::arch::CacheOperation::Global>(
          stage + to, source_ + pass * params_.pass_stride, lines >> pass & 1u);
    }
  }
  __device__ void next() { source_ += kLineBytes; }

 private:
  const Params& params_;
  uint32_t lines_ = 0;  // bit of a pass: its line exists
  const uint8_t* source_;
  int smem_offset_;
};

// One word per lane and octet of columns: kStepsPerWord mma steps of a warp's columns, still
// packed.
template <typename Config>
struct WeightFragment {
  using Weight = typename Config::Weight;
  cutlass::Array<unsigned, 4> words[Config::kMmaN / 4];

  // Where the lane reads block 0 of the first octets (ldmatrix: lanes 8j .. 8j + 7 address octet
  // j); block b is at offset ^ block_xor(b).
  static __device__ int lane_offset(int warp_column0, int lane) {
    return SwizzledWeightLines<Weight>::offset_of_column(warp_column0 + lane, 0);
  }
  static constexpr int block_xor(int block) { return block * kChunkBytes; }

  __device__ void load(const uint8_t* lane_source) {
    constexpr int kBytes = 32 / WeightLayout<Weight>::kInterleave * kLineBytes;  // of 32 columns
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kMmaN / 4; ++i) {
      cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(words[i], lane_source + i * kBytes);
    }
  }

  __device__ void convert(const typename Config::Converter& converter, int octet, int step,
                          uint32_t (&pairs)[2]) const {
    converter.convert_step(words[octet / 4][octet % 4], step % kStepsPerWord<Weight>, pairs);
  }
};

}  // namespace mixed_gemm
