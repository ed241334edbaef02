#include "ops/grouped/contract.h"

#include "ops/contracts.h"
#include "ops/floats/weight.h"
#include "ops/gemm/weight.h"
#include "ops/grouped/offsets.h"

namespace mixed_gemm::grouped {
namespace {

using namespace contract;

std::optional<Refusal> refuse_integers(Given& given) {
  return gemm::refuse_product(given[M], given, given[GroupSize]);
}
std::optional<Refusal> refuse_floats(Given& given) {
  return gemm::refuse_sizes(given[M], given, given[GroupSize]);
}
std::optional<Refusal> refuse_packed_k(Given& given) { return gemm::refuse_packed_k(given, 3); }

constexpr Argument kOffsArgument = tensor("offs").must_be("", "numbers that do not fall, in 0..M");
constexpr Argument kIntegers[] = {
    tensor("a"),
    tensor("b_packed"),
    tensor("scales"),
    kOffsArgument,
    optional_tensor("zeros"),
    optional_tensor("bias"),
    integer("bits").keyword().binds(Bits).must_be("", gemm::kBitsWords),
    integer("group_size", "-1").keyword().binds(GroupSize).must_be("", gemm::kGroupWords),
    text("zero_mode", "\"sub\"").keyword(),
    text("activation", "\"identity\"").keyword()};
static_assert(std::size(kIntegers) == integers::kConfig);
constexpr auto kForcedIntegers = with_config(kIntegers);

constexpr Argument kFloats[] = {
    tensor("a"),
    tensor("b_packed"),
    tensor("scales"),
    kOffsArgument,
    optional_tensor("factor"),
    optional_tensor("bias"),
    text("weight").keyword(),
    integer("group_size").keyword().binds(GroupSize).must_be("", gemm::kGroupWords),
    text("activation", "\"identity\"").keyword()};
static_assert(std::size(kFloats) == floats::kConfig);
constexpr auto kForcedFloats = with_config(kFloats);

constexpr Rule kSizes[] = {contract::floats("a").with_hint("a.to(scales.dtype)"),
                           rank("a", 2, "(M, K)"),
                           bind(M, "a", 0),
                           bind(K, "a", 1),
                           rank("scales", 3),
                           bind(Experts, "scales", 0),
                           bind(N, "scales", 2)};
constexpr Rule kIntegerNumbers[] = {require(refuse_integers)};
constexpr Rule kFloatNumbers[] = {float_weights::kWeight, require(refuse_floats)};
constexpr Rule kChoices[] = {choice("activation", kActivationNames), require(refuse_packed_k),
                             same_dtype("scales", "a").with_hint("scales.to(a.dtype)")};
constexpr Rule kVectors[] = {same_dtype("bias", "a"), shape("bias", {Experts, N}),
                             dtype("offs", Dtype::kInt32, " (where the rows of an expert end)"),
                             shape("offs", {Experts})};

constexpr auto kIntegerRules =
    placed(kIntegers, together(kSizes, kIntegerNumbers, kChoices,
                               of_each(Experts, gemm::weight_rules()).items, kVectors)
                          .items);
constexpr auto kFloatRules =
    placed(kFloats, together(kSizes, kFloatNumbers, kChoices,
                             of_each(Experts, float_weights::weight_rules()).items, kVectors)
                        .items);
constexpr auto kIntegerResults = given_by(kIntegers, {matrix("a", M, N)});
constexpr auto kFloatResults = given_by(kFloats, {matrix("a", M, N)});

// weight: its codes; its scales and what only one of the products has are filled in here.
GroupedGemmProblem problem_of(Call& call, const GemmProblem& weight, int bias, int activation) {
  GroupedGemmProblem p;
  p.gemm = weight;
  p.gemm.m = call[M];
  p.gemm.activation = static_cast<Activation>(call.number(activation));
  p.gemm.a = call.rows(kA, p.gemm.a_stride);
  p.gemm.scales = call.contiguous(kScales);
  p.gemm.scale_stride = p.gemm.n;
  p.gemm.bias = call.contiguous(bias);
  p.experts = call[Experts];
  p.offs = static_cast<const int32_t*>(call.elements(kOffs));
  if (call.view(kOffs).device == kCpuDevice) check_offsets(call.op(), p);
  p.gemm.d = call.make(0);
  return p;
}

}  // namespace

GroupedGemmProblem integer_problem(Call& call) {
  using namespace integers;
  GemmProblem weight =
      gemm::codes_of(call, {kPacked, kScales, kZeros, kZeroMode}, *integer_weight(call[Bits]));
  weight.zeros = call.contiguous(kZeros);
  return problem_of(call, weight, kBias, kActivation);
}

GroupedGemmProblem float_problem(Call& call) {
  using namespace floats;
  GemmProblem weight =
      gemm::codes_of(call, {kPacked, kScales}, float_weights::chosen(call, kWeightName));
  weight.factor = static_cast<const float*>(call.elements(kFactor));
  return problem_of(call, weight, kBias, kActivation);
}

}  // namespace mixed_gemm::grouped

namespace mixed_gemm::contract {

constexpr Contract kGroupedGemm = {"grouped_fpA_intB_gemm",
                                   grouped::kIntegers,
                                   grouped::kIntegerRules,
                                   grouped::kIntegerResults,
                                   nullptr,
                                   true};
constexpr Contract kGroupedGemmConfig = {"grouped_fpA_intB_gemm_config",
                                         grouped::kForcedIntegers.items, grouped::kIntegerRules,
                                         grouped::kIntegerResults};
constexpr Contract kGroupedFloatGemm = {
    "grouped_fpA_fpB_gemm", grouped::kFloats, grouped::kFloatRules,
    grouped::kFloatResults, nullptr,          true};
constexpr Contract kGroupedFloatGemmConfig = {"grouped_fpA_fpB_gemm_config",
                                              grouped::kForcedFloats.items, grouped::kFloatRules,
                                              grouped::kFloatResults};

}  // namespace mixed_gemm::contract
