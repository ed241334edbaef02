#include "ops/autograd/gemm_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm/contract.h"

namespace mixed_gemm {
namespace {

using namespace gemm;  // the places of the arguments

at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}
std::optional<at::Tensor> optional_of(const c10::IValue& value) {
  return value.isTensor() ? std::optional<at::Tensor>(value.toTensor()) : std::nullopt;
}
c10::IValue value_of(const at::Tensor& t) { return t.defined() ? c10::IValue(t) : c10::IValue(); }

// The name is printed by grad_fn, so it follows autograd's own nodes.
struct fpA_intB_gemm : torch::autograd::Function<fpA_intB_gemm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const c10::OperatorHandle* op, c10::DispatchKeySet keys,
                            torch::jit::Stack* stack, const at::Tensor& a,
                            const std::optional<at::Tensor>& bias) {
    const auto first = stack->end() - kArguments;
    context->save_for_backward({first[kPacked].toTensor(), first[kScales].toTensor(),
                                tensor_or_none(first[kZeros]), tensor_or_none(first[kPreScale])});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["bits"] = first[kBits];
    context->saved_data["group_size"] = first[kGroupSize];
    context->saved_data["zero_mode"] = first[kZeroMode];
    context->saved_data["k"] = a.size(-1);
    {
      const at::AutoDispatchBelowAutograd below;
      op->redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
    return stack->back().toTensor();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    torch::autograd::variable_list results(5);  // of op, keys, stack, a, bias
    const at::Tensor& grad = grads[0];
    if (!grad.defined()) return results;
    if (context->needs_input_grad(0)) {
      const auto saved = context->get_saved_variables();
      static const c10::OperatorHandle dequantize =
          c10::Dispatcher::singleton().findSchemaOrThrow("mixed_gemm::dequantize_weights", "");
      torch::jit::Stack stack{saved[0],
                              saved[1],
                              value_of(saved[2]),
                              context->saved_data["bits"],
                              context->saved_data["group_size"],
                              context->saved_data["zero_mode"],
                              saved[1].size(1),
                              context->saved_data["k"],
                              static_cast<int64_t>(grad.scalar_type())};
      dequantize.callBoxed(&stack);
      const at::Tensor product = at::matmul(grad, stack.back().toTensor());
      results[3] = saved[3].defined() ? at::mul(product, saved[3]) : product;
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(1)) {
      std::vector<int64_t> rows(static_cast<size_t>(grad.dim()) - 1);
      std::iota(rows.begin(), rows.end(), 0);
      results[4] = rows.empty() ? grad : grad.sum(rows);
    }
    return results;
  }
};

}  // namespace

bool gemm_with_gradient(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack& stack) {
  const auto first = stack.end() - kArguments;
  if (first[kActivation].toStringRef() != "identity") return false;
  for (const size_t frozen : {kPacked, kScales, kZeros, kPreScale}) {
    if (first[frozen].isTensor() && first[frozen].toTensor().requires_grad()) return false;
  }
  if (!first[kA].toTensor().defined() || first[kA].toTensor().dim() == 0) return false;
  const at::Tensor a = first[kA].toTensor();
  at::Tensor d = fpA_intB_gemm::apply(&op, keys, &stack, a, optional_of(first[kBias]));
  torch::jit::drop(stack, 1);
  torch::jit::push(stack, std::move(d));
  return true;
}

}  // namespace mixed_gemm
