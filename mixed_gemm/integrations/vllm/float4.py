"""Linear layers with weights of 4-bit floats: MXFP4 and NVFP4 (vLLM's "mxfp4" and "nvfp4" kernels).
Activations stay in their dtype, also where vLLM describes them as rounded to 4 bits: the log says
so. The module imports vLLM: only ``offers`` imports it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel
from vllm.model_executor.kernels.linear.nvfp4.base import NvFp4LinearKernel
from vllm.model_executor.layers.quantization.utils import quant_utils

from ... import _library
from ...weights.scheme import Scheme
from .interface import unknown_fields
from .layers import float4_weight, powers_of_two, replace
from .log import answer, answer_ahead, say_once

_FACTOR = "mixed_gemm_factor"
_MXFP4 = Scheme.float4("e8m0", 32)
_NVFP4 = Scheme.float4("e4m3", 16)


def why_not_float4(c: Any) -> str | None:
    """Tell why the kernels cannot serve a layer; None when they can.

    Args:
        c: vLLM's MxFp4LinearLayerConfig or NvFp4LinearLayerConfig.
    """
    if not _library.available:
        return str(_library.error)
    if unknown := unknown_fields(c, type(c).__name__):
        return f"vLLM asks for {unknown}, which is not known here"
    key = getattr(c, "activation_quant_key", None)
    if key is not None:
        if key != getattr(quant_utils, "kMxfp4Dynamic", None):
            return f"activations must stay in their dtype or be MXFP4, got {key}"
        say_once(
            "mixed_gemm: vLLM describes activations as MXFP4; they stay in the dtype of the model, "
            "weights alone have 4 bits"
        )
    return None


def _store(layer: Any, scheme: Scheme, scales: Tensor, whole: Tensor | None) -> None:
    """Put our own parts in the place of vLLM's.

    Args:
        scales: ``[N, G]``, the numbers that they are. whole: the scale of the weight, which
            multiplies, or None.
    """
    pairs = layer.weight.data
    divisor = None
    if whole is not None:
        divisor = (1 / whole.float().reshape(-1)[:1]).expand(pairs.shape[0]).contiguous()
    weight = float4_weight(pairs, scales, divisor, scheme, layer.params_dtype)
    replace(layer, "weight", weight.b_packed)
    replace(layer, "weight_scale", weight.scales)
    replace(layer, _FACTOR, weight.factor)


def _multiply(layer: Any, x: Tensor, bias: Tensor | None, scheme: Scheme) -> Tensor:
    parts = (layer.weight, layer.weight_scale, getattr(layer, _FACTOR))
    out: Tensor = torch.ops.mixed_gemm.fpA_fpB_gemm(x, *parts, bias, **scheme.gemm_options)
    return out


class MixedGemmMxFp4LinearKernel(MxFp4LinearKernel):  # type: ignore[misc]
    """``fpA_fpB_gemm`` behind vLLM's MXFP4 layers."""

    scheme: ClassVar[Scheme] = _MXFP4

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        return answer(cls.__name__, why_not_float4, config)

    def process_weights_after_loading(self, layer: Any) -> None:
        _store(layer, self.scheme, powers_of_two(layer.weight_scale.data), None)

    def apply_weights(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return _multiply(layer, x, bias, self.scheme)


class MixedGemmNvFp4LinearKernel(NvFp4LinearKernel):  # type: ignore[misc]
    """``fpA_fpB_gemm`` behind vLLM's NVFP4 layers."""

    scheme: ClassVar[Scheme] = _NVFP4

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        return answer(cls.__name__, why_not_float4, config)

    def process_weights_after_loading(self, layer: Any) -> None:
        scales = layer.weight_scale.data.view(torch.float8_e4m3fn)
        _store(layer, self.scheme, scales, layer.weight_global_scale.data)

    def apply_weights(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return _multiply(layer, x, bias, self.scheme)


class MixedGemmMxFp4LinearKernelMeasuredAhead(MixedGemmMxFp4LinearKernel):
    """The class that stands before vLLM's kernels under ``auto``, and takes what is measured ahead
    of them."""

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        takes, reason = super().can_implement(config)
        return answer_ahead(cls.__name__, "float4", config) if takes else (takes, reason)


class MixedGemmNvFp4LinearKernelMeasuredAhead(MixedGemmNvFp4LinearKernel):
    """As of :class:`MixedGemmMxFp4LinearKernelMeasuredAhead`."""

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        takes, reason = super().can_implement(config)
        return answer_ahead(cls.__name__, "float4", config) if takes else (takes, reason)
