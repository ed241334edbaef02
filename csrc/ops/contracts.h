// Every op that takes tensors, as docs/ops.md lists them: the tables of csrc/ops/<op>/contract.cpp.
#pragma once
#include "contract/contract.h"

namespace mixed_gemm::contract {

extern const Contract kGemm, kGemmConfig;
extern const Contract kScaledMm, kScaledMmAzp, kScaledMmConfig, kScaledMmDynamic;
extern const Contract kQuantizePerToken, kQuantizePerTensor, kQuantizeFp8;
extern const Contract kBlockQuantGemm, kBlockQuantGemmConfig, kBlockQuantize;
extern const Contract kQconv2d, kQconv2dConfig, kQconv2dConfigs;
extern const Contract kQconv2dInt8, kQconv2dInt8Config, kQconv2dInt8Configs;
extern const Contract kAwqGemm, kAwqDequantize;
extern const Contract kPackWeights, kUnpackWeights, kDequantizeWeights;
extern const Contract kFloatGemm, kFloatGemmConfig, kPackCodes, kUnpackCodes, kDequantizeCodes;
extern const Contract kGroupedGemm, kGroupedGemmConfig;
extern const Contract kGroupedFloatGemm, kGroupedFloatGemmConfig;
extern const Contract kPackConvWeights, kAwqRepack, kGptqRepack;
extern const Contract kMoePermute, kMoeCombine, kGatedActivation;
extern const Contract kSumOverRanks;

inline constexpr const Contract* kContracts[] = {
    &kGemm,
    &kGemmConfig,
    &kScaledMm,
    &kScaledMmAzp,
    &kScaledMmConfig,
    &kScaledMmDynamic,
    &kQuantizePerToken,
    &kQuantizePerTensor,
    &kQuantizeFp8,
    &kBlockQuantGemm,
    &kBlockQuantGemmConfig,
    &kBlockQuantize,
    &kQconv2d,
    &kQconv2dConfig,
    &kQconv2dConfigs,
    &kQconv2dInt8,
    &kQconv2dInt8Config,
    &kQconv2dInt8Configs,
    &kAwqGemm,
    &kAwqDequantize,
    &kPackWeights,
    &kUnpackWeights,
    &kDequantizeWeights,
    &kFloatGemm,
    &kFloatGemmConfig,
    &kPackCodes,
    &kUnpackCodes,
    &kDequantizeCodes,
    &kGroupedGemm,
    &kGroupedGemmConfig,
    &kGroupedFloatGemm,
    &kGroupedFloatGemmConfig,
    &kPackConvWeights,
    &kAwqRepack,
    &kGptqRepack,
    &kMoePermute,
    &kMoeCombine,
    &kGatedActivation,
    &kSumOverRanks,
};

}  // namespace mixed_gemm::contract
