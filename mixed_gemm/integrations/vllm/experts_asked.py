"""The experts of a layer as vLLM describes them, and whether we serve them. No vLLM is imported
here: its objects are read by the names of their fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ... import _library
from ...ops.problem import DTYPES
from ...selection.planning import why_not
from ...weights.scheme import Scheme
from .experts_layout import Layout, word
from .interface import unknown_fields

# vLLM's activations -> the name in ``gated_activation``, for rows of gate before those of up.
_ACTIVATIONS = {
    "silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_tanh",
    "swigluoai_uninterleave": "swiglu_oai",
}  # fmt: skip
# The one that vLLM has for rows of gate and up in turns, and its numbers where it tells none.
_IN_TURNS = "swigluoai"
_OAI = {"activation": "swiglu_oai", "limit": 7.0, "alpha": 1.702}


@dataclass(frozen=True)
class Asked:
    """The experts of one layer.

    Attributes:
        layout: how the file has them; a text says why that is nothing that we read.
        moe: vLLM's ``FusedMoEConfig``. Its sizes are those of one rank where tensors are cut.
        on_input: whether the router's weight multiplies the input of an expert.
        on_cpu: whether the layer runs on a CPU.
    """

    layout: Layout | str
    moe: Any
    on_input: bool
    on_cpu: bool

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """(N, K) of each expert's weight, by vLLM's names: gate and up in one, and down."""
        hidden, inner = self.moe.hidden_dim, self.moe.intermediate_size_per_partition
        return {"w13": (2 * inner, hidden), "w2": (hidden, inner)}


def activation_of(moe: Any, in_turns: bool = False) -> dict[str, Any] | str:
    """Return ``activation``, ``limit`` and ``alpha`` as ``fused_moe`` takes them; a text says why
    there are none.

    Args:
        moe: vLLM's ``FusedMoEConfig``. in_turns: whether rows of gate and up alternate in the file.
    """
    name = word(moe.activation)
    known = (_IN_TURNS,) if in_turns else tuple(_ACTIVATIONS)
    if name not in known:
        return f"the activation must be one of {', '.join(known)}, got {name}"
    limit, alpha, beta = moe.swiglu_limit, moe.swiglu_alpha, moe.swiglu_beta
    if in_turns:
        if beta not in (None, 1):
            return f"{name} must add 1 to up, got {beta}"
        told = {"limit": limit, "alpha": alpha}
        return {**_OAI, **{k: x for k, x in told.items() if x is not None}}
    if name == "swigluoai_uninterleave":
        if limit is None or beta != 1:
            return f"{name} must have a limit and add 1 to up, got {limit} and {beta}"
        return {"activation": _ACTIVATIONS[name], "limit": limit, "alpha": alpha or 1.0}
    if alpha not in (None, 1) or beta not in (None, 0) or (limit is not None and name != "silu"):
        return f"{name} must be plain, got a limit of {limit}, alpha {alpha} and beta {beta}"
    return {"activation": _ACTIVATIONS[name], "limit": limit, "alpha": 1.0}


def why_not_experts(asked: Asked) -> str | None:
    """Tell why we cannot serve the experts of a layer; None when we can."""
    if not _library.available:
        return str(_library.error)
    if unknown := unknown_fields(asked.moe, "FusedMoEConfig"):
        return f"vLLM asks for {unknown}, which is not known here"
    layout = asked.layout
    if isinstance(layout, str):
        return layout
    activation = activation_of(asked.moe, layout.in_turns)
    if isinstance(activation, str):
        return activation
    return _why_not_run(asked, layout) or _why_not_sized(asked, layout)


def _why_not_run(asked: Asked, layout: Layout) -> str | None:
    """Tell what keeps a layer from running here, whatever its weights and sizes are."""
    moe = asked.moe
    parallel = moe.moe_parallel_config
    if moe.in_dtype not in DTYPES:
        return f"activations must be float16, bfloat16 or float32, got {moe.in_dtype}"
    if moe.in_dtype == torch.float32 and not asked.on_cpu:
        return "a GPU multiplies experts in float16 or bfloat16, got float32"
    if moe.moe_backend != "auto":
        return f"moe_backend={moe.moe_backend} asks for one of vLLM's own"
    if moe.has_bias and not layout.has_biases:
        return "experts must have no biases"
    if moe.is_lora_enabled:
        return "adapters (LoRA) on experts are not served"
    if parallel.enable_eplb:
        return "experts must stay on their ranks (enable_eplb)"
    if max(parallel.dp_size, parallel.pcp_size, parallel.sp_size) > 1:
        return "each rank must have all tokens (data, context and sequence parallelism)"
    if getattr(moe, "tp_shard_with_padding", False) or moe.intermediate_pad:
        return "weights must not be padded"
    if asked.on_input and moe.experts_per_token != 1:
        return (
            "the router's weight may multiply the input of one expert for each token, got "
            f"{moe.experts_per_token}"
        )
    return None


def _why_not_sized(asked: Asked, layout: Layout) -> str | None:
    scheme: Scheme = layout.scheme
    bits, size = scheme.weights.num_bits, scheme.group_size
    if layout.has_order and asked.moe.moe_parallel_config.tp_size > 1:
        return "act-order (desc_act=True) with experts that are cut over ranks is not supported"
    for name, (n, k) in asked.shapes.items():
        if k % (32 // bits):
            return f"{name} must have a multiple of {32 // bits} input features, got {k}"
        if size != -1 and k % size:
            return f"{k} input features of {name} on a rank are not divisible by group_size {size}"
        part = n // 2 if name == "w13" else n
        if layout.packs_channels and part % (32 // bits):
            return f"channels must fill words of 32 bits, got {part} in {name}"
        if scheme.weights.type == "int":
            options: dict[str, Any] = {"bits": bits, "group_size": size}
        else:
            options = dict(scheme.gemm_options)
        if refusal := why_not(1, n, k, dtype=asked.moe.in_dtype, device="cpu", **options):
            return "; ".join(refusal.reasons)
    return None
