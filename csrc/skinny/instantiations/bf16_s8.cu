#include "skinny/tables.cuh"

namespace mixed_gemm {
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kPerChannel>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kCoarse>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kCoarseZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kHalf>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kHalfZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kQuarter>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kQuarterZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kBlock>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kBlockZero>();
template const SkinnyLaunchers& skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kFine>();
template const SkinnyLaunchers&
skinny_launchers<ElementType::kBFloat16, 8, SkinnyMode::kFineZero>();
}  // namespace mixed_gemm
