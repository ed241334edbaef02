#include "ops/block_gemm/contract.h"

namespace mixed_gemm::block_gemm {
namespace {

using namespace contract;

enum : int { kA, kB, kScaleB, kOffsetB, kBias, kSums, kActivation = 7 };

std::optional<Refusal> refuse_sizes(Given& given) {
  const std::string reason = why_not_block_gemm(given[M], given[N], given[K], given[BlockSize]);
  if (reason.empty()) return {};
  return Refusal{ErrorKind::kValue, reason};
}

constexpr Rule by_block(const char* name) {
  return shape(name, {groups(K, BlockSize), N}).because_of({K, BlockSize}).may_be_transposed();
}

constexpr Rule kSizes[] = {floats("a"), rows("a"), dtype("b", Dtype::kInt8), column_major("b", "a"),
                           require(refuse_sizes)};
constexpr Rule kActivations[] = {choice("activation", kActivationNames)};
constexpr Rule kScales[] = {whole(BlockSize, K), same_dtype("scale_b", "a"), by_block("scale_b"),
                            same_dtype("offset_b", "a"), by_block("offset_b")};
constexpr Rule kVectors[] = {same_dtype("bias", "a"), shape("bias", {N}),
                             dtype("b_sums", Dtype::kInt32), by_block("b_sums")};

constexpr Argument kArguments[] = {
    tensor("a"),
    tensor("b"),
    tensor("scale_b"),
    tensor("offset_b"),
    optional_tensor("bias"),
    optional_tensor("b_sums"),
    integer("block_size")
        .keyword()
        .binds(BlockSize)
        .must_be("", "elements of K that share a scale; -1: all of them"),
    text("activation", "\"identity\"").keyword()};
constexpr auto kForcedArguments = with_config(kArguments);
constexpr auto kRules = placed(kArguments, together(kSizes, kActivations, kScales, kVectors).items);
constexpr auto kResults = given_by(kArguments, {leading("a", N)});

// Only on CUDA, for tests and benchmarks: the first launch makes of a q, int8 [M, K with blocks
// padded to 32 where there are several, in rows of 16 bytes], and rows, float32 [blocks, M, (scale,
// offset, sum, -)].
constexpr Argument kQuantizeArguments[] = {
    tensor("a"), tensor("b"), tensor("scale_b"), tensor("offset_b"),
    integer("block_size")
        .keyword()
        .binds(BlockSize)
        .must_be("", "elements of K that share a scale; -1: all of them")};
constexpr auto kQuantizeRules = placed(kQuantizeArguments, together(kSizes, kScales).items);
constexpr auto kQuantizeResults = given_by(
    kQuantizeArguments,
    {made("(M, K in blocks) in int8").named("q"), made("(blocks, M, 4) in float32").named("rows")});

}  // namespace

BlockGemmProblem operands_of(Call& call) {
  BlockGemmProblem p;
  p.m = call[M], p.n = call[N], p.k = call[K];
  p.element = call.element(kA);
  p.block_size = call[BlockSize];
  p.a = call.rows(kA, p.lda);
  p.b = static_cast<const int8_t*>(call.data(kB));
  p.ldb = p.n > 1 ? call.view(kB).strides[1] : p.k;
  p.scale_stride = call.matrices(kScaleB, kOffsetB);
  p.scale_b = call.data(kScaleB);
  p.offset_b = call.data(kOffsetB);
  return p;
}

BlockGemmProblem problem_of(Call& call) {
  BlockGemmProblem p = operands_of(call);
  p.activation = static_cast<Activation>(call.number(kActivation));
  p.bias = call.contiguous(kBias);
  p.b_sums = static_cast<const int32_t*>(call.elements(kSums));
  p.d = call.make(0);
  return p;
}

}  // namespace mixed_gemm::block_gemm

namespace mixed_gemm::contract {

constexpr Contract kBlockQuantGemm = {"block_quant_gemm",
                                      block_gemm::kArguments,
                                      block_gemm::kRules,
                                      block_gemm::kResults,
                                      nullptr,
                                      true};
constexpr Contract kBlockQuantGemmConfig = {"_block_quant_gemm_config",
                                            block_gemm::kForcedArguments.items, block_gemm::kRules,
                                            block_gemm::kResults, "block_quant_gemm"};
constexpr Contract kBlockQuantize = {"_block_quantize", block_gemm::kQuantizeArguments,
                                     block_gemm::kQuantizeRules, block_gemm::kQuantizeResults,
                                     "block_quant_gemm"};

}  // namespace mixed_gemm::contract
