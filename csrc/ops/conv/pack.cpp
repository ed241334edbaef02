// pack_conv_weights on every device: torch ops bring the filter into [N, K] order, pack_weights of
// the device packs it.
#include <array>

#include "ops/conv/checks.h"

namespace mixed_gemm {
namespace {

Tensor pack_conv_weights(const Tensor& q, int64_t bits, bool check) {
  using torch::stable::detail::from;
  const Tensor matrix = conv_filter_matrix(q, bits, check);
  std::array<StableIValue, 3> stack{from(matrix), from(bits), from(false)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("mixed_gemm::pack_weights", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CompositeExplicitAutograd, m) {
  m.impl("pack_conv_weights", TORCH_BOX(&mixed_gemm::pack_conv_weights));
}
