// The rules and the problem of a packed weight with its scales, for every op that takes one.
#pragma once
#include "layout/weight_layout.h"
#include "ops/call.h"
#include "problem/gemm.h"

namespace mixed_gemm::gemm {

constexpr const char *kBitsWords = "4 or 8",
                     *kGroupWords = "elements of K that share a scale; -1: all of them";

// A product of m rows with an [N, K] weight of these groups; with one of integers of these bits.
std::optional<Refusal> refuse_sizes(int64_t m, const contract::Given& given, int64_t group_size);
std::optional<Refusal> refuse_product(int64_t m, const contract::Given& given, int64_t group_size);

// Says that it is K of a that does not fit, where the shape of b_packed is asked later and could
// not. dims: of b_packed, 3 where it has a weight for each expert.
constexpr int kPackedOfProduct = 1;  // the place of b_packed in every product
std::optional<Refusal> refuse_packed_k(const contract::Given& given, int dims);
inline std::optional<Refusal> refuse_packed_k(contract::Given& given) {
  return refuse_packed_k(given, 2);
}

constexpr contract::Rule by_group(const char* name) {
  using namespace contract;
  return shape(name, {groups(K, GroupSize), N}).because_of({K, GroupSize}).may_be_transposed();
}

// from: where a packed weight comes from, behind its dtype in a refusal.
constexpr contract::RuleList<2> packed_rules(const char* from = " (from mixed_gemm.pack_weights)") {
  using namespace contract;
  return {{dtype("b_packed", Dtype::kUint8, from),
           shape("b_packed", {rounded_up(N, kPadN), rounded_up(K, kPadK) * Bits / 8})
               .because_of({N, K, Bits})}};
}

// The rules of a weight, all but those on its numbers.
constexpr contract::RuleList<7> weight_rules() {
  using namespace contract;
  constexpr Rule kScaleRules[] = {choice("zero_mode", kZeroModeNames, 1), floats("scales"),
                                  by_group("scales"), same_dtype("zeros", "scales"),
                                  by_group("zeros")};
  return together(kScaleRules, packed_rules().items);
}

struct WeightPlaces {
  int packed, scales;
  int zeros = -1, zero_mode = -1;  // of an op whose weights may have zero points
};
// Fills in n, k, element (of the scales), scheme and b_packed.
GemmProblem codes_of(Call& call, const WeightPlaces& at, WeightType weight);
// The same with scales and zeros, as matrices of one stride.
GemmProblem weight_of(Call& call, const WeightPlaces& at, WeightType weight);
// The integers of the bits that the call says.
GemmProblem integers_of(Call& call, const WeightPlaces& at);

}  // namespace mixed_gemm::gemm
