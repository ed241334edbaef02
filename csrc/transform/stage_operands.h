// Operands in the form that kernels read: the tensors given, where they are in it, or copies.
// cp.async moves 16 bytes, so rows start on 16 bytes and their ends are whole vectors.
#pragma once
#include "grid/run_context.h"
#include "problem/conv.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Activations, with pre_scale multiplied in. least_stride: 0, or the least distance of rows for
// TMA, which takes none that overlap.
Status stage_activations(GemmProblem& problem, int64_t least_stride, const RunContext& context);

// Rows of scales, and of zeros if there are any, with one stride.
Status stage_scales(ElementType element, int64_t groups, int64_t n, const void*& scales,
                    const void*& zeros, int64_t& stride, const RunContext& context);

// Rows of k bytes. apart: they may not overlap.
Status stage_rows(const void*& rows, int64_t& stride, int64_t count, int64_t k, bool apart,
                  const RunContext& context);

// Rows of an int8 filter with the channels of every tap padded to `tap_channels`.
Status stage_taps(ConvInt8Problem& problem, int64_t tap_channels, const RunContext& context);

// All operands of a GEMM of tiles. least_stride: as for stage_activations.
Status stage_gemm(GemmProblem& problem, int64_t least_stride, const RunContext& context);

}  // namespace mixed_gemm
