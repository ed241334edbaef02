"""Which of the ordinary tests must notice which mistake of tools/mutation/rows.py.

A row names the cheapest tests that are meant to; any one that fails will do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tests:
    """One run of tests. program: of the build folder, with a filter of GoogleTest, or "pytest",
    with arguments of which "-k" and its expression come last."""

    program: str
    arguments: tuple[str, ...]


def host(pattern: str) -> Tests:
    return Tests("host_tests", (pattern,))


def cpu(pattern: str) -> Tests:
    return Tests("cpu_tests", (pattern,))


def python(file: str, only: str = "") -> Tests:
    return Tests("pytest", (f"tests/python/{file}.py", *(("-k", only) if only else ())))


def problems(op: str) -> Tests:
    return python("ops/test_problems", f"together and {op}-")


def gpu(file: str, only: str = "") -> Tests:
    return Tests("pytest", (f"tests/gpu/test_gpu_{file}.py", *(("-k", only) if only else ())))


CPU: dict[str, tuple[Tests, ...]] = {
    "SwappedNibbles": (host("*PackWeight*"),),
    "SwappedRows": (host("*PackWeight*"),),
    "PaddingNotZero": (host("*PackWeight*"), python("ops/test_layout_hypothesis", "padding")),
    "CodePlaces": (host("WeightType.*"),),
    "FloatSign": (host("WeightType*"),),
    "FloatMultiplier": (host("FloatConverterTest*"),),
    "BookHalf": (host("FloatConverterTest*"),),
    "ColumnFactor": (problems("fpA_fpB_gemm"),),
    "InterleavedColumn": (host("*RepackGptq*"),),
    "AwqNibbleOrder": (host("*RepackAwq*"),),
    "ActOrderIgnored": (host("*RepackGptq*"),),
    "FieldAcrossWords": (host("*RepackGptq*"),),
    "ConverterMagic": (host("IntegerConverterTest*"),),
    "OffsetShift": (host("OffsetConverterTest*"),),
    "FoldedRest": (host("FoldingConverterTest*"),),
    "AwqZeroColumn": (host("AwqConverterTest*"),),
    "KeyWithoutWeight": (host("Select.*"),),
    "TunedWeight": (host("TunedTable.*"),),
    "ModeRows": (host("ScaleMode.*"),),
    "KeyWithoutGroup": (host("Select.*"),),
    "KeyWithoutTable": (host("Select.*"),),
    "KeyWithoutImage": (host("ConvSelect.*"),),
    "KeyWithoutOperand": (host("Select.*"),),
    "TorchOnHopper": (host("ScaledInTorch.*"),),
    "RowsOfPaddedK": (host("KernelExtents.*"),),
    "LeadingDimension": (python("ops/test_gemm", "view_equals"),),
    "DroppedSlice": (host("*WorkSplit*"),),
    "GroupOffByOne": (cpu("*every_scheme_and_group*"),),
    "MissingLastZero": (cpu("*every_scheme_and_group*"),),
    "BiasOfRaggedTile": (cpu("*ragged_shapes*"),),
    "ActivationFirst": (cpu("*every_activation*"),),
    "Float16Sums": (cpu("*portable*"),),
    "PreScaleOfRows": (python("ops/test_gemm", "view"), cpu("*ragged_shapes*")),
    "TailRow": (cpu("*every_number_of_rows*"),),
    "PreviousRow": (cpu("*every_number_of_rows*"),),
    "KRoundedUp": (cpu("*ragged_shapes*"), problems("fpA_intB_gemm")),
    "LastUnit": (cpu("*ragged_shapes*fused"),),
    "LastPanel": (cpu("*every_scheme_and_group*dense"),),
    "BookInPairs": (cpu("*every_scheme_and_group*tiles"),),
    "RoundedPairs": (cpu("*one_hot_rows_read_back*"),),
    "UnscaledSlab": (cpu("*every_scheme_and_group*"),),
    "BookPair": (cpu("*every_scheme_and_group*"),),
    "Avx2SmallFloat8": (cpu("*one_hot*avx2*"),),
    "Avx512SmallFloat8": (cpu("*one_hot*avx512*"),),
    "Avx2Ties": (cpu("*avx2*"),),
    "ExpertBefore": (host("GroupedGemmCpu.*"),),
    "RowsOfNone": (host("GroupedGemmCpu.*"),),
    "UnitsOfExperts": (host("GroupedGemmCpu.*"),),
    "ScaleOfRow": (cpu("*ScaledMmCpu.epilogues*"),),
    "AzpWraps": (cpu("*ScaledMmCpu.zero_points*"),),
    "AzpOfRow": (cpu("*ScaledMmCpu.epilogues*"),),
    "RoundsHalfAway": (host("*QuantizeCpu*"),),
    "Float8ByInverse": (host("*DivideForFloat8*"),),
    "AzpSign": (host("*QuantizeCpu*"),),
    "BlockSum": (problems("block_quant_gemm"),),
    "Float8Columns": (cpu("*ScaledMmCpu.float8_blocks*"),),
    "UnalignedForCublas": (python("ops/test_fp8_operands", "cublas"),),
    "ScalesOfFirstBlock": (python("ops/test_fp8_operands", "blocks"),),
    "Float8Steps": (host("*QuantizeCpu.float8*avx512*"),),
    "GivenSum": (problems("block_quant_gemm"), problems("qconv2d_int8")),
    "AwqZeroRow": (python("ops/test_awq", "one_hot"), problems("awq")),
    "LastChoiceFirst": (problems("moe_permute"), python("ops/test_moe")),
    "WeightOfFirst": (problems("moe_combine"), python("ops/test_moe")),
    "AreaBelow": (cpu("*every_activation*"), problems("gated_activation")),
    "LowestUp": (problems("gated_activation"),),
    "LastGates": (problems("gated_activation"),),
    "OneSlot": (host("Inbox.*"),),
    "OldUnits": (host("Inbox.*"),),
    "HalfUnit": (host("Inbox.*"),),
    "PaddingValue": (python("ops/test_conv_int8", "padding"), problems("qconv2d_int8")),
    "EdgeDilation": (problems("qconv2d"),),
    "RaggedBlock": (problems("qconv2d"),),
    "Truncates": (python("ops/test_conv_int8", "ties or nearest"),),
}

# Two kernels of each family, in fp16, with all modes and splits.
EVERY = "test_every_kernel_and_split"
MULTISTAGE = f"{EVERY} and not bfloat16 and (multistage_m16n128s6 or multistage_m64n128s4)"
SKINNY = f"{EVERY} and not bfloat16 and (skinny_m8n32w8 or skinny_m16n64w8 or skinny_m8n16w8)"
WGMMA = f"{EVERY} and not bfloat16 and (wgmma_m128n128s6 or wgmma_m16n256k128s4)"

GPU: dict[str, tuple[Tests, ...]] = {
    "SwappedNibbles": (gpu("gemm", "one_hot and not bfloat16 and coarse"),),
    "SwappedRows": (gpu("gemm", "one_hot and not bfloat16 and coarse"),),
    "CodePlaces": (gpu("gemm", "one_hot and not bfloat16 and coarse"),),
    "FloatSign": (gpu("problems", "every_two_values and fpA_fpB_gemm"),),
    "FloatMultiplier": (gpu("problems", "every_two_values and fpA_fpB_gemm"),),
    "BookHalf": (gpu("problems", "every_two_values and fpA_fpB_gemm"),),
    "BookOfKernels": (gpu("problems", "every_two_values and fpA_fpB_gemm"),),
    "ColumnFactor": (gpu("problems", "every_two_values and fpA_fpB_gemm"),),
    "InterleavedColumn": (gpu("checkpoints", "repack_equals"),),
    "ActOrderIgnored": (gpu("checkpoints", "repack_equals"),),
    "FieldAcrossWords": (gpu("checkpoints", "repack_equals"),),
    "ConverterMagic": (gpu("gemm", "one_hot and not bfloat16"),),
    "OffsetShift": (gpu("gemm", "one_hot and bfloat16"),),
    "FoldedRest": (gpu("gemm", "whole_and_other and wgmma_m128n128s6"), gpu("gemm", WGMMA)),
    "AwqZeroColumn": (gpu("checkpoints", "awq_gemm_is_within"),),
    "ModeRows": (gpu("gemm", MULTISTAGE),),
    "LauncherBeside": (gpu("gemm", SKINNY),),
    "RowsOfPaddedK": (gpu("gemm", "one_group_of_a_ragged_k"),),
    "LeadingDimension": (gpu("contract", "places and fpA_intB_gemm"),),
    "UnzeroedFlags": (gpu("inputs", "flags_that_are_set"),),
    "DroppedStream": (gpu("contract", "(stream or graph) and fpA_intB_gemm"),),
    "DroppedSlice": (gpu("gemm", MULTISTAGE),),
    "MissingPartial": (gpu("gemm", MULTISTAGE),),
    "DroppedPartial": (gpu("gemm", MULTISTAGE),),
    "DroppedFactor": (gpu("gemm", MULTISTAGE),),
    "ClusterRank": (gpu("gemm", MULTISTAGE), gpu("scaled_mm")),
    "Int32Offset": (gpu("block_quant", "beyond"), gpu("inputs", "beyond")),
    "GroupOffByOne": (gpu("gemm", MULTISTAGE),),
    "MissingLastZero": (gpu("gemm", SKINNY),),
    "AddedZero": (gpu("gemm", MULTISTAGE),),
    "BiasOfRaggedTile": (gpu("gemm", MULTISTAGE),),
    "ActivationFirst": (gpu("gemm", MULTISTAGE),),
    "Float16Sums": (gpu("gemm", MULTISTAGE),),
    "PreScaleOfRows": (gpu("contract", "places and fpA_intB_gemm"),),
    "SkinnyGroup": (gpu("gemm", SKINNY),),
    "SkinnyBlock": (gpu("gemm", SKINNY),),
    "WgmmaGroup": (gpu("gemm", WGMMA),),
    "WordsOfGroup": (gpu("gemm", f"{EVERY} and float16-8 and wgmma_m32n256"),),
    "DequantizedZero": (gpu("gemm", "dequantize_dense"), gpu("ops")),
    "ScaleOfRow": (gpu("scaled_mm"),),
    "AzpWraps": (gpu("scaled_mm"),),
    "AzpOfRow": (gpu("scaled_mm"),),
    "RoundsHalfAway": (gpu("w8a8", "ties"),),
    "Float8ByInverse": (gpu("fp8_wgmma", "quantizer"),),
    "ScaleOfLine": (gpu("fp8_wgmma", "blocks"),),
    "ScalesOfFirstBlock": (gpu("float8_in_torch", "blocks"),),
    "ScaleOfHalf": (gpu("fp8_wgmma", "blocks"),),
    "AzpSign": (gpu("w8a8", "ties"), gpu("w8a8")),
    "SkinnyTail": (gpu("scaled_mm", "epilogues and skinny"),),
    "SkinnyWarp": (gpu("scaled_mm", "epilogues and skinny"),),
    "BlockSum": (gpu("block_quant", EVERY),),
    "GivenSum": (gpu("block_quant", "given_sums"), gpu("conv", "int8")),
    "AwqZeroRow": (gpu("checkpoints", "awq_gemm_is_within"),),
    "AwqWarp": (gpu("checkpoints", "awq_gemm_is_within"),),
    "PaddingValue": (gpu("conv", "int8"),),
    "EdgeDilation": (gpu("conv", EVERY),),
    "TapGroups": (gpu("conv", EVERY),),
    "Truncates": (gpu("conv", "int8"),),
    "LastChoiceFirst": (gpu("moe", "choices"),),
    "WeightOfFirst": (gpu("moe", "positions"),),
}
