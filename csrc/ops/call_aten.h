// torch's own ops, through the dispatcher of its stable ABI.
#pragma once
#include <array>

#include "ops/torch_stable.h"

namespace mixed_gemm {

template <typename... Args>
Tensor call_aten(const char* name, const char* overload, const Args&... args) {
  std::array<StableIValue, sizeof...(Args)> stack{torch::stable::detail::from(args)...};
  if (torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION) != TORCH_SUCCESS) {
    torch_failed(name, __FILE__, __LINE__);  // by the name of the op, not by that of the shim
  }
  return torch::stable::detail::to<Tensor>(stack[0]);
}

}  // namespace mixed_gemm
