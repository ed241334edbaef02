"""The questions of vLLM's linear layers to our kernels, with the answers, for the page of serving.

python -m benchmarks.serving.answers --out benchmarks/results/vllm_answers.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import engine
from .answers_experts import experts

Answer = dict[str, str]


def _weight_only() -> Iterator[Answer]:
    import torch
    from vllm.model_executor.kernels.linear import MPLinearLayerConfig
    from vllm.scalar_type import scalar_types

    from mixed_gemm.integrations.vllm.weight_only import MixedGemmLinearKernel

    plain = MPLinearLayerConfig(
        full_weight_shape=(4096, 4096), partition_weight_shape=(4096, 4096),
        weight_type=scalar_types.uint4b8, act_type=torch.bfloat16, group_size=128,
        zero_points=False,
    )  # fmt: skip
    four, eight = scalar_types.uint4, scalar_types.uint8
    asked: dict[str, dict[str, Any]] = {
        "4 bits, groups of 128": {},
        "4 bits, groups of 32": {"group_size": 32},
        "4 bits, a scale for each channel": {"group_size": -1},
        "4 bits, zero points": {"weight_type": four, "zero_points": True},
        "8 bits, groups of 128": {"weight_type": scalar_types.uint8b128},
        "8 bits, zero points": {"weight_type": eight, "zero_points": True},
        "activations in float16": {"act_type": torch.float16},
        "activations in float32": {"act_type": torch.float32},
        "70 output channels": {"partition_weight_shape": (4096, 70)},
        "3 bits": {"weight_type": scalar_types.uint3b4},
        "signed weights": {"weight_type": scalar_types.int4},
        "float4 weights": {"weight_type": scalar_types.float4_e2m1f},
        "groups of 8": {"group_size": 8},
        "a group over two ranks": {"partition_weight_shape": (2112, 4096)},
        "another dtype of results": {"out_type": torch.float32},
        "activations in 8 bits": {"act_type": torch.int8},
    }
    for what, changes in asked.items():
        yield _told("weights only", what, MixedGemmLinearKernel, replace(plain, **changes))


def _int8() -> Iterator[Answer]:
    from vllm.model_executor.kernels.linear import Int8ScaledMMLinearLayerConfig

    from mixed_gemm.integrations.vllm.int8 import MixedGemmInt8LinearKernel

    for static in (False, True):
        for symmetric in (True, False):
            config = Int8ScaledMMLinearLayerConfig(
                is_static_input_scheme=static, is_channelwise=True, input_symmetric=symmetric
            )
            what = f"{'static' if static else 'dynamic'}{'' if symmetric else ', zero points'}"
            yield _told("int8", what, MixedGemmInt8LinearKernel, config)


def _fp8() -> Iterator[Answer]:
    import torch
    from vllm.model_executor.kernels.linear import FP8ScaledMMLinearLayerConfig
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys

    from mixed_gemm.integrations.vllm.fp8 import MixedGemmFp8LinearKernel

    channel, tensor = keys.kFp8StaticChannelSym, keys.kFp8StaticTensorSym
    blocks = keys.create_fp8_quant_key(static=True, group_shape=keys.GroupShape(128, 128))
    for what, weight, activation in (
        ("a scale for each channel, dynamic", channel, keys.kFp8DynamicTokenSym),
        ("one scale, static", tensor, keys.kFp8StaticTensorSym),
        ("scales by blocks", blocks, keys.kFp8DynamicTokenSym),
    ):
        config = FP8ScaledMMLinearLayerConfig(
            weight_quant_key=weight, activation_quant_key=activation, weight_shape=(4096, 4096),
            input_dtype=torch.bfloat16, out_dtype=torch.bfloat16,
        )  # fmt: skip
        yield _told("float8", what, MixedGemmFp8LinearKernel, config)


def _gptq() -> Iterator[Answer]:
    from mixed_gemm.integrations.vllm.gptq import MixedGemmGPTQConfig, why_not_gptq

    plain = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    asked: dict[str, dict[str, Any]] = {
        "4 bits, sym=True": {},
        "4 bits, sym=False": {"sym": False},
        "4 bits, act-order": {"desc_act": True},
        "8 bits (on a CPU)": {"bits": 8},
        "3 bits, sym=False": {"bits": 3, "sym": False},
        "sym=False, rules for single layers": {"sym": False, "dynamic": {"+:x": {"bits": 8}}},
    }
    for what, changes in asked.items():
        config = {**plain, **changes}
        ours = MixedGemmGPTQConfig.override_quantization_method(config, None) is not None
        said = "yes" if ours else why_not_gptq(config) or "left to vLLM, which reads it"
        yield {"asks": "GPTQ file", "of": what, "answer": said}


def _told(asks: str, what: str, kernel: Any, config: Any) -> Answer:
    able, reason = kernel.can_implement(config)
    said = "yes" if able else str(reason).removeprefix("mixed_gemm: ")
    return {"asks": asks, "of": what, "answer": said}


def answers() -> list[Answer]:
    """Ask under ``MIXED_GEMM_VLLM=first``."""
    return [*_weight_only(), *_int8(), *_fp8(), *_gptq(), *experts()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    engine.prepare()
    given.out.write_text(json.dumps(answers(), indent=1) + "\n")


if __name__ == "__main__":
    main()
