"""Linear layers of NVFP4 whose activations stay in their dtype. vLLM asks no kernel for them: it
takes its Marlin, and refuses them where that does not run, as on a CPU. Ours are put before or
behind it by the function that vLLM makes the kernel with. Imports vLLM: only ``offers`` imports it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from vllm import envs
from vllm.config.vllm import get_current_vllm_config_or_none
from vllm.model_executor.kernels import linear

from . import place
from .float4 import MixedGemmNvFp4LinearKernel, MixedGemmNvFp4LinearKernelMeasuredAhead
from .log import say_once

MAKE = "init_nvfp4_linear_kernel"
_QUANTIZATION = "vllm.model_executor.layers.quantization"
# The modules of vLLM that make kernels for such layers.
USERS = (
    f"{_QUANTIZATION}.compressed_tensors.schemes.compressed_tensors_w4a4_nvfp4",
    f"{_QUANTIZATION}.modelopt",
)
_NAME = MixedGemmNvFp4LinearKernel.__name__


def offer() -> None:
    """Have vLLM's modules ask here; may be called any number of times.

    Raises:
        AttributeError: a module of vLLM does not make kernels so.
    """
    for module in map(importlib.import_module, USERS):
        own = getattr(module, MAKE)
        if not getattr(own, "asks_mixed_gemm", False):
            setattr(module, MAKE, asking(own))


def asking(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return vLLM's function that makes a kernel, with ours before or behind what it makes."""

    @functools.wraps(own)
    def make(use_a16: bool = False) -> Any:
        if not use_a16 or not _may_serve():
            return own(use_a16=use_a16)
        config = linear.NvFp4LinearLayerConfig()
        if not MixedGemmNvFp4LinearKernel.can_implement(config)[0]:
            return own(use_a16=use_a16)
        if _is_first(config):
            say_once(f"mixed_gemm: {_NAME} runs NVFP4 with activations in their dtype")
            return MixedGemmNvFp4LinearKernel(config)
        try:
            return own(use_a16=use_a16)
        except ValueError as error:
            say_once(f"mixed_gemm: {_NAME} runs NVFP4, which vLLM refuses: {error}")
            return MixedGemmNvFp4LinearKernel(config)

    make.asks_mixed_gemm = True  # type: ignore[attr-defined]
    return make


def _may_serve() -> bool:
    """Tell whether the user asked for none of vLLM's own kernels, nor to leave ours out."""
    if place() == "off" or _NAME in envs.VLLM_DISABLED_KERNELS or envs.VLLM_BATCH_INVARIANT:
        return False
    found = get_current_vllm_config_or_none()
    if found is None:
        return True
    asked = found.kernel_config
    by_kind = getattr(asked, "linear_backend_per_quant", None) or {}
    return str(by_kind.get("nvfp4_w4a16") or asked.linear_backend) == "auto"


def _is_first(config: Any) -> bool:
    if place() == "auto":
        return MixedGemmNvFp4LinearKernelMeasuredAhead.can_implement(config)[0]
    return place() == "first"
