"""The questions of vLLM's layers of experts, with the answers, for the page of serving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Answer = dict[str, str]


def experts() -> Iterator[Answer]:
    """128 experts of 2048 x 768, of which each token has 8."""
    import torch
    from compressed_tensors.quantization import QuantizationArgs
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation

    from mixed_gemm.integrations.vllm.experts_stored import compressed_tensors

    four = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
    floats = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
    tokens = QuantizationArgs(num_bits=8, type="int", strategy="token", dynamic=True)
    rows: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
        "4 bits, groups of 128": ({}, {}, {}),
        "4 bits, groups of 32": ({"group_size": 32}, {}, {}),
        "4 bits, a scale for each channel": ({"strategy": "channel", "group_size": None}, {}, {}),
        "4 bits, zero points": ({"symmetric": False}, {}, {}),
        "8 bits, groups of 128": ({"num_bits": 8}, {}, {}),
        "MXFP4": (floats, {}, {}),
        "NVFP4": ({**floats, "strategy": "tensor_group", "group_size": 16}, {}, {}),
        "activations in float32, on a CPU": ({}, {"in_dtype": torch.float32}, {}),
        "activations in float32, on a GPU": ({}, {"in_dtype": torch.float32}, {"on_cpu": False}),
        "3 bits": ({"num_bits": 3}, {}, {}),
        "activations in 8 bits": ({}, {}, {"input_activations": tokens}),
        "gpt-oss's activation in halves": (
            {},
            {
                "activation": MoEActivation.SWIGLUOAI_UNINTERLEAVE,
                **{"swiglu_limit": 7.0, "swiglu_alpha": 1.702, "swiglu_beta": 1.0},
            },
            {},
        ),
        "gate and up in turns": ({}, {"activation": MoEActivation.SWIGLUOAI}, {}),
        "biases": ({}, {"has_bias": True}, {}),
        "adapters (LoRA)": ({}, {"is_lora_enabled": True}, {}),
    }
    for what, (weights, moe, layer) in rows.items():
        args = QuantizationArgs(**{**four, **weights})
        activations = layer.pop("input_activations", None)
        layout = compressed_tensors(args, activations, "pack-quantized")
        yield _answer("experts", what, layout, moe, **layer)
    yield from _of_other_files()


def _of_other_files() -> Iterator[Answer]:
    """Experts of GPTQ and AWQ files, and of gpt-oss as OpenAI publishes it."""
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation

    from mixed_gemm.integrations.vllm.experts_gpt_oss import GptOssLayout
    from mixed_gemm.integrations.vllm.experts_integers import integers

    gptq = {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    awq = {"bits": 4, "group_size": 128, "zero_point": True}
    rows: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "GPTQ, 4 bits": ("gptq", gptq, {}),
        "GPTQ, 8 bits, sym=False": ("gptq", {**gptq, "bits": 8, "sym": False}, {}),
        "GPTQ, act-order": ("gptq", {**gptq, "desc_act": True}, {}),
        "GPTQ, act-order, cut over two ranks": ("gptq", {**gptq, "desc_act": True}, {"tp": 2}),
        "GPTQ, rules for single layers": ("gptq", {**gptq, "dynamic": {"+:x": {"bits": 8}}}, {}),
        "AWQ, 4 bits": ("awq", awq, {}),
        "AWQ in the layout of gemv": ("awq", {**awq, "version": "gemv"}, {}),
    }
    for what, (section, config, moe) in rows.items():
        yield _answer("experts of a file", what, integers(config, section), moe)
    turns = {"activation": MoEActivation.SWIGLUOAI, "has_bias": True}
    what = "gpt-oss in MXFP4: biases, gate and up in turns"
    yield _answer("experts of a file", what, GptOssLayout(), turns)


def _answer(asks: str, what: str, layout: Any, moe: dict[str, Any], on_cpu: bool = True) -> Answer:
    from mixed_gemm.integrations.vllm.experts_asked import Asked, why_not_experts

    asked = Asked(layout=layout, moe=moe_config(**moe), on_input=False, on_cpu=on_cpu)
    return {"asks": asks, "of": what, "answer": why_not_experts(asked) or "yes"}


def moe_config(tp: int = 1, **changes: Any) -> Any:
    """vLLM's description of a layer of experts.

    Args:
        tp: ranks that it is cut over.
    """
    import torch
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.config import (
        FusedMoEConfig,
        FusedMoEParallelConfig,
        RoutingMethodType,
    )

    names = ("tp", "pcp", "dp", "ep")
    parallel = FusedMoEParallelConfig(
        **{f"{x}_size": tp if x == "tp" else 1 for x in names}, **{f"{x}_rank": 0 for x in names},
        sp_size=1, use_ep=False, all2all_backend="allgather_reducescatter", enable_eplb=False,
    )  # fmt: skip
    plain = {
        "num_experts": 128, "num_local_experts": 128, "num_logical_experts": 128,
        "experts_per_token": 8, "hidden_dim": 2048, "intermediate_size": 768,
        "activation": MoEActivation.SILU, "device": "cpu", "in_dtype": torch.bfloat16,
        "routing_method": RoutingMethodType.Renormalize, "moe_parallel_config": parallel,
    }  # fmt: skip
    return FusedMoEConfig(**{**plain, **changes})
