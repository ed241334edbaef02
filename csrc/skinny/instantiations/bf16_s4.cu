#include "skinny/tables.cuh"

namespace mixed_gemm {
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kPerChannel>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kCoarse>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kCoarseZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kHalf>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kHalfZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kQuarter>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kQuarterZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kBlock>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kBlockZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kFine>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 4, SkinnyMode::kFineZero>();
}  // namespace mixed_gemm
