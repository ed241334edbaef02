// What the choice of a kernel is remembered by: every field of a problem and of a device that is no
// address. The structured bindings name all fields of their struct, so a struct that gains one does
// not compile until it is decided here whether a choice can depend on it. A field that nothing
// reads costs a second entry; one that is left out runs the wrong kernel.
#pragma once
#include <tuple>

#include "core/device.h"
#include "problem/block_gemm.h"
#include "problem/conv.h"
#include "problem/gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

inline auto selection_key(const DeviceInfo& device) {
  const auto& [sm, sm_count, smem_bytes, dram_gb_per_s, mma_tflops] = device;
  return std::tuple(sm, sm_count, smem_bytes, dram_gb_per_s, mma_tflops);
}

inline auto selection_key(const GemmProblem& problem) {
  const auto& [m, n, k, element, scheme, activation, a, a_stride, b_packed, scales, zeros,
               scale_stride, bias, pre_scale, d] = problem;
  const auto& [weight, scale_form] = scheme;
  const auto& [scale_type, group, zero_mode] = scale_form;
  return std::tuple(m, n, k, element, weight, scale_type, group, zero_mode, activation, a_stride,
                    scale_stride, bias != nullptr, pre_scale != nullptr);
}

inline auto selection_key(const ConvShape& shape) {
  const auto& [images, in_c, in_h, in_w, out_c, out_h, out_w, kernel_h, kernel_w, stride_h,
               stride_w, padding_h, padding_w, dilation_h, dilation_w] = shape;
  return std::tuple(images, in_c, in_h, in_w, out_c, out_h, out_w, kernel_h, kernel_w, stride_h,
                    stride_w, padding_h, padding_w, dilation_h, dilation_w);
}

// Strides of images are left out: whatever they are, a kernel gets dense channels-last pixels.
inline auto selection_key(const ConvProblem& problem) {
  const auto& [shape, element, weight, block_size, activation, input, input_strides, weight_packed,
               scales, offsets, scale_stride, bias, d, d_strides, d_channels_last] = problem;
  return std::tuple_cat(selection_key(shape),
                        std::tuple(element, weight, block_size, activation, offsets != nullptr,
                                   scale_stride, bias != nullptr, d_channels_last));
}

inline auto selection_key(const ScaledMmProblem& problem) {
  const auto& [m, n, k, operand, out, a, lda, b, ldb, scale_a, scale_a_stride, scale_b,
               scale_b_stride, azp_adj, azp, bias, d, block_k, block_n] = problem;
  return std::tuple(m, n, k, operand, out, lda, ldb, scale_a_stride, scale_b_stride,
                    azp_adj != nullptr, azp != nullptr, bias != nullptr, block_k, block_n);
}

inline auto selection_key(const ConvInt8Problem& problem) { return selection_key(problem.shape); }

// Sums are left out: with them and without the same is chosen, so that both give the same bits.
inline auto selection_key(const BlockGemmProblem& problem) {
  const auto& [m, n, k, element, block_size, activation, a, lda, b, ldb, scale_b, offset_b,
               scale_stride, bias, b_sums, d] = problem;
  return std::tuple(m, n, k, element, block_size, activation, lda, ldb, scale_stride,
                    bias != nullptr);
}

}  // namespace mixed_gemm
