// The launcher of each row of kSkinnyConfigs as plain function pointers, by [element][bits][mode].
#pragma once
#include <array>

#include "grid/gemm_launch.h"
#include "skinny/config.h"

namespace mixed_gemm {

using SkinnyLaunchers = std::array<GemmLaunch, kNumSkinnyConfigs>;

const SkinnyLaunchers& skinny_launchers(ElementType element, int bits, SkinnyMode mode);

// How an instantiation file offers its kernels. ElementType instead of CUTLASS's types: what calls
// this compiles without CUTLASS.
template <ElementType kElement, int kBits, SkinnyMode kMode>
const SkinnyLaunchers& skinny_launchers();

}  // namespace mixed_gemm
