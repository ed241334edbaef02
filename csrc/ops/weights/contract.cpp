#include "ops/weights/contract.h"

#include "layout/weight_layout.h"
#include "ops/gemm/weight.h"
#include "ops/host_values.h"

namespace mixed_gemm::weights {
namespace {

using namespace contract;

enum : int { kIntegers = 0, kCheck = 2 };
enum : int { kPacked, kScales, kZeros, kZeroMode = 5, kDtype = 8 };

std::optional<Refusal> refuse_integers(Given& given) { return gemm::refuse_product(0, given, -1); }
std::optional<Refusal> refuse_weight(Given& given) {
  return gemm::refuse_product(0, given, given[GroupSize]);
}

// check: whether values outside the range of `bits` are refused on a GPU too, which waits for it.
constexpr Argument kPackArguments[] = {tensor("q"),
                                       integer("bits").binds(Bits).must_be("", gemm::kBitsWords),
                                       boolean("check", "False").keyword()};
constexpr auto kPackRules =
    placed(kPackArguments,
           {dtype("q", Dtype::kInt8, " (signed values)").with_hint("q.to(torch.int8)"),
            rank("q", 2, "(N, K)"), bind(N, "q", 0), bind(K, "q", 1), require(refuse_integers)});
constexpr auto kPackResults = given_by(
    kPackArguments,
    {matrix("q", rounded_up(N, kPadN), rounded_up(K, kPadK) * Bits / 8).of_dtype(Dtype::kUint8)});

constexpr Argument kUnpackArguments[] = {tensor("b_packed"),
                                         integer("bits").binds(Bits).must_be("", gemm::kBitsWords),
                                         integer("n").binds(N), integer("k").binds(K)};
constexpr Rule kUnpackNumbers[] = {require(refuse_integers)};
constexpr auto kUnpackRules =
    placed(kUnpackArguments, together(kUnpackNumbers, gemm::packed_rules().items).items);
constexpr auto kUnpackResults =
    given_by(kUnpackArguments, {matrix("b_packed", N, K).of_dtype(Dtype::kInt8)});

constexpr Argument kDequantizeArguments[] = {
    tensor("b_packed"),
    tensor("scales"),
    optional_tensor("zeros", nullptr),
    integer("bits").keyword().binds(Bits).must_be("", gemm::kBitsWords),
    integer("group_size").keyword().binds(GroupSize).must_be("", gemm::kGroupWords),
    text("zero_mode").keyword(),
    integer("n").keyword().binds(N),
    integer("k").keyword().binds(K),
    dtype_argument("dtype").keyword()};
constexpr Rule kDequantizeNumbers[] = {floats("dtype"), require(refuse_weight)};
constexpr auto kDequantizeRules =
    placed(kDequantizeArguments, together(kDequantizeNumbers, gemm::weight_rules().items).items);
constexpr auto kDequantizeResults =
    given_by(kDequantizeArguments, {matrix("scales", N, K).in_dtype_of("dtype")});

}  // namespace

Packing packing(Call& call) {
  const void* q = call.contiguous(kIntegers);
  const int64_t bits = call[Bits];
  if (call.number(kCheck) != 0 || call.view(kIntegers).device == kCpuDevice) {
    check_range(call.op(), "q", call.tensor(kIntegers), bits);
  }
  return {*integer_weight(bits), call[N], call[K],
          const_cast<int8_t*>(static_cast<const int8_t*>(q)), static_cast<uint8_t*>(call.make(0))};
}

Packing unpacking(Call& call) {
  const void* packed = call.aligned(kPacked, 16);
  return {*integer_weight(call[Bits]), call[N], call[K], static_cast<int8_t*>(call.make(0)),
          const_cast<uint8_t*>(static_cast<const uint8_t*>(packed))};
}

GemmProblem dequantizing(Call& call, ElementType& out) {
  GemmProblem p = gemm::integers_of(call, {kPacked, kScales, kZeros, kZeroMode});
  out = call.element(kDtype);
  p.d = call.make(0);
  return p;
}

}  // namespace mixed_gemm::weights

namespace mixed_gemm::contract {

constexpr Contract kPackWeights = {"pack_weights", weights::kPackArguments, weights::kPackRules,
                                   weights::kPackResults};
constexpr Contract kUnpackWeights = {"unpack_weights", weights::kUnpackArguments,
                                     weights::kUnpackRules, weights::kUnpackResults};
constexpr Contract kDequantizeWeights = {"dequantize_weights",
                                         weights::kDequantizeArguments,
                                         weights::kDequantizeRules,
                                         weights::kDequantizeResults,
                                         nullptr,
                                         true};

}  // namespace mixed_gemm::contract
