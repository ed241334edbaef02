#include <algorithm>

#include "kernel/copy_images_kernel.cuh"

namespace mixed_gemm {
namespace {

template <typename Word>
int copy_images(const CopyImagesArgs& args) {
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
