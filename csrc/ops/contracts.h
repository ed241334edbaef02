// Every op that takes tensors, as docs/ops.md lists them: the tables of csrc/ops/<op>/contract.cpp.
#pragma once
#include "contract/contract.h"

namespace mixed_gemm::contract {

extern const Contract kBlockQuantGemm, kBlockQuantGemmConfig, kBlockQuantize, kAwqGemm,
    kAwqDequantize, kAwqRepack, kGptqRepack, kScaledMm, kScaledMmAzp, kScaledMmConfig,
    kScaledMmDynamic, kQuantizePerToken, kQuantizePerTensor, kQuantizeFp8;

inline constexpr const Contract* kContracts[] = {
    &kScaledMm,        &kScaledMmAzp,      &kScaledMmConfig,
    &kScaledMmDynamic, &kQuantizePerToken, &kQuantizePerTensor,
    &kQuantizeFp8,     &kBlockQuantGemm,   &kBlockQuantGemmConfig,
    &kBlockQuantize,   &kAwqGemm,          &kAwqDequantize,
    &kAwqRepack,       &kGptqRepack,
};

}  // namespace mixed_gemm::contract
