// _sum_over_ranks. Its inboxes are a list, which the kernel looks at (cuda.cpp).
#include "ops/contracts.h"

namespace mixed_gemm::ranks {
namespace {

using namespace contract;

constexpr int kCounter = 2;

std::optional<Refusal> refuse_counter(Given& given) {
  const View& counter = given.views[kCounter];
  if (counter.dims == 1 && counter.sizes[0] == 2) return {};
  return value_fault(
      {"counter", "be (sums, blocks,) = (2,)", sizes_text(counter.sizes, counter.dims)});
}

// Only on CUDA, for mixed_gemm.parallel: sums the terms of all ranks, in the order of the ranks.
// inboxes: memory of all ranks (uint8 of _inbox_bytes bytes, zero before the first call), which
// this one writes; counter: int64 (sums, blocks), zero at first, of this rank alone. A term of at
// most few_bytes is sent in units (ranks/inbox.h).
constexpr Argument kArguments[] = {
    tensor("term"), written_tensors("inboxes").must_be("uint8", "(bytes,) of each rank"),
    written_tensor("counter").must_be("", "(2,)"), integer("rank"), integer("few_bytes")};
constexpr auto kRules =
    placed(kArguments, {dtype("counter", Dtype::kInt64), require(refuse_counter), floats("term")});
constexpr auto kResults = given_by(kArguments, {whole_of("term")});

}  // namespace
}  // namespace mixed_gemm::ranks

namespace mixed_gemm::contract {

constexpr Contract kSumOverRanks = {"_sum_over_ranks", ranks::kArguments, ranks::kRules,
                                    ranks::kResults};

}  // namespace mixed_gemm::contract
