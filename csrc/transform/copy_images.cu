#include <algorithm>
#include <limits>

#include "transform/copy_images.cuh"
#include "transform/pad_pixels.cuh"

namespace mixed_gemm {
namespace {

// Whether the destination has dense channels-last pixels of a few times 16 bytes.
template <typename Word>
bool pads_pixels(const CopyImagesArgs& a) {
  constexpr int64_t kVector = sizeof(uint4), kMostChunks = 4;
  const int64_t bytes = a.dst_channels * static_cast<int64_t>(sizeof(Word));
  const ImageStrides& to = a.dst_strides;
  const int64_t pixels = a.images * a.h * a.w;
  return bytes % kVector == 0 && bytes <= kMostChunks * kVector &&
         pixels * kMostChunks < std::numeric_limits<int>::max() && to.c == 1 &&
         to.w == a.dst_channels && to.h == to.w * a.w && to.image == to.h * a.h &&
         reinterpret_cast<uintptr_t>(a.dst) % kVector == 0;
}

template <typename Word>
int pad_pixels(const CopyImagesArgs& a) {
  constexpr int kThreads = 128;
  const auto small = [](int64_t x) { return static_cast<int>(x); };
  const int chunks = small(a.dst_channels * sizeof(Word) / sizeof(uint4));
  PadPixelsParams params{a, small(a.images * a.h * a.w) * chunks, cutlass::FastDivmod(chunks),
                         cutlass::FastDivmod(small(a.w)), cutlass::FastDivmod(small(a.h))};
  pad_pixels_kernel<Word><<<static_cast<unsigned>(ceil_div(params.chunks, kThreads)), kThreads, 0,
                            static_cast<cudaStream_t>(a.stream)>>>(params);
  return cudaGetLastError();
}

template <typename Word>
int copy_images(const CopyImagesArgs& args) {
  if (pads_pixels<Word>(args)) return pad_pixels<Word>(args);
  constexpr int64_t kMaxGrid = 65535;
  const auto tiles_c = static_cast<int>(ceil_div(args.dst_channels, kCopyTile));
  const int64_t tiles = ceil_div(args.h * args.w, kCopyTile) * tiles_c;
  const bool from_channels_last = args.src_strides.c == 1;
  CopyImagesArgs part = args;
  for (int64_t first = 0; first < args.images; first += kMaxGrid) {
    const int64_t images = std::min(kMaxGrid, args.images - first);
    part.src = static_cast<const Word*>(args.src) + first * args.src_strides.image;
    part.dst = static_cast<Word*>(args.dst) + first * args.dst_strides.image;
    auto* kernel =
        from_channels_last ? copy_images_kernel<Word, false> : copy_images_kernel<Word, true>;
    kernel<<<dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(images)),
             dim3(kCopyTile, kCopyRows), 0, static_cast<cudaStream_t>(args.stream)>>>(part,
                                                                                      tiles_c);
  }
  return cudaGetLastError();
}

}  // namespace

int launch_copy_images(const CopyImagesArgs& args) {
  switch (args.element_bytes) {
    case 1:
      return copy_images<uint8_t>(args);
    case 2:
      return copy_images<uint16_t>(args);
    default:
      return copy_images<uint32_t>(args);
  }
}

}  // namespace mixed_gemm
