// The rules of a packed weight of floats with its scales, for every op that takes one.
#pragma once
#include "ops/gemm/weight.h"

namespace mixed_gemm::float_weights {

// The names of float weights, whose choice is the WeightType and binds the bits of its codes.
constexpr contract::Rule kWeight = contract::choice("weight", kWeightNames.items, kFirstFloat)
                                       .binds(contract::Bits, kWeightBits.items);
inline WeightType chosen(const Call& call, int at) {
  return static_cast<WeightType>(call.number(at));
}

constexpr const char* kPackedFrom = " (from mixed_gemm.pack_codes)";

// The rules of a weight, all but those on its numbers.
constexpr contract::RuleList<6> weight_rules() {
  using namespace contract;
  constexpr Rule kScales[] = {floats("scales"), gemm::by_group("scales")};
  constexpr Rule kFactor[] = {dtype("factor", Dtype::kFloat32).with_hint("factor.float()"),
                              shape("factor", {N})};
  return together(kScales, gemm::packed_rules(kPackedFrom).items, kFactor);
}

}  // namespace mixed_gemm::float_weights
