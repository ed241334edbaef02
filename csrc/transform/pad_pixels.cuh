// Copies images of few channels to channels-last pixels with channels of zeros added, a thread for
// 16 bytes of them. Neighbouring threads read neighbouring pixels, so NCHW and channels-last are
// both read in whole lines. (Turning 32 x 32 in shared memory, as copy_images.cuh does, took 10 us
// for 3 x 224 x 224 on an H200: 29 of 32 channels are not there.)
#pragma once
#include "cutlass/fast_math.h"
#include "grid/pdl.cuh"
#include "transform/args.h"

namespace mixed_gemm {

struct PadPixelsParams {
  CopyImagesArgs images;
  int chunks;  // of 16 bytes, of all pixels
  cutlass::FastDivmod by_pixel, by_w, by_h;
};

template <typename Word>
__global__ void pad_pixels_kernel(const __grid_constant__ PadPixelsParams p) {
  constexpr int kWords = sizeof(uint4) / sizeof(Word);
  pdl_launch_dependents();
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index >= p.chunks) return;
  int pixel, chunk, line, x, image, y;
  p.by_pixel(pixel, chunk, index);
  p.by_w(line, x, pixel);
  p.by_h(image, y, line);
  const ImageStrides& s = p.images.src_strides;
  const Word* source = static_cast<const Word*>(p.images.src) + image * s.image + y * s.h + x * s.w;
  alignas(16) Word words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int c = chunk * kWords + i;
    words[i] = c < p.images.channels ? source[c * s.c] : Word(0);
  }
  static_cast<uint4*>(p.images.dst)[index] = reinterpret_cast<const uint4&>(words);
}

}  // namespace mixed_gemm
