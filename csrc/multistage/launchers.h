// How an instantiation file offers its kernels: one function per (element, bits, scale mode).
#pragma once
#include "transform/launchers.h"

namespace mixed_gemm {

// Tags instead of CUTLASS's types: dispatch/ must compile without CUTLASS. Each specialisation
// lives in a file named after it: <element>_<weight>_<modes>.cu.
template <ElementType kElement, int kBits, ScaleMode kMode>
const TileLaunchers& tile_launchers();
template <ElementType kElement, int kBits, SkinnyMode kMode>
const SkinnyLaunchers& skinny_launchers();
template <ElementType kElement, int kBits, WgmmaMode kMode>
const WgmmaLaunchers& wgmma_launchers();

}  // namespace mixed_gemm
