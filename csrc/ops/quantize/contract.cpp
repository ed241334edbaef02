#include "ops/quantize/contract.h"

namespace mixed_gemm::quantize {
namespace {

using namespace contract;

enum : int { kA, kScale, kAzp };
enum : int { kBlock = 1 };  // of quantize_fp8

std::optional<Refusal> refuse_block(Given& given) {
  const int64_t size = given.numbers[kBlock];
  const bool is_none = given.list_sizes[kBlock] == 0;
  if (is_none || size >= 1) return {};
  return value_fault({"block_size", "be None (all of K) or at least 1", std::to_string(size)});
}

constexpr Argument kTokenArguments[] = {tensor("a"), boolean("symmetric", "True").keyword()};
constexpr auto kTokenRules = placed(kTokenArguments, {floats("a"), rows("a")});
constexpr auto kTokenResults =
    given_by(kTokenArguments,
             {whole_of("a").of_dtype(Dtype::kInt8).named("q"),
              leading("a", 1).of_dtype(Dtype::kFloat32).named("scale"),
              leading("a", 1).of_dtype(Dtype::kInt32).named("azp").none_where("symmetric")});

constexpr Argument kTensorArguments[] = {tensor("a"), tensor("scale"), optional_tensor("azp")};
constexpr auto kTensorRules = placed(
    kTensorArguments, {floats("a"), rows("a"), dtype("scale", Dtype::kFloat32),
                       one_element("scale"), dtype("azp", Dtype::kInt32), one_element("azp")});
constexpr auto kTensorResults = given_by(kTensorArguments, {whole_of("a").of_dtype(Dtype::kInt8)});

// block_size: elements of K that share a scale; all of them when None.
constexpr Argument kFloat8Arguments[] = {
    tensor("a"),
    optional_integer("block_size")
        .keyword()
        .binds(BlockSize)
        .must_be("", "elements of K that share a scale, at least 1; None: all of them")};
constexpr auto kFloat8Rules =
    placed(kFloat8Arguments, {floats("a"), rows("a"), require(refuse_block)});
constexpr auto kFloat8Results =
    given_by(kFloat8Arguments,
             {whole_of("a").of_dtype(Dtype::kFloat8E4M3).named("q"),
              leading("a", blocks(K, BlockSize)).of_dtype(Dtype::kFloat32).named("scale")});

// The part of a problem that says where a lies.
template <typename Problem>
Problem of_activations(Call& call) {
  Problem p;
  p.element = call.element(kA);
  p.m = call[M], p.k = call[K];
  p.a = call.rows(kA, p.a_stride);
  return p;
}

}  // namespace

QuantizePerTokenProblem per_token(Call& call) {
  auto p = of_activations<QuantizePerTokenProblem>(call);
  p.q = static_cast<int8_t*>(call.make(0));
  p.scale = static_cast<float*>(call.make(1));
  p.azp = static_cast<int32_t*>(call.make(2));
  return p;
}

QuantizePerTensorProblem per_tensor(Call& call) {
  auto p = of_activations<QuantizePerTensorProblem>(call);
  p.scale = static_cast<const float*>(call.elements(kScale));
  p.azp = static_cast<const int32_t*>(call.elements(kAzp));
  p.q = static_cast<int8_t*>(call.make(0));
  return p;
}

QuantizeFloat8Problem to_float8(Call& call) {
  auto p = of_activations<QuantizeFloat8Problem>(call);
  p.block_k = std::max<int64_t>(call[BlockSize], 0);
  p.q = static_cast<uint8_t*>(call.make(0));
  p.scale = static_cast<float*>(call.make(1));
  return p;
}

}  // namespace mixed_gemm::quantize

namespace mixed_gemm::contract {

constexpr Contract kQuantizePerToken = {"quantize_per_token",
                                        quantize::kTokenArguments,
                                        quantize::kTokenRules,
                                        quantize::kTokenResults,
                                        nullptr,
                                        true};
constexpr Contract kQuantizePerTensor = {"quantize_per_tensor",
                                         quantize::kTensorArguments,
                                         quantize::kTensorRules,
                                         quantize::kTensorResults,
                                         nullptr,
                                         true};
constexpr Contract kQuantizeFp8 = {"quantize_fp8",
                                   quantize::kFloat8Arguments,
                                   quantize::kFloat8Rules,
                                   quantize::kFloat8Results,
                                   nullptr,
                                   true};

}  // namespace mixed_gemm::contract
