// What the convolutions and the block GEMM accept; the twin of support.h. Error texts come from
// here.
#pragma once
#include <string>

#include "problem/conv.h"

namespace mixed_gemm {

// Why no backend runs this geometry, or empty. `shape` is as the user gave it, out_h and out_w
// computed: images that are too large, kernels that do not fit, a stride of 0.
std::string why_not_conv_shape(const ConvShape& shape);

// Why block_size (as the user gave it, -1: one block) does not cut `extent` elements, called
// `extent_name`; or empty.
std::string why_not_block_size(const char* extent_name, int64_t extent, int64_t block_size);

// why_not_conv_shape, and what the weights add. Empty: accepted.
std::string why_not_conv(const ConvShape& shape, int64_t bits, int64_t block_size);
std::string why_not_conv_int8(const ConvShape& shape);

// Why no backend runs the block GEMM, or empty.
std::string why_not_block_gemm(int64_t m, int64_t n, int64_t k, int64_t block_size);

}  // namespace mixed_gemm
