// Names and limits that the families of few rows (skinny, scaled_skinny) share.
#pragma once
#include <cstdint>
#include <string>

#include "core/quant_scheme.h"

namespace mixed_gemm {

inline std::string skinny_row_name(int tokens, int columns, int warps) {
  return "skinny_m" + std::to_string(tokens) + "n" + std::to_string(columns) + "w" +
         std::to_string(warps);
}

// Reason why blocks of so many tokens cannot cover m rows, or empty. Blocks lie along y of the
// grid, where CUDA allows 65,535.
inline std::string why_not_skinny_rows(int64_t m, int64_t tokens) {
  constexpr int64_t kMaxGridY = 65535;
  if (ceil_div(m, tokens) <= kMaxGridY) return "";
  return "M must be at most " + std::to_string(kMaxGridY * tokens) + " for this kernel, got " +
         std::to_string(m);
}

}  // namespace mixed_gemm
