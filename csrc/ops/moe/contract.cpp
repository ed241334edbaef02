// The way of tokens to the experts of a mixture and back.
#include "ops/moe/contract.h"

#include <limits>

#include "ops/host_values.h"

namespace mixed_gemm::moe {
namespace {

using namespace contract;

constexpr int64_t kMostExperts = std::numeric_limits<int32_t>::max();

enum : int { kHidden, kIds, kNumExperts };

std::optional<Refusal> refuse_ids(Given& given) {
  const View& ids = given.views[kIds];
  if (ids.dtype == Dtype::kInt32 || ids.dtype == Dtype::kInt64) return {};
  return type_fault({"topk_ids", "be int32 or int64", ids.dtype_name()});
}

// Rows are counted in int32.
std::optional<Refusal> refuse_many(Given& given) {
  const View& ids = given.views[kIds];
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (ids.sizes[1] == 0 || ids.sizes[0] <= kMost / ids.sizes[1]) return {};
  return value_fault({"topk_ids", "have fewer than 2^31 = 2147483648 elements",
                      sizes_text(ids.sizes, ids.dims), "", "split the tokens"});
}

constexpr Argument kPermuteArguments[] = {tensor("hidden_states"),
                                          tensor("topk_ids").must_be("int32 or int64", ""),
                                          integer("num_experts").binds(Experts)};
constexpr auto kPermuteRules = placed(
    kPermuteArguments,
    {floats("hidden_states"), rank("hidden_states", 2, "(M, K)"), bind(M, "hidden_states", 0),
     bind(K, "hidden_states", 1), require(refuse_ids), rank("topk_ids", 2),
     bind(Choices, "topk_ids", 1), shape("topk_ids", {M, Choices}).because_of({M}),
     require(refuse_many), range("num_experts", 1, kMostExperts)});
constexpr auto kPermuteResults =
    given_by(kPermuteArguments,
             {matrix("hidden_states", M* Choices, K).named("rows"),
              vector("hidden_states", Experts).of_dtype(Dtype::kInt32).named("offs"),
              matrix("hidden_states", M, Choices).of_dtype(Dtype::kInt32).named("positions")});

enum : int { kRows, kPositions, kWeights };

std::optional<Refusal> refuse_weights(Given& given) {
  const View &weights = given.views[kWeights], &rows = given.views[kRows];
  if (weights.dtype == Dtype::kFloat32 || weights.dtype == rows.dtype) return {};
  const char* as_rows = rows.dtype == Dtype::kFloat32 ? "" : rows.dtype_name();
  return type_fault(
      {"weights",
       *as_rows == 0 ? "be float32" : joined("be float32 or ", as_rows, " (the dtype of rows)"),
       weights.dtype_name()});
}

constexpr Argument kCombineArguments[] = {
    tensor("rows"), tensor("positions"),
    tensor("weights").must_be("float32 or the dtype of rows", "")};
constexpr auto kCombineRules = placed(
    kCombineArguments,
    {floats("rows"), rank("rows", 2, "(R, K)"), bind(K, "rows", 1),
     dtype("positions", Dtype::kInt32), rank("positions", 2, "(M, top_k)"), bind(M, "positions", 0),
     bind(Choices, "positions", 1), require(refuse_weights), shape("weights", {M, Choices})});
constexpr auto kCombineResults = given_by(kCombineArguments, {matrix("rows", M, K)});

bool on_cpu(const Call& call) { return call.view(0).device == kCpuDevice; }

}  // namespace

MoePermuteProblem permuted(Call& call) {
  MoePermuteProblem p;
  p.tokens = call[M], p.choices = call[Choices], p.experts = call[Experts];
  p.wide_ids = call.view(kIds).dtype == Dtype::kInt64;
  p.ids = call.elements(kIds);
  if (on_cpu(call)) {
    check_indices(call.op(), "topk_ids", call.tensor(kIds), -1, p.experts,
                  joined("num_experts=", p.experts));
  }
  p.element = call.element(kHidden);
  p.k = call[K];
  p.hidden = call.rows(kHidden, p.hidden_stride);
  p.rows = call.make(0);
  p.offs = static_cast<int32_t*>(call.make(1));
  p.positions = static_cast<int32_t*>(call.make(2));
  return p;
}

MoeCombineProblem combined(Call& call) {
  MoeCombineProblem p;
  p.tokens = call[M], p.choices = call[Choices];
  p.row_count = call.view(kRows).sizes[0], p.k = call[K];
  p.positions = static_cast<const int32_t*>(call.elements(kPositions));
  if (on_cpu(call)) {
    check_indices(call.op(), "positions", call.tensor(kPositions), -1, p.row_count - 1,
                  joined(p.row_count, " rows"));
  }
  p.element = call.element(kRows);
  p.rows = call.rows(kRows, p.row_stride);
  p.weight_type = call.element(kWeights);
  p.weights = call.elements(kWeights);
  p.d = call.make(0);
  return p;
}

}  // namespace mixed_gemm::moe

namespace mixed_gemm::contract {

constexpr Contract kMoePermute = {
    "moe_permute", moe::kPermuteArguments, moe::kPermuteRules, moe::kPermuteResults, nullptr, true};
constexpr Contract kMoeCombine = {
    "moe_combine", moe::kCombineArguments, moe::kCombineRules, moe::kCombineResults, nullptr, true};

}  // namespace mixed_gemm::contract
