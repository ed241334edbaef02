// Launchers of the convolutions as plain function pointers.
#pragma once
#include <array>

#include "conv/config.h"
#include "grid/work.h"
#include "problem/conv.h"

namespace mixed_gemm {

// problem: as ImplicitGemm::run() takes it, with offsets where the mode has zeros. Returns a
// cudaError_t.
using ConvLaunch = int (*)(const ConvProblem& problem, const Work& work);

// The kernels that instantiation files offer.
struct ConvKernels {
  using Launchers = std::array<ConvLaunch, kNumConvTileConfigs>;
  static constexpr bool has(WeightType weight, int mode) { return is_conv_compiled(weight, mode); }
  static constexpr int kModes = kNumConvModes;

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const ConvKernels::Launchers& conv_launchers(ElementType element, WeightType weight, int mode);

}  // namespace mixed_gemm
