#include "wgmma/tables.cuh"

namespace mixed_gemm {
template const WgmmaLaunchers& wgmma_launchers<ElementType::kBFloat16, 8, WgmmaMode::kPerChannel>();
template const WgmmaLaunchers& wgmma_launchers<ElementType::kBFloat16, 8, WgmmaMode::kScaled>();
template const WgmmaLaunchers& wgmma_launchers<ElementType::kBFloat16, 8, WgmmaMode::kScaledZero>();
}  // namespace mixed_gemm
