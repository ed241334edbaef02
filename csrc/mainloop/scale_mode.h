// A scale mode says what a kernel does with scales, as a row of its family's list. A template takes
// the place in the list, as it takes the place of a tile in its table.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "core/tile.h"

namespace mixed_gemm {

// The values that scales multiply: outputs in the epilogue, fp32 sums of a group, or weights.
enum class Meets : int { kOutputs, kSums, kWeights };

constexpr int kAnyRow = -1;  // of ScaleMode::row_k

struct ScaleMode {
  int row_k = 0;  // elements of K that a row of scales serves in the mainloop; 0: none is there,
                  // kAnyRow: asked at run time
  bool zeros = false;  // rows of zero points beside those of scales
  Meets meets = Meets::kWeights;
  ScaleType type = ScaleType::kActivations;
};
constexpr ScaleMode kNoScaleRows = {0, false, Meets::kOutputs};
constexpr bool operator==(const ScaleMode& a, const ScaleMode& b) {
  return a.row_k == b.row_k && a.zeros == b.zeros && a.meets == b.meets && a.type == b.type;
}

// Whether there are scales in the mainloop.
constexpr bool is_scaled(const ScaleMode& mode) { return mode.row_k != 0; }

// Rows of scales of a k-tile.
constexpr int scale_rows(const ScaleMode& mode) {
  return is_scaled(mode) ? kTileK / mode.row_k : 0;
}

constexpr bool includes(ForModes modes, const ScaleMode& mode) {
  return includes(modes, mode.zeros        ? ForModes::kZeros
                         : is_scaled(mode) ? ForModes::kGroups
                                           : ForModes::kChannels);
}

// The place of a mode in a list; -1: it is not compiled.
template <int kCount>
constexpr int mode_index(const ScaleMode (&modes)[kCount], const ScaleMode& mode) {
  for (int i = 0; i < kCount; ++i) {
    if (modes[i] == mode) return i;
  }
  return -1;
}

// The rows of scales that a scheme needs in a k-tile: one where groups are multiples of it, else
// one for each half of it, or for each mma step of 16 k. None where one scale for all of K can wait
// for the epilogue. Floats are scaled as weights, per channel too (dequant/float_converter.h); a
// row for each half of a k-tile serves all groups that are multiples of it.
constexpr ScaleMode scale_mode(const QuantScheme& scheme, int64_t k) {
  const bool zeros = scheme.scales.zeros != ZeroMode::kNone;
  const int64_t group = scheme.scales.group;
  const bool one_group = group >= k;
  if (!weight_info(scheme.weight).is_integer) {
    const bool halves = one_group || group % (kTileK / 2) == 0;
    return {halves ? kTileK / 2 : kMmaK, zeros, Meets::kWeights, scheme.scales.type};
  }
  if (one_group && !zeros) return kNoScaleRows;
  const int row_k = one_group || group % kTileK == 0 ? kTileK
                    : group % (kTileK / 2) == 0      ? kTileK / 2
                                                     : kMmaK;
  return {row_k, zeros, Meets::kWeights, scheme.scales.type};
}

}  // namespace mixed_gemm
