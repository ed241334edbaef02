// The shared memory of a convolution beside its stages.
#pragma once

namespace mixed_gemm {

// A row of shared memory per output pixel of a tile says where it is.
constexpr int kConvRowBytes = 16;

}  // namespace mixed_gemm
