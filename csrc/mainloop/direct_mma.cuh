// The instruction of every GEMM of 8-bit operands by mma.sync, and the operator for each type.
#pragma once
#include "cutlass/arch/mma.h"
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/arch/mma_sm89.h"

namespace mixed_gemm {

// mma.m16n8k32: rows of A and columns of B along K.
template <typename Operand, typename Sum, typename Operator>
using DirectMma =
    cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 32>, 32, Operand, cutlass::layout::RowMajor,
                       Operand, cutlass::layout::ColumnMajor, Sum, cutlass::layout::RowMajor,
                       Operator>;

// It saturates, but dispatch/ limits K so that int32 always suffices.
using Int8Operator = cutlass::arch::OpMultiplyAddSaturate;
using Fp8Operator = cutlass::arch::OpMultiplyAdd;

}  // namespace mixed_gemm
