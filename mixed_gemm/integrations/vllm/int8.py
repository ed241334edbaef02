"""Linear layers with int8 weights and activations (vLLM's "int8" kernels): W8A8 of
compressed-tensors, dynamic and static, with zero points and without. Imports vLLM: only ``offers``
imports it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.kernels.linear import Int8ScaledMMLinearKernel
from vllm.platforms import current_platform

from ... import _library
from ...ops.problem import MAX_INT8_K
from ...ops.scaled import azp_adjustment
from . import place
from .interface import unknown_fields
from .layers import replace
from .log import answer, answer_ahead


def why_not_int8(c: Any) -> str | None:
    """Tell why the kernel cannot serve a layer; None when it can.

    Args:
        c: vLLM's Int8ScaledMMLinearLayerConfig, which says nothing of shapes and dtypes. While vLLM
            makes a model, torch's default dtype is that of its activations.
    """
    if not _library.available:
        return str(_library.error)
    for name in ("is_static_input_scheme", "is_channelwise", "input_symmetric"):
        if not isinstance(getattr(c, name), bool):
            return f"{name} must be True or False, got {getattr(c, name)!r}"
    if unknown := unknown_fields(c, "Int8ScaledMMLinearLayerConfig"):
        return f"vLLM asks for {unknown}, which is not known here"
    dtype = torch.get_default_dtype()
    if current_platform.is_cpu() and place() != "first" and dtype != torch.float16:
        return f"on the CPU vLLM's own kernel runs {dtype} (MIXED_GEMM_VLLM=first to run ours)"
    return None


def _one_range(scale: Tensor, azp: Tensor) -> tuple[Tensor, Tensor]:
    """Return one scale and zero point, ``[1]`` each, for what several joined matrices have: of the
    range that holds all of theirs; where all are the same, that."""
    if bool((scale == scale[0]).all()) and bool((azp == azp[0]).all()):
        return scale[:1], azp[:1]
    limits = torch.iinfo(torch.int8)
    least, most = (scale * (limits.min - azp)).min(), (scale * (limits.max - azp)).max()
    joined = (most - least) / (limits.max - limits.min)
    zero = (limits.min - least / joined).round().to(torch.int32)
    return joined.reshape(1), zero.reshape(1)


class MixedGemmInt8LinearKernel(Int8ScaledMMLinearKernel):  # type: ignore[misc]
    """``scaled_mm_dynamic``, ``scaled_mm`` and ``scaled_mm_azp`` behind vLLM's W8A8 layers."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        if compute_capability is not None and compute_capability < 80:
            return False, f"mixed_gemm: needs compute capability 8.0, got {compute_capability}"
        return True, None

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        return answer(cls.__name__, why_not_int8, c)

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Make scales for each channel, and sums of the weight where activations have a zero point.

        Raises:
            ValueError: K is beyond what int32 sums hold, or a scale does not fit the weight.
        """
        w_name, scale_name, input_name, azp_name, sums_name = self.layer_param_names
        weight = getattr(layer, w_name).data  # int8 [N, K]
        n, k = weight.shape
        if k > MAX_INT8_K:
            raise ValueError(f"mixed_gemm: in_features must be at most {MAX_INT8_K}, got {k}")
        scale = getattr(layer, scale_name).data.float().reshape(-1)
        if not self.config.is_channelwise:
            # The weight has one scale for each of the matrices that vLLM has joined.
            widths = torch.tensor(layer.logical_widths, device=scale.device)
            scale = scale.repeat_interleave(widths) if scale.numel() == len(widths) else scale
        if scale.numel() == 1:
            scale = scale.expand(n)
        if scale.numel() != n:
            raise ValueError(
                f"mixed_gemm: {scale_name!r} must have {n} values, got {scale.numel()}"
            )
        static, symmetric = self.config.is_static_input_scheme, self.config.input_symmetric
        input_scale, azp, sums = None, None, None
        if static:
            input_scale = getattr(layer, input_name).data.float().reshape(-1)
            if symmetric:
                input_scale = input_scale.max().reshape(1)
            else:
                azp = getattr(layer, azp_name).data.to(torch.int32).reshape(-1)
                input_scale, azp = _one_range(input_scale, azp)
        if not symmetric:
            sums = azp_adjustment(weight, None if azp is None else int(azp))
        for name, values in (
            (w_name, weight.contiguous()),
            (scale_name, scale.contiguous()),
            (input_name, input_scale),
            (azp_name, azp),
            (sums_name, sums),
        ):
            replace(layer, name, values)

    def apply_weights(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        ops: Any = torch.ops.mixed_gemm
        w_name, scale_name, input_name, azp_name, sums_name = self.layer_param_names
        own = layer._parameters
        weight = own[w_name]
        assert weight is not None
        b = weight.t()
        out: Tensor
        static, azp = self.config.is_static_input_scheme, None
        if not static and x.device.type == "cpu":
            out = ops.scaled_mm_dynamic(x, b, own[scale_name], own[sums_name], bias)
            return out
        if static:
            scale = own[input_name]
            q = ops.quantize_per_tensor(x, scale, own[azp_name])
        else:
            q, scale, azp = ops.quantize_per_token(x, symmetric=self.config.input_symmetric)
        if self.config.input_symmetric:
            out = ops.scaled_mm(q, b, scale, own[scale_name], bias, out_dtype=x.dtype)
            return out
        out = ops.scaled_mm_azp(
            *(q, b, scale, own[scale_name], own[sums_name], azp, bias), out_dtype=x.dtype
        )
        return out


class MixedGemmInt8LinearKernelMeasuredAhead(MixedGemmInt8LinearKernel):
    """The class that stands before vLLM's kernels under ``auto``, and takes what is measured ahead
    of them."""

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        takes, reason = super().can_implement(c)
        return answer_ahead(cls.__name__, "int8", c) if takes else (takes, reason)
