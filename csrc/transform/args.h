// Arguments of the kernels that bring operands into another form: plain data, no CUTLASS.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "problem/awq.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct PackArgs {
  WeightType weight = WeightType::kInt4;
  int64_t n = 0, k = 0;
  int8_t* q = nullptr;  // [n, k], contiguous
  uint8_t* packed = nullptr;
  void* stream = nullptr;
};

// bits 2, 3 and 4 give a packed 4-bit weight, 8 an 8-bit one (layout/checkpoint_layout.h).
struct RepackArgs {
  int bits = 4;
  int64_t n = 0, k = 0;
  const uint32_t* qweight = nullptr;
  const int32_t* perm = nullptr;  // GPTQ only: [k], or null
  uint8_t* packed = nullptr;
  void* stream = nullptr;
};

struct DequantizeArgs {
  QuantScheme scheme;
  int64_t n = 0, k = 0;
  const uint8_t* b_packed = nullptr;
  ElementType scale_type = ElementType::kFloat16;
  const void* scales = nullptr;
  const void* zeros = nullptr;
  int64_t scale_stride = 0;
  int64_t groups = 1;             // rows of scales
  const float* factor = nullptr;  // [n] or null, of floats
  ElementType out_type = ElementType::kFloat16;
  int64_t k_period = 0;  // scales repeat after so many k, as over the taps of a filter; 0: never
  void* out = nullptr;   // [n, k], contiguous
  void* stream = nullptr;
};

// dst[r, c] = src[r * src_stride + c] * (pre_scale ? pre_scale[c] : 1) for c < columns, 0 for
// columns <= c < dst_columns. Brings odd strides, odd alignment, ragged widths and activation
// scales into the form the GEMM wants.
struct CopyPaddedArgs {
  ElementType element = ElementType::kFloat16;
  const void* src = nullptr;
  int64_t src_stride = 0;
  int64_t rows = 0, columns = 0, dst_columns = 0;
  const void* pre_scale = nullptr;
  void* dst = nullptr;
  void* stream = nullptr;
};

// Copies rows of bytes into rows of another pitch, with zeros between k and dst_stride.
struct CopyRowsArgs {
  const void* src = nullptr;
  int64_t src_stride = 0;  // any: rows may overlap
  int64_t rows = 0, k = 0;
  void* dst = nullptr;
  int64_t dst_stride = 0;
  void* stream = nullptr;
};

// Copies an image tensor into one of any strides; channels from `channels` to `dst_channels` become
// 0. element_bytes: 1, 2 or 4.
struct CopyImagesArgs {
  int element_bytes = 2;
  int64_t images = 0, channels = 0, dst_channels = 0, h = 0, w = 0;
  const void* src = nullptr;
  ImageStrides src_strides;
  void* dst = nullptr;
  ImageStrides dst_strides;
  void* stream = nullptr;
};

}  // namespace mixed_gemm
