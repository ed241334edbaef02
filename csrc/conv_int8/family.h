// The int8 convolution as the GEMM of pixels and taps.
//
// run() takes channels-last pixels that start on 16 bytes and have whole 16 bytes of channels,
// which input_strides.w counts, and writes channels-last: ops/conv brings both about.
#pragma once
#include "core/family.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct ConvInt8 {
  static const Family<ConvInt8Problem> plan;
  static Run<ConvInt8Problem> run;
};

}  // namespace mixed_gemm
