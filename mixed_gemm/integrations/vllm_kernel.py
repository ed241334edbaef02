"""The linear kernel that vLLM's processes use. Imports vLLM, so only ``vllm.register`` imports it.
A class at the top of a module, so that it pickles.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.kernels.linear import MPLinearKernel  # type: ignore[import-not-found]
from vllm.model_executor.parameter import (  # type: ignore[import-not-found]
    permute_param_layout_,
)

from .. import _library
from ..checkpoint_ops import gptq_repack
from ..plan import why_not

ACTIVATIONS = (torch.float16, torch.bfloat16)


def _why_not(c: Any) -> str | None:
    """Why the kernel cannot serve a layer; None when it can."""
    if not _library.available:
        return str(_library.error)
    k, n = c.partition_weight_shape
    kind = c.weight_type
    bias = 0 if c.zero_points else 1 << (kind.size_bits - 1)
    if c.act_type not in ACTIVATIONS or c.out_type not in (None, c.act_type):
        return f"activations must be float16 or bfloat16, in and out, got {c.act_type}"
    if not kind.is_integer() or kind.is_signed() or kind.bias != bias:
        return f"weights must be unsigned codes with {'no' if bias == 0 else bias} bias, got {kind}"
    if c.has_g_idx and k != c.full_weight_shape[0]:
        return "act-order with input features split across devices is not supported"
    if c.group_size != -1 and k % c.group_size != 0:
        return f"in_features per partition {k} is not divisible by group_size {c.group_size}"
    refusal = why_not(
        1, n, k, dtype=c.act_type, bits=kind.size_bits, group_size=_group_size(c), device="cpu"
    )
    return None if refusal is None else "; ".join(refusal.reasons)


def _group_size(c: Any) -> int:
    return -1 if c.group_size >= c.partition_weight_shape[0] else int(c.group_size)


def _unpack_rows(words: Tensor, bits: int) -> Tensor:
    """int32 ``[G, N * bits / 32]`` -> codes ``[G, N]``, lowest bits first."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    codes = (words.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return codes.flatten(1)


def _values(parameter: Any) -> Tensor:
    """In whatever layout permute_param_layout_ left it."""
    values: Tensor = parameter.data
    return values


class MixedGemmLinearKernel(MPLinearKernel):  # type: ignore[misc]
    """``fpA_intB_gemm`` behind vLLM's mixed-precision linear layers."""

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        reason = _why_not(c)
        return reason is None, None if reason is None else f"mixed_gemm: {reason}"

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        c = self.config
        bits, perm = c.weight_type.size_bits, None
        if c.has_g_idx:
            g_idx = getattr(layer, self.w_gidx_name)
            perm = torch.argsort(g_idx, stable=True).to(torch.int32)
            self._transform_param(layer, self.w_gidx_name, lambda _: perm)

        def repack(x: Any) -> Tensor:
            permute_param_layout_(x, input_dim=0, output_dim=1, packed_dim=0)
            return gptq_repack(_values(x).contiguous(), perm, bits=bits)

        def scales(x: Any) -> Tensor:
            permute_param_layout_(x, input_dim=0, output_dim=1)
            return _values(x).to(c.act_type).contiguous()

        def zeros(x: Any) -> Tensor:
            permute_param_layout_(x, input_dim=0, output_dim=1, packed_dim=1)
            codes = _unpack_rows(_values(x).contiguous(), bits)
            signed: Tensor = (codes - (1 << (bits - 1))).to(c.act_type)
            return signed

        self._transform_param(layer, self.w_q_name, repack)
        self._transform_param(layer, self.w_s_name, scales)
        if c.zero_points:
            self._transform_param(layer, self.w_zp_name, zeros)

    def apply_weights(
        self, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        c = self.config
        packed, scales, zeros, perm = self._get_weight_params(layer)
        if c.has_g_idx:
            x = x.index_select(-1, perm)
        out: Tensor = torch.ops.mixed_gemm.fpA_intB_gemm(
            x,
            packed,
            scales,
            zeros if c.zero_points else None,
            bias,
            None,
            bits=c.weight_type.size_bits,
            group_size=_group_size(c),
            zero_mode="sub",
        )
        return out
