#include "ops/floats/contract.h"

#include "ops/contracts.h"
#include "ops/gemm/weight.h"

namespace mixed_gemm::float_weights {
namespace {

using namespace contract;

enum : int { kCodes = 0 };
enum : int { kPackedDense, kScalesDense, kDtype = 6 };

std::optional<WeightType> type_of(int64_t bits) {
  if (bits == E4M3::kBits) return WeightType::kE4M3;
  return float_weight(bits);
}

std::optional<Refusal> refuse_floats(int64_t m, const Given& given, int64_t group_size) {
  if (!type_of(given[Bits])) return value_fault({"bits", "be 4", joined(given[Bits])});
  return gemm::refuse_sizes(m, given, group_size);
}
std::optional<Refusal> refuse_product(Given& given) {
  return refuse_floats(given[M], given, given[GroupSize]);
}
std::optional<Refusal> refuse_weight(Given& given) {
  return refuse_floats(0, given, given[GroupSize]);
}
std::optional<Refusal> refuse_codes(Given& given) { return refuse_floats(0, given, -1); }

constexpr const char* kBitsWords = "4: e2m1";

constexpr Rule kScaleRules[] = {floats("scales"), gemm::by_group("scales")};

constexpr Argument kGemmArguments[] = {
    tensor("a"),
    tensor("b_packed"),
    tensor("scales"),
    optional_tensor("factor"),
    optional_tensor("bias"),
    optional_tensor("pre_scale"),
    integer("bits").keyword().binds(Bits).must_be("", kBitsWords),
    integer("group_size", "-1").keyword().binds(GroupSize).must_be("", gemm::kGroupWords),
    text("activation", "\"identity\"").keyword()};
constexpr auto kForcedArguments = with_config(kGemmArguments);
static_assert(std::size(kGemmArguments) == kArguments);
constexpr Rule kGemmSizes[] = {floats("a").with_hint("a.to(scales.dtype)"),
                               rows("a"),
                               rank("scales", 2),
                               bind(N, "scales", 1),
                               require(refuse_product),
                               choice("activation", kActivationNames),
                               same_dtype("scales", "a").with_hint("scales.to(a.dtype)")};
constexpr Rule kVectors[] = {dtype("factor", Dtype::kFloat32), shape("factor", {N}),
                             same_dtype("bias", "a"), shape("bias", {N}),
                             same_dtype("pre_scale", "a"), shape("pre_scale", {K})};
constexpr auto kGemmRules = placed(
    kGemmArguments, together(kGemmSizes, kScaleRules, gemm::packed_rules().items, kVectors).items);
constexpr auto kGemmResults = given_by(kGemmArguments, {leading("a", N)});

constexpr Argument kPackArguments[] = {tensor("codes"),
                                       integer("bits").binds(Bits).must_be("", kBitsWords)};
constexpr auto kPackRules =
    placed(kPackArguments, {dtype("codes", Dtype::kInt8), rank("codes", 2, "(N, K)"),
                            bind(N, "codes", 0), bind(K, "codes", 1), require(refuse_codes)});
constexpr auto kPackResults =
    given_by(kPackArguments, {matrix("codes", rounded_up(N, kPadN), rounded_up(K, kPadK) * Bits / 8)
                                  .of_dtype(Dtype::kUint8)});

constexpr Argument kUnpackArguments[] = {tensor("b_packed"),
                                         integer("bits").binds(Bits).must_be("", kBitsWords),
                                         integer("n").binds(N), integer("k").binds(K)};
constexpr Rule kUnpackNumbers[] = {require(refuse_codes)};
constexpr auto kUnpackRules =
    placed(kUnpackArguments, together(kUnpackNumbers, gemm::packed_rules().items).items);
constexpr auto kUnpackResults =
    given_by(kUnpackArguments, {matrix("b_packed", N, K).of_dtype(Dtype::kInt8)});

constexpr Argument kDequantizeArguments[] = {
    tensor("b_packed"),
    tensor("scales"),
    integer("bits").keyword().binds(Bits).must_be("", kBitsWords),
    integer("group_size").keyword().binds(GroupSize).must_be("", gemm::kGroupWords),
    integer("n").keyword().binds(N),
    integer("k").keyword().binds(K),
    dtype_argument("dtype").keyword()};
constexpr Rule kDequantizeNumbers[] = {floats("dtype"), require(refuse_weight)};
constexpr auto kDequantizeRules =
    placed(kDequantizeArguments,
           together(kDequantizeNumbers, kScaleRules, gemm::packed_rules().items).items);
constexpr auto kDequantizeResults =
    given_by(kDequantizeArguments, {matrix("scales", N, K).in_dtype_of("dtype")});

}  // namespace

GemmProblem problem_of(Call& call) {
  GemmProblem p = gemm::weight_of(call, {kPacked, kScales}, *type_of(call[Bits]));
  p.m = call[M];
  p.activation = static_cast<Activation>(call.number(kActivation));
  p.a = call.rows(kA, p.a_stride);
  p.factor = static_cast<const float*>(call.contiguous(kFactor));
  p.bias = call.contiguous(kBias);
  p.pre_scale = call.contiguous(kPreScale);
  p.d = call.make(0);
  return p;
}

weights::Packing packing(Call& call) {
  const void* codes = call.contiguous(kCodes);
  return {*type_of(call[Bits]), call[N], call[K],
          const_cast<int8_t*>(static_cast<const int8_t*>(codes)),
          static_cast<uint8_t*>(call.make(0))};
}

weights::Packing unpacking(Call& call) {
  const void* packed = call.aligned(kPackedDense, 16);
  return {*type_of(call[Bits]), call[N], call[K], static_cast<int8_t*>(call.make(0)),
          const_cast<uint8_t*>(static_cast<const uint8_t*>(packed))};
}

GemmProblem dequantizing(Call& call, ElementType& out) {
  GemmProblem p = gemm::weight_of(call, {kPackedDense, kScalesDense}, *type_of(call[Bits]));
  out = call.element(kDtype);
  p.d = call.make(0);
  return p;
}

}  // namespace mixed_gemm::float_weights

namespace mixed_gemm::contract {

constexpr Contract kFloatGemm = {"fpA_fpB_gemm", float_weights::kGemmArguments,
                                 float_weights::kGemmRules, float_weights::kGemmResults};
constexpr Contract kFloatGemmConfig = {"fpA_fpB_gemm_config", float_weights::kForcedArguments.items,
                                       float_weights::kGemmRules, float_weights::kGemmResults};
constexpr Contract kPackFloats = {"pack_floats", float_weights::kPackArguments,
                                  float_weights::kPackRules, float_weights::kPackResults};
constexpr Contract kUnpackFloats = {"unpack_floats", float_weights::kUnpackArguments,
                                    float_weights::kUnpackRules, float_weights::kUnpackResults};
constexpr Contract kDequantizeFloats = {"dequantize_floats", float_weights::kDequantizeArguments,
                                        float_weights::kDequantizeRules,
                                        float_weights::kDequantizeResults};

}  // namespace mixed_gemm::contract
