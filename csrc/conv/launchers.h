// Launchers of the convolutions as plain function pointers.
#pragma once
#include <array>

#include "conv/args.h"
#include "conv/config.h"

namespace mixed_gemm {

using ConvLaunchers = std::array<ConvLaunch, kNumConvTileConfigs>;

template <ElementType kElement, int kBits>
const ConvLaunchers& conv_launchers(ScaleMode mode);

// mode: one that conv_scale_mode() gives.
const ConvLaunchers& conv_launchers(ElementType element, int bits, ScaleMode mode);

}  // namespace mixed_gemm
