#include "ops/gemm/contract.h"

#include "ops/contracts.h"
#include "ops/gemm/weight.h"

namespace mixed_gemm::gemm {
namespace {

using namespace contract;

std::optional<Refusal> refuse_numbers(Given& given) {
  return refuse_product(given[M], given, given[GroupSize]);
}

constexpr Argument kTable[] = {
    tensor("a"),
    tensor("b_packed"),
    tensor("scales"),
    optional_tensor("zeros"),
    optional_tensor("bias"),
    optional_tensor("pre_scale"),
    integer("bits").keyword().binds(Bits).must_be("", kBitsWords),
    integer("group_size", "-1").keyword().binds(GroupSize).must_be("", kGroupWords),
    text("zero_mode", "\"sub\"").keyword(),
    text("activation", "\"identity\"").keyword()};
static_assert(std::size(kTable) == kArguments);
// The same op with a configuration by name (core/choice.h), for tests and benchmarks.
constexpr auto kForcedTable = with_config(kTable);

constexpr Rule kSizes[] = {floats("a").with_hint("a.to(scales.dtype)"),
                           rows("a"),
                           rank("scales", 2),
                           bind(N, "scales", 1),
                           require(refuse_numbers),
                           choice("activation", kActivationNames),
                           require(refuse_packed_k),
                           same_dtype("scales", "a").with_hint("scales.to(a.dtype)")};
constexpr Rule kVectors[] = {same_dtype("bias", "a"), shape("bias", {N}),
                             same_dtype("pre_scale", "a"), shape("pre_scale", {K})};
constexpr auto kRules = placed(kTable, together(kSizes, weight_rules().items, kVectors).items);
constexpr auto kResults = given_by(kTable, {leading("a", N)});

}  // namespace

GemmProblem problem_of(Call& call) {
  GemmProblem p = integers_of(call, {kPacked, kScales, kZeros, kZeroMode});
  p.m = call[M];
  p.activation = static_cast<Activation>(call.number(kActivation));
  p.a = call.rows(kA, p.a_stride);
  p.bias = call.contiguous(kBias);
  p.pre_scale = call.contiguous(kPreScale);
  p.d = call.make(0);
  return p;
}

}  // namespace mixed_gemm::gemm

namespace mixed_gemm::contract {

constexpr Contract kGemm = {"fpA_intB_gemm", gemm::kTable, gemm::kRules,
                            gemm::kResults,  nullptr,      true};
constexpr Contract kGemmConfig = {"fpA_intB_gemm_config", gemm::kForcedTable.items, gemm::kRules,
                                  gemm::kResults};

}  // namespace mixed_gemm::contract
