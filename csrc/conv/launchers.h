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

// How an instantiation file offers its kernels: of the modes that conv_scale_mode() gives.
struct ConvKernels {
  using Launchers = std::array<ConvLaunch, kNumConvTileConfigs>;
  static constexpr bool has(WeightType weight) { return weight_info(weight).is_integer; }

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const ConvKernels::Launchers& conv_launchers(ElementType element, WeightType weight,
                                             ScaleMode mode);

}  // namespace mixed_gemm
