// The Autograd key of the ops whose product of a few rows takes less time than a kernel in Python
// does. This file is a library of its own: it needs torch's C++ interface, which changes from
// version to version, so that it serves the one version it was built with. Without it the kernels
// of mixed_gemm/ops/autograd.py do all of it.
//
// A call that asks for no derivative goes below the key. Another one goes to the kernel in Python,
// which waits at the Autograd key of a twin of the op, `_autograd_OP`. Only the gradient that
// everybody asks for, of fpA_intB_gemm without activation, is recorded here (gemm_node.h).
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ops/autograd/gemm_node.h"

namespace mixed_gemm {
namespace {

// The derivatives and transforms that the tensors among the arguments ask for.
struct Asked {
  bool gradient = false;
  bool in_python = false;  // a tangent, a transform of torch.func, or an operator that is traced
};

Asked asked_by(const torch::jit::Stack& stack, size_t count) {
  static const c10::DispatchKeySet kWrappers({c10::DispatchKey::FuncTorchGradWrapper,
                                              c10::DispatchKey::FuncTorchBatched,
                                              c10::DispatchKey::Python});
  Asked asked;
  asked.in_python = c10::impl::TorchDispatchModeTLS::any_modes_set();
  const bool recording = c10::GradMode::is_enabled();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!stack[i].isTensor()) continue;
    const at::Tensor& t = stack[i].toTensor();
    if (!t.defined()) continue;
    asked.gradient |= recording && t.requires_grad();
    asked.in_python |= t.key_set().has_any(kWrappers) || t._fw_grad(/*level=*/0).defined();
  }
  return asked;
}

class Gate : public c10::OperatorKernel {
 public:
  explicit Gate(std::string op) : op_(std::move(op)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const Asked asked = asked_by(*stack, op.schema().arguments().size());
    if (!asked.gradient && !asked.in_python) {
      const at::AutoDispatchBelowAutograd below;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    if (!asked.in_python && op_ == "fpA_intB_gemm" && gemm_with_gradient(op, keys, *stack)) return;
    twin().redispatchBoxed(keys, stack);
  }

 private:
  // Python defines the twins when mixed_gemm is imported, later than this library is loaded.
  // Threads may ask for one at once.
  const c10::OperatorHandle& twin() {
    std::call_once(found_, [this] {
      const std::string name = "mixed_gemm::_autograd_" + op_;
      twin_.emplace(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), ""));
    });
    return *twin_;
  }

  std::string op_;
  std::once_flag found_;
  std::optional<c10::OperatorHandle> twin_;
};

// The ops whose contract says so. An older library has none: the kernels in Python take its ops.
std::vector<std::string> gated_ops() {
  const auto ask = c10::Dispatcher::singleton().findSchema({"mixed_gemm::_gated", ""});
  if (!ask) return {};
  torch::jit::Stack stack;
  ask->callBoxed(&stack);
  std::istringstream lines(stack.back().toStringRef());
  std::vector<std::string> ops;
  for (std::string line; std::getline(lines, line);) ops.push_back(line);
  return ops;
}

}  // namespace
}  // namespace mixed_gemm

TORCH_LIBRARY_IMPL(mixed_gemm, Autograd, m) {
  for (const std::string& op : mixed_gemm::gated_ops()) {
    m.impl(op.c_str(),
           torch::CppFunction::makeFromBoxedFunctor(std::make_unique<mixed_gemm::Gate>(op)));
  }
}
