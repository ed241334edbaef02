#include "multistage/tables.cuh"

namespace mixed_gemm {
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 4, ScaleMode::kHalf>();
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 4, ScaleMode::kHalfZero>();
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 4, ScaleMode::kFine>();
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 4, ScaleMode::kFineZero>();
}  // namespace mixed_gemm
