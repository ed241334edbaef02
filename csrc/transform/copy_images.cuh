// Copies images into images of other strides: NCHW <-> channels-last, with channels of zeros added.
// A block turns 32 channels x 32 pixels in shared memory, so that the reads of NCHW and the writes
// of channels-last (and the reverse) are both coalesced; other strides are right, but slower.
#pragma once
#include "grid/pdl.cuh"
#include "transform/args.h"

namespace mixed_gemm {

constexpr int kCopyTile = 32;
constexpr int kCopyRows = 8;  // threads: kCopyTile x kCopyRows

// kPixelsFirst: neighbouring threads read neighbouring pixels and write neighbouring channels;
// else the other way round.
template <typename Word, bool kPixelsFirst>
__global__ void __launch_bounds__(kCopyTile* kCopyRows)
    copy_images_kernel(const CopyImagesArgs p, int tiles_c) {
  __shared__ Word tile[kCopyTile][kCopyTile + 1];  // [channel][pixel]
  pdl_launch_dependents();
  const int64_t pixels = p.h * p.w;
  const int64_t c0 = blockIdx.x % tiles_c * kCopyTile;
  const int64_t pixel0 = static_cast<int64_t>(blockIdx.x / tiles_c) * kCopyTile;
  const auto at = [&](const ImageStrides& s, int64_t c, int64_t pixel) {
    return blockIdx.y * s.image + c * s.c + pixel / p.w * s.h + pixel % p.w * s.w;
  };
  for (int i = threadIdx.y; i < kCopyTile; i += kCopyRows) {
    const int c = kPixelsFirst ? i : threadIdx.x, pixel = kPixelsFirst ? threadIdx.x : i;
    Word word = 0;
    if (c0 + c < p.channels && pixel0 + pixel < pixels) {
      word = static_cast<const Word*>(p.src)[at(p.src_strides, c0 + c, pixel0 + pixel)];
    }
    tile[c][pixel] = word;
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kCopyTile; i += kCopyRows) {
    const int c = kPixelsFirst ? threadIdx.x : i, pixel = kPixelsFirst ? i : threadIdx.x;
    if (c0 + c < p.dst_channels && pixel0 + pixel < pixels) {
      static_cast<Word*>(p.dst)[at(p.dst_strides, c0 + c, pixel0 + pixel)] = tile[c][pixel];
    }
  }
}

}  // namespace mixed_gemm
