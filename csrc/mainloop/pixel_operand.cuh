// Operand A of a convolution as a GEMM: row = output pixel, K = (tap of the filter, channel). The
// rows of that matrix are never written anywhere: each 16-byte chunk is copied from the pixel of
// the channels-last input that its row and tap meet.
#pragma once
#include "core/stage_check.h"
#include "cutlass/arch/memory_sm80.h"
#include "cutlass/fast_math.h"
#include "layout/swizzled_lines.h"
#include "problem/conv.h"

namespace mixed_gemm {

// Sixteen bytes of every byte value: an int8 convolution reads them outside of the image, where the
// input is its zero point.
struct PaddingChunks {
  uint8_t bytes[256][kChunkBytes];
  constexpr PaddingChunks() : bytes() {
    for (int value = 0; value < 256; ++value) {
      for (int i = 0; i < kChunkBytes; ++i) bytes[value][i] = static_cast<uint8_t>(value);
    }
  }
};
static __device__ const PaddingChunks kPaddingChunks;

// kRows rows of a tile, copied by kThreads threads. A block of kKWarps times as many has kThreads
// for each part of K. kPadded: outside is `padding`, else zero.
template <int kRows, int kThreads, int kKWarps, bool kPadded>
class PixelCopy {
  static constexpr int kLineBytes = kChunksPerLine * kChunkBytes;
  static constexpr int kRowsPerPass = kThreads / kChunksPerLine;
  static constexpr int kPasses = kRows / kRowsPerPass;
  static_assert(kRows % kRowsPerPass == 0 && kRowsPerPass % 4 == 0,
                "a thread's swizzle phases are exchanged by one bit");
  static constexpr int kNowhere = -(1 << 30);  // a coordinate outside of every image

 public:
  static constexpr int kStageBytes = kRows * kLineBytes;

  struct Params {
    const uint4* pixels;
    int chunks;      // of a pixel, in memory
    int tap_chunks;  // of a tap along K, at least as many; those beyond the pixel's count as
                     // outside
    int k_chunks;    // taps * tap_chunks
    int h, w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int rows;  // output pixels
    uint8_t padding;
    cutlass::FastDivmod by_tap, by_kernel_w, by_out_h, by_out_w;
  };
  static Params params(const ConvShape& s, const void* pixels, int pixel_bytes, int tap_bytes,
                       int8_t padding = 0) {
    const int tap_chunks = tap_bytes / kChunkBytes;
    const auto small = [](int64_t x) { return static_cast<int>(x); };  // dispatch/ limits them
    return {static_cast<const uint4*>(pixels),
            pixel_bytes / kChunkBytes,
            tap_chunks,
            small(s.taps() * tap_chunks),
            small(s.in_h),
            small(s.in_w),
            small(s.stride_h),
            small(s.stride_w),
            small(s.padding_h),
            small(s.padding_w),
            small(s.dilation_h),
            small(s.dilation_w),
            small(s.rows()),
            static_cast<uint8_t>(padding),
            cutlass::FastDivmod(tap_chunks),
            cutlass::FastDivmod(small(s.kernel_w)),
            cutlass::FastDivmod(small(s.out_h)),
            cutlass::FastDivmod(small(s.out_w))};
  }

  // A row: the pixel that tap (0, 0) meets, and that pixel's first chunk, wherever it lies.
  struct Row {
    int chunk, y, x, unused;
  };
  struct Shared {
    alignas(16) Row rows[kRows];  // in registers they would not fit beside a large tile's sums
  };

  // These threads read rows from row0 on, lines [begin, end) of K. thread: of the block.
  __device__ PixelCopy(const Params& params, Shared& shared, int row0, int begin, int end,
                       int thread)
      : params_(params),
        k_chunk_(begin * kChunksPerLine + thread % kChunksPerLine),
        k_end_(min(params.k_chunks, end * kChunksPerLine)) {
    for (int i = thread; i < kRows; i += kThreads * kKWarps) shared.rows[i] = row(row0 + i);
    __syncthreads();
    if (kKWarps > 1) thread %= kThreads;
    rows_ = shared.rows + thread / kChunksPerLine;
    smem_offset_ = SwizzledLines::offset(thread / kChunksPerLine, thread % kChunksPerLine);
    find_tap();
  }

  // Copies part `part` of `parts` of the current line.
  __device__ void copy(int part, int parts, uint8_t* stage) const {
    CUTLASS_PRAGMA_UNROLL
    for (int pass = kPasses * part / parts; pass < kPasses * (part + 1) / parts; ++pass) {
      const int4 row = reinterpret_cast<const int4*>(rows_)[pass * kRowsPerPass];
      const bool inside =
          static_cast<unsigned>(row.y + tap_y_) < static_cast<unsigned>(params_.h) &&
          static_cast<unsigned>(row.z + tap_x_) < static_cast<unsigned>(params_.w);
      const uint4* source = params_.pixels + (row.x + tap_chunk_);
      uint8_t* target = stage + (smem_offset_ ^ SwizzledLines::rows_xor(pass * kRowsPerPass)) +
                        pass * kRowsPerPass * kLineBytes;
      constexpr auto kGlobal = cutlass::arch::CacheOperation::Global;
      MIXED_GEMM_CHECK_STAGE(target - stage, kChunkBytes, kStageBytes);
      if constexpr (kPadded) {
        const auto* padding = reinterpret_cast<const uint4*>(kPaddingChunks.bytes[params_.padding]);
        cutlass::arch::cp_async<kChunkBytes, kGlobal>(target, inside ? source : padding);
      } else {
        cutlass::arch::cp_async_zfill<kChunkBytes, kGlobal>(target, source, inside);
      }
    }
  }
  __device__ void next() {
    k_chunk_ += kChunksPerLine;
    find_tap();
  }

 private:
  __device__ Row row(int index) const {
    if (index >= params_.rows) return {0, kNowhere, kNowhere, 0};
    int image_row, x, image, y;
    params_.by_out_w(image_row, x, index);
    params_.by_out_h(image, y, image_row);
    y = y * params_.stride_h - params_.pad_h;
    x = x * params_.stride_w - params_.pad_w;
    return {((image * params_.h + y) * params_.w + x) * params_.chunks, y, x, 0};
  }

  // Finds the tap of this thread's chunk of the current line; an impossible one past the end.
  __device__ void find_tap() {
    int tap, chunk, tap_y, tap_x;
    params_.by_tap(tap, chunk, k_chunk_);
    params_.by_kernel_w(tap_y, tap_x, tap);
    tap_y *= params_.dilation_h;
    tap_x_ = tap_x * params_.dilation_w;
    tap_chunk_ = (tap_y * params_.w + tap_x_) * params_.chunks + chunk;
    tap_y_ = k_chunk_ < k_end_ && chunk < params_.chunks ? tap_y : kNowhere;
  }

  const Params& params_;
  const Row* rows_;
  int smem_offset_;
  int k_chunk_, k_end_;
  int tap_y_, tap_x_, tap_chunk_;
};

}  // namespace mixed_gemm
