// How a convolution filter [Co, Ci, Kh, Kw] becomes the [N, K] weight of weight_layout.h: N = Co,
// and K runs over the taps (kh slowest, then kw), each with channels_per_tap(Ci) channels,
// innermost; channels from Ci on hold q = 0. The packer, the CPU and the CUDA kernels use it.
//
// A one-tap filter has the same packed bytes as its [Co, Ci] matrix.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/macros.h"
#include "core/quant_scheme.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {

// Channels of one tap in K. THE rule: a k-tile of 64 holds channels of one tap, or whole taps.
//   Ci > 32:  a multiple of 64, so that a k-tile lies within a tap
//   Ci <= 32: 8, 16 or 32, so that a k-tile holds 8, 4 or 2 taps and 16 bytes of fp16 one of them
// Powers of two rather than multiples of 8 below 32 (24 would straddle k-tiles): taps of a k-tile
// come from shifts, and block boundaries stay on multiples of 16 wherever there are two blocks,
// because a block is a multiple of 16 channels.
constexpr MIXED_GEMM_HOST_DEVICE int64_t channels_per_tap(int64_t in_c) {
  return in_c > 32 ? round_up(in_c, int64_t{kPadK}) : (in_c > 16 ? 32 : (in_c > 8 ? 16 : 8));
}

// K of the packed filter, before its padding to whole k-tiles of 64.
constexpr MIXED_GEMM_HOST_DEVICE int64_t conv_k(int64_t in_c, int64_t taps) {
  return taps * channels_per_tap(in_c);
}

// The largest number of channels that divides a tap and a block: in groups of this many, K of the
// packed filter is an ordinary group-wise weight, whose group g has the scale of block_of_group(g).
// Several blocks: a multiple of 16. One block: all of K, as a per-channel weight.
struct ConvGroups {
  int64_t size;   // elements of K
  int64_t count;  // in K

  ConvGroups(int64_t in_c, int64_t taps, int64_t block_size)
      : channels_(channels_per_tap(in_c)), block_size_(block_size), in_c_(in_c) {
    const bool one_block = block_size >= in_c;
    size = one_block ? taps * channels_ : greatest_common_divisor(channels_, block_size);
    count = taps * channels_ / size;
  }

  // Row of scales, or -1: the group lies beyond Ci, where q and the activations are 0.
  int64_t block_of_group(int64_t group) const {
    const int64_t channel = group * size % channels_;
    return channel < in_c_ ? channel / block_size_ : -1;
  }

 private:
  static constexpr int64_t greatest_common_divisor(int64_t a, int64_t b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
  }

  int64_t channels_, block_size_, in_c_;
};

}  // namespace mixed_gemm
