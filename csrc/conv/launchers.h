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
using ConvLaunchers = std::array<ConvLaunch, kNumConvTileConfigs>;

template <ElementType kElement, int kBits>
const ConvLaunchers& conv_launchers(ScaleMode mode);

// mode: one that conv_scale_mode() gives.
const ConvLaunchers& conv_launchers(ElementType element, int bits, ScaleMode mode);

}  // namespace mixed_gemm
