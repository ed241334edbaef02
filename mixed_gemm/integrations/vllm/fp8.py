"""Linear layers with float8 weights and activations (vLLM's "fp8" kernels), with a scale for each
output channel or for all, and activations with a scale for each token or for all. Imports vLLM:
only ``offers`` imports it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.kernels.linear import FP8ScaledMMLinearKernel
from vllm.platforms import current_platform

from ... import _library
from ...ops.problem import DTYPES
from ...ops.rounding import quantize_fp8
from ...ops.scaled import scaled_mm
from ...weights.rounding_fp8 import quantize_with
from .interface import unknown_fields
from .log import answer, answer_ahead


def why_not_fp8(c: Any) -> str | None:
    """Tell why the kernel cannot serve a layer; None when it can.

    Args:
        c: vLLM's FP8ScaledMMLinearLayerConfig.
    """
    if not _library.available:
        return str(_library.error)
    if unknown := unknown_fields(c, "FP8ScaledMMLinearLayerConfig"):
        return f"vLLM asks for {unknown}, which is not known here"
    for name, key in (("weights", c.weight_quant_key), ("activations", c.activation_quant_key)):
        if key.dtype != torch.float8_e4m3fn:
            return f"{name} must be float8_e4m3fn, got {key.dtype}"
        if not key.symmetric:
            return f"{name} must have no zero points"
    weights, activations = c.weight_quant_key.scale, c.activation_quant_key.scale
    if not (weights.group_shape.is_per_tensor() or weights.group_shape.is_per_channel()):
        return f"scales of weights must be for all or for a channel, got {weights.group_shape}"
    if not (activations.group_shape.is_per_tensor() or activations.group_shape.is_per_token()):
        return (
            f"scales of activations must be for all or for a token, got {activations.group_shape}"
        )
    if c.out_dtype not in DTYPES:
        return f"results must be float16, bfloat16 or float32, got {c.out_dtype}"
    return None


class MixedGemmFp8LinearKernel(FP8ScaledMMLinearKernel):  # type: ignore[misc]
    """``scaled_mm`` behind vLLM's FP8 layers."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        if compute_capability is not None and compute_capability < 89:
            return False, f"mixed_gemm: needs compute capability 8.9, got {compute_capability}"
        return True, None

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        return answer(cls.__name__, why_not_fp8, c)

    def input_quant_key(self) -> Any:
        """Whether activations may come rounded already, by a kernel of vLLM that does more than
        that: one scale for all, which is known before them. A vLLM that does not ask loses
        nothing."""
        key = self.config.activation_quant_key
        fits = key.scale.static and key.scale.group_shape.is_per_tensor()
        return key if fits and not current_platform.is_cpu() else None

    def apply_weights(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """vLLM rounds activations itself on GPUs; vLLM 0.32 has no op for it on the CPU."""
        if not current_platform.is_cpu():
            out: Tensor = super().apply_weights(layer, x, bias)
            return out
        weight, weight_scale, scale, _ = self._get_layer_params(layer)
        if self.config.activation_quant_key.scale.static:
            q, scale = quantize_with(x, scale), scale.reshape(())
        elif self.config.activation_quant_key.scale.group_shape.is_per_tensor():
            q, scale = quantize_fp8(x.reshape(1, -1))
            q, scale = q.view(x.shape), scale.reshape(())
        else:
            q, scale = quantize_fp8(x)
        return scaled_mm(q, weight, scale, weight_scale.reshape(-1), bias, out_dtype=x.dtype)

    def apply_scaled_mm(
        self,
        *,
        A: Tensor,
        B: Tensor,
        out_dtype: torch.dtype,
        As: Tensor,
        Bs: Tensor,
        bias: Tensor | None,
        output_shape: list[int],
    ) -> Tensor:
        """Multiply: A float8 ``[M, K]``, B ``[K, N]`` column-major, As one scale or ``[M, 1]``, Bs
        one scale or ``[N, 1]``, both float32."""
        scales = (As.reshape(-1), Bs.reshape(-1))
        out: Tensor = torch.ops.mixed_gemm.scaled_mm(A, B, *scales, bias, out_dtype=out_dtype)
        return out.view(output_shape)


class MixedGemmFp8LinearKernelMeasuredAhead(MixedGemmFp8LinearKernel):
    """The class that stands before vLLM's kernels under ``auto``, and takes what is measured ahead
    of them."""

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        takes, reason = super().can_implement(c)
        return answer_ahead(cls.__name__, "fp8", c) if takes else (takes, reason)
