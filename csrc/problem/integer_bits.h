// Weight types of integers by their width, as users name them. Nothing else below ops/ knows bits.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/weight_type.h"

namespace mixed_gemm {

// Reason why no integers of this width are stored, or empty. Made from the list of weight types.
inline std::string why_not_bits(int64_t bits) {
  if (integer_weight(bits)) return "";
  std::string widths;
  for (int i = 0; i < kNumWeights; ++i) {
    const WeightInfo info = weight_info(static_cast<WeightType>(i));
    if (info.is_integer) widths += (widths.empty() ? "" : " or ") + std::to_string(info.bits);
  }
  return "bits must be " + widths + ", got " + std::to_string(bits);
}

// The width that is nearest to the given one; the lesser of two that are equally near.
inline int64_t nearest_bits(int64_t bits) {
  int64_t nearest = 0;
  for (int i = 0; i < kNumWeights; ++i) {
    const WeightInfo info = weight_info(static_cast<WeightType>(i));
    const bool nearer = nearest == 0 || std::abs(bits - info.bits) < std::abs(bits - nearest);
    if (info.is_integer && nearer) nearest = info.bits;
  }
  return nearest;
}

}  // namespace mixed_gemm
