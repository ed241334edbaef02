// The gradient of fpA_intB_gemm without activation, recorded in C++.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace mixed_gemm {

// Runs the op and records its backward, if `a` and the bias are all that asks for a gradient and
// there is no activation; else false, and the stack is as it was.
bool gemm_with_gradient(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack& stack);

}  // namespace mixed_gemm
