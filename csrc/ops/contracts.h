// Every op that takes tensors, as docs/ops.md lists them: the tables of csrc/ops/<op>/contract.cpp.
#pragma once
#include "contract/contract.h"

namespace mixed_gemm::contract {

extern const Contract kScaledMm, kScaledMmAzp, kScaledMmConfig, kScaledMmDynamic, kQuantizePerToken,
    kQuantizePerTensor, kQuantizeFp8;

inline constexpr const Contract* kContracts[] = {
    &kScaledMm,
    &kScaledMmAzp,
    &kScaledMmConfig,
    &kScaledMmDynamic,
    &kQuantizePerToken,
    &kQuantizePerTensor,
    &kQuantizeFp8,
};

}  // namespace mixed_gemm::contract
