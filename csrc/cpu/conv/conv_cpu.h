// The CPU backend of the convolutions. ops/conv/cpu.cpp calls it.
#pragma once
#include "core/parallel.h"
#include "problem/conv.h"

namespace mixed_gemm {

// Fill problem.d, for any geometry and block size. The channels of the input must be neighbours
// (input_strides.c == 1, unless there is one); its other strides may be anything.
void conv_cpu(const ConvProblem& problem, const ParallelFor& parallel_for);
void conv_int8_cpu(const ConvInt8Problem& problem, const ParallelFor& parallel_for);

}  // namespace mixed_gemm
