#include "ops/floats/contract.h"

#include "ops/contracts.h"
#include "ops/floats/weight.h"
#include "ops/gemm/weight.h"
#include "ops/host_values.h"

namespace mixed_gemm::float_weights {
namespace {

using namespace contract;

enum : int { kCodes = 0, kPackAs = 1, kUnpackAs = 1 };
enum : int { kDenseAs = 3, kDtype = 7 };

std::optional<Refusal> refuse_product(Given& given) {
  return gemm::refuse_sizes(given[M], given, given[GroupSize]);
}
std::optional<Refusal> refuse_weight(Given& given) {
  return gemm::refuse_sizes(0, given, given[GroupSize]);
}
std::optional<Refusal> refuse_codes(Given& given) { return gemm::refuse_sizes(0, given, -1); }

constexpr Argument kGemmArguments[] = {
    tensor("a"),
    tensor("b_packed"),
    tensor("scales"),
    optional_tensor("factor"),
    optional_tensor("bias"),
    optional_tensor("pre_scale"),
    text("weight").keyword(),
    integer("group_size").keyword().binds(GroupSize).must_be("", gemm::kGroupWords),
    text("activation", "\"identity\"").keyword()};
constexpr auto kForcedArguments = with_config(kGemmArguments);
static_assert(std::size(kGemmArguments) == kConfig);
constexpr Rule kGemmSizes[] = {floats("a").with_hint("a.to(scales.dtype)"),
                               rows("a"),
                               rank("scales", 2),
                               bind(N, "scales", 1),
                               kWeight,
                               require(refuse_product),
                               choice("activation", kActivationNames),
                               require(gemm::refuse_packed_k),
                               same_dtype("scales", "a").with_hint("scales.to(a.dtype)")};
constexpr Rule kVectors[] = {same_dtype("bias", "a"), shape("bias", {N}),
                             same_dtype("pre_scale", "a"), shape("pre_scale", {K})};
constexpr auto kGemmRules =
    placed(kGemmArguments, together(kGemmSizes, weight_rules().items, kVectors).items);
constexpr auto kGemmResults = given_by(kGemmArguments, {leading("a", N)});

constexpr Argument kPackArguments[] = {tensor("codes"), text("weight")};
constexpr auto kPackRules =
    placed(kPackArguments,
           {dtype("codes", Dtype::kInt8, " (codes as they are)"), rank("codes", 2, "(N, K)"),
            bind(N, "codes", 0), bind(K, "codes", 1), kWeight, require(refuse_codes)});
constexpr auto kPackResults =
    given_by(kPackArguments, {matrix("codes", rounded_up(N, kPadN), rounded_up(K, kPadK) * Bits / 8)
                                  .of_dtype(Dtype::kUint8)});

constexpr Argument kUnpackArguments[] = {tensor("b_packed"), text("weight"), integer("n").binds(N),
                                         integer("k").binds(K)};
constexpr Rule kUnpackNumbers[] = {kWeight, require(refuse_codes)};
constexpr auto kUnpackRules =
    placed(kUnpackArguments, together(kUnpackNumbers, gemm::packed_rules(kPackedFrom).items).items);
constexpr auto kUnpackResults =
    given_by(kUnpackArguments, {matrix("b_packed", N, K).of_dtype(Dtype::kInt8)});

constexpr Argument kDequantizeArguments[] = {
    tensor("b_packed"),
    tensor("scales"),
    optional_tensor("factor"),
    text("weight").keyword(),
    integer("group_size").keyword().binds(GroupSize).must_be("", gemm::kGroupWords),
    integer("n").keyword().binds(N),
    integer("k").keyword().binds(K),
    dtype_argument("dtype").keyword()};
constexpr Rule kDequantizeNumbers[] = {floats("dtype"), kWeight, require(refuse_weight)};
constexpr auto kDequantizeRules =
    placed(kDequantizeArguments, together(kDequantizeNumbers, weight_rules().items).items);
constexpr auto kDequantizeResults =
    given_by(kDequantizeArguments, {matrix("scales", N, K).in_dtype_of("dtype")});

// b_packed, scales and factor are the same arguments behind each other in both ops.
GemmProblem problem_with_factor(Call& call, int packed, int weight) {
  GemmProblem p = gemm::weight_of(call, {packed, packed + 1}, chosen(call, weight));
  p.factor = static_cast<const float*>(call.elements(packed + 2));
  return p;
}

}  // namespace

GemmProblem problem_of(Call& call) {
  GemmProblem p = problem_with_factor(call, kPacked, kWeightName);
  p.m = call[M];
  p.activation = static_cast<Activation>(call.number(kActivation));
  p.a = call.rows(kA, p.a_stride);
  p.bias = call.contiguous(kBias);
  p.pre_scale = call.contiguous(kPreScale);
  p.d = call.make(0);
  return p;
}

weights::Packing packing(Call& call) {
  const WeightType weight = chosen(call, kPackAs);
  const void* codes = call.contiguous(kCodes);
  if (call.view(kCodes).device == kCpuDevice) {
    check_codes(call.op(), "codes", call.tensor(kCodes), weight);
  }
  return {weight, call[N], call[K], const_cast<int8_t*>(static_cast<const int8_t*>(codes)),
          static_cast<uint8_t*>(call.make(0))};
}

weights::Packing unpacking(Call& call) {
  const void* packed = call.aligned(0, 16);
  return {chosen(call, kUnpackAs), call[N], call[K], static_cast<int8_t*>(call.make(0)),
          const_cast<uint8_t*>(static_cast<const uint8_t*>(packed))};
}

GemmProblem dequantizing(Call& call, ElementType& out) {
  GemmProblem p = problem_with_factor(call, 0, kDenseAs);
  out = call.element(kDtype);
  p.d = call.make(0);
  return p;
}

}  // namespace mixed_gemm::float_weights

namespace mixed_gemm::contract {

constexpr Contract kFloatGemm = {"fpA_fpB_gemm",
                                 float_weights::kGemmArguments,
                                 float_weights::kGemmRules,
                                 float_weights::kGemmResults,
                                 nullptr,
                                 true};
constexpr Contract kFloatGemmConfig = {"fpA_fpB_gemm_config", float_weights::kForcedArguments.items,
                                       float_weights::kGemmRules, float_weights::kGemmResults};
constexpr Contract kPackCodes = {"pack_codes", float_weights::kPackArguments,
                                 float_weights::kPackRules, float_weights::kPackResults};
constexpr Contract kUnpackCodes = {"unpack_codes", float_weights::kUnpackArguments,
                                   float_weights::kUnpackRules, float_weights::kUnpackResults};
constexpr Contract kDequantizeCodes = {"dequantize_codes",
                                       float_weights::kDequantizeArguments,
                                       float_weights::kDequantizeRules,
                                       float_weights::kDequantizeResults,
                                       nullptr,
                                       true};

}  // namespace mixed_gemm::contract
