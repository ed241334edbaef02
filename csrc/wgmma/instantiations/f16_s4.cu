#include "wgmma/tables.cuh"

namespace mixed_gemm {
template const WgmmaLaunchers& wgmma_launchers<ElementType::kFloat16, 4, WgmmaMode::kPerChannel>();
template const WgmmaLaunchers& wgmma_launchers<ElementType::kFloat16, 4, WgmmaMode::kScaled>();
template const WgmmaLaunchers& wgmma_launchers<ElementType::kFloat16, 4, WgmmaMode::kScaledZero>();
}  // namespace mixed_gemm
