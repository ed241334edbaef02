// Arguments of the small kernels around the GEMM: plain data, like gemm_args.h.
#pragma once
#include <cstdint>

#include "core/device_info.h"
#include "core/quant_scheme.h"
#include "problem/awq.h"

namespace mixed_gemm {

struct PackArgs {
  int bits = 4;
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
  int64_t groups = 1;  // rows of scales
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

// Rows of bytes into rows of another pitch, with zeros between k and dst_stride.
struct CopyRowsArgs {
  const void* src = nullptr;
  int64_t src_stride = 0;  // any: rows may overlap
  int64_t rows = 0, k = 0;
  void* dst = nullptr;
  int64_t dst_stride = 0;
  void* stream = nullptr;
};

// flags[i] = 0 for i < count.
struct ZeroFlagsArgs {
  int* flags = nullptr;
  int count = 0;
  EarlyStart early_start;
  void* stream = nullptr;
};

// d[r, c] = activation(channel_scale[c] * sum_s partials[s][r][c] + bias[c]), slices added in
// order.
struct ReduceArgs {
  ElementType element = ElementType::kFloat16;
  const float* partials = nullptr;  // [slices, m, partial_stride]
  int64_t partial_stride = 0;
  int slices = 1;
  int64_t m = 0, n = 0;
  const void* channel_scale = nullptr;
  const void* bias = nullptr;
  Activation activation = Activation::kIdentity;
  void* d = nullptr;
  EarlyStart early_start;
  void* stream = nullptr;
};

}  // namespace mixed_gemm
