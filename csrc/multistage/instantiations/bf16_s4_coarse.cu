#include "multistage/tables.cuh"

namespace mixed_gemm {
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 4, ScaleMode::kPerChannel>();
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 4, ScaleMode::kCoarse>();
template const TileLaunchers& tile_launchers<ElementType::kBFloat16, 4, ScaleMode::kCoarseZero>();
}  // namespace mixed_gemm
