// The launchers of every family that multiplies packed weights, found by element, weight type,
// scale mode and row of the family's table of tiles.
//
// A family says in its launchers.h
//
//   struct MultistageKernels {
//     using Launchers = std::array<GemmLaunch, kNumTileConfigs>;
//     static constexpr int kModes = kNumMultistageModes;
//     static constexpr bool has(WeightType weight, int mode);  // whether it is compiled
//     template <ElementType kElement, WeightType kWeight>
//     static const Launchers& launchers(int mode);  // what instantiation files define
//   };
//
// A launcher is null where its kernel is not compiled, which why_not refuses before. Instantiation
// files are for types that are their own compiled_weight().
#pragma once
#include "core/quant_scheme.h"
#include "core/weight_type.h"

namespace mixed_gemm {

// Whether there are instantiation files for a weight type.
template <typename Kernels>
constexpr bool has_weight(WeightType weight) {
  for (int mode = 0; mode < Kernels::kModes; ++mode) {
    if (Kernels::has(weight, mode)) return true;
  }
  return false;
}

// The launchers of a weight type, looked for from kFirst on.
template <typename Kernels, ElementType kElement, int kFirst = 0>
const typename Kernels::Launchers& launchers_of_element(WeightType weight, int mode) {
  constexpr auto kWeight = static_cast<WeightType>(kFirst);
  if constexpr (compiled_weight(kWeight) == kWeight && has_weight<Kernels>(kWeight)) {
    if (weight == kWeight) return Kernels::template launchers<kElement, kWeight>(mode);
  }
  if constexpr (kFirst + 1 < kNumWeights) {
    return launchers_of_element<Kernels, kElement, kFirst + 1>(weight, mode);
  }
  static constexpr typename Kernels::Launchers kNone = {};
  return kNone;
}

template <typename Kernels>
const typename Kernels::Launchers& launchers_of(ElementType element, WeightType weight, int mode) {
  const WeightType compiled = compiled_weight(weight);
  return element == ElementType::kFloat16
             ? launchers_of_element<Kernels, ElementType::kFloat16>(compiled, mode)
             : launchers_of_element<Kernels, ElementType::kBFloat16>(compiled, mode);
}

}  // namespace mixed_gemm
