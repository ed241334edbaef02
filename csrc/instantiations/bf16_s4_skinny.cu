#include "instantiations/skinny_tables.cuh"

namespace mixed_gemm {
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, ScaleMode::kPerChannel>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, ScaleMode::kCoarse>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, ScaleMode::kCoarseZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, ScaleMode::kFine>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, ScaleMode::kFineZero>();
}  // namespace mixed_gemm
