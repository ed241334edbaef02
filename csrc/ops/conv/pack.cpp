// pack_conv_weights on every device: torch ops bring the filter into [N, K] order, pack_weights of
// the device packs it.
#include "ops/conv/contract.h"

namespace mixed_gemm::conv {
namespace {

void pack(Call& call) {
  using torch::stable::detail::from;
  std::array<StableIValue, 3> stack{from(filter_matrix(call)), from(call[contract::Bits]),
                                    from(false)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("mixed_gemm::pack_weights", "", stack.data(), TORCH_ABI_VERSION));
  call.give(0, torch::stable::detail::to<Tensor>(stack[0]));
}

}  // namespace
}  // namespace mixed_gemm::conv

MIXED_GEMM_KERNELS(CompositeExplicitAutograd, m) {
  using namespace mixed_gemm;
  m.impl("pack_conv_weights", &boxed<contract::kPackConvWeights, conv::pack>);
}
