#include "multistage/tables.cuh"

namespace mixed_gemm {
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 8, ScaleMode::kPerChannel>();
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 8, ScaleMode::kCoarse>();
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 8, ScaleMode::kCoarseZero>();
}  // namespace mixed_gemm
