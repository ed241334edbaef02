// pack_conv_weights on every device: torch ops bring the filter into [N, K] order, pack_weights of
// the device packs it.
#include "layout/conv_layout.h"
#include "ops/contracts.h"
#include "ops/conv/images.h"
#include "ops/host_values.h"
#include "problem/integer_bits.h"

namespace mixed_gemm::conv {
namespace {

using namespace contract;

constexpr int kFilterCheck = 2;

std::optional<Refusal> refuse_filter(Given& given) {
  const View& q = given.views[kInput];
  if (q.elements() == 0) return value_fault({"q", "not be empty", sizes_text(q.sizes, q.dims)});
  ConvShape filter;  // what depends on the filter alone: seen by an image that it just covers
  filter.out_c = q.sizes[0];
  filter.in_c = q.sizes[1];
  filter.in_h = filter.kernel_h = q.sizes[2];
  filter.in_w = filter.kernel_w = q.sizes[3];
  filter.out_h = filter.out_w = 1;
  const std::string wrong_bits = why_not_bits(given[Bits]);
  return refusal_of(wrong_bits.empty() ? why_not_conv(filter, -1) : wrong_bits);
}

// Packs a filter [Co, Ci, Kh, Kw] as a weight (layout/conv_layout.h); scales and offsets are
// [ceil(Ci / block_size), Co], shared over the taps: w = q * scale + offset.
constexpr Argument kPackArguments[] = {tensor("q"),
                                       integer("bits").binds(Bits).must_be("", "4 or 8"),
                                       boolean("check", "False").keyword()};
constexpr auto kPackRules = placed(
    kPackArguments, {dtype("q", Dtype::kInt8, " (signed values)").with_hint("q.to(torch.int8)"),
                     rank("q", 4, kFilter), require(refuse_filter)});
constexpr Result kPackResults[] = {made("(round_up(Co, 64), round_up(K, 64) * bits / 8) in uint8")};

// q as the [N, K] matrix of layout/conv_layout.h, contiguous, on the device of q; made by torch's
// ops.
Tensor filter_matrix(const Call& call) {
  const Tensor q = call.tensor(kInput);
  if (call.number(kFilterCheck) != 0 || q.is_cpu()) check_range(call.op(), "q", q, call[Bits]);
  const int64_t out_c = q.size(0), in_c = q.size(1), taps = q.size(2) * q.size(3);
  const int64_t channels = channels_per_tap(in_c);
  const Tensor by_tap =
      torch::stable::transpose(torch::stable::reshape(q, {out_c, in_c, taps}), 1, 2);
  Tensor padded = torch::stable::new_zeros(q, {out_c, taps, channels});
  Tensor real = torch::stable::narrow(padded, 2, 0, in_c);
  torch::stable::copy_(real, by_tap);
  return torch::stable::view(padded, {out_c, taps * channels});
}

void pack(Call& call) {
  using torch::stable::detail::from;
  std::array<StableIValue, 3> stack{from(filter_matrix(call)), from(call[Bits]), from(false)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("mixed_gemm::pack_weights", "", stack.data(), TORCH_ABI_VERSION));
  call.give(0, torch::stable::detail::to<Tensor>(stack[0]));
}

}  // namespace
}  // namespace mixed_gemm::conv

namespace mixed_gemm::contract {

constexpr Contract kPackConvWeights = {"pack_conv_weights", conv::kPackArguments, conv::kPackRules,
                                       conv::kPackResults};

}  // namespace mixed_gemm::contract

MIXED_GEMM_KERNELS(CompositeExplicitAutograd, m) {
  using namespace mixed_gemm;
  m.impl("pack_conv_weights", &boxed<contract::kPackConvWeights, conv::pack>);
}
