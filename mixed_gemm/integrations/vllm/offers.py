"""The offers to vLLM: a row for each kernel, registered each for itself, so that what a release of
vLLM has otherwise costs that row alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .interface import lacking_of
from .log import logger

LINEAR = "vllm.model_executor.kernels.linear"
QUANTIZATION = "vllm.model_executor.layers.quantization"


@dataclass(frozen=True)
class Kernel:
    """module: of this package. kind: vLLM's word for the list. listed: the list, in LINEAR."""

    module: str
    name: str
    kind: str
    listed: str

    @property
    def ahead(self) -> str:
        """The class in the same module that stands first under ``auto`` and takes only what is
        measured ahead."""
        return f"{self.name}MeasuredAhead"

    def load(self, name: str | None = None) -> Any:
        module = importlib.import_module(f"{__package__}.{self.module}")
        return getattr(module, name or self.name)


KERNELS = (
    Kernel("weight_only", "MixedGemmLinearKernel", "mp", "_POSSIBLE_KERNELS"),
    Kernel("int8", "MixedGemmInt8LinearKernel", "int8", "_POSSIBLE_INT8_KERNELS"),
    Kernel("fp8", "MixedGemmFp8LinearKernel", "fp8", "_POSSIBLE_FP8_KERNELS"),
    Kernel("float4", "MixedGemmMxFp4LinearKernel", "mxfp4", "_POSSIBLE_MXFP4_KERNELS"),
    Kernel("float4", "MixedGemmNvFp4LinearKernel", "nvfp4", "_POSSIBLE_NVFP4_KERNELS"),
)
# (kind, platform) that stand first wherever the user wants ours: vLLM 0.32 has one kernel for int8
# on the CPU, says yes to every layer, and ends the process in float16. Under "last" ours says no to
# every other dtype, so that no more is taken than that (``int8.py``).
ALWAYS_FIRST = {("int8", "CPU")}
PLATFORMS = ("CUDA", "CPU")
# Part of ``interface.RELIES_ON`` -> (module, configuration of a kind of file).
CONFIGS = {
    "gptq": ("gptq", "MixedGemmGPTQConfig"),
    "experts": ("compressed_tensors", "MixedGemmCompressedTensorsConfig"),
    "gptq_experts": ("auto_gptq", "MixedGemmAutoGPTQConfig"),
    "awq_experts": ("auto_awq", "MixedGemmAutoAWQConfig"),
    "gpt_oss": ("gpt_oss", "MixedGemmGptOssConfig"),
}
WEIGHT_ONLY_NVFP4 = "weight_only_nvfp4"  # part and module have one name


def offer_all(wanted: str) -> None:
    """Register a row. Raises what a vLLM without any of the interface raises."""
    linear: Any = importlib.import_module(LINEAR)
    platforms: Any = importlib.import_module("vllm.platforms")
    envs: Any = importlib.import_module("vllm.envs")
    # vLLM hashes its variables into the key of its compile cache: the choice belongs there.
    from . import VARIABLE, place

    envs.environment_variables[VARIABLE] = place
    if wanted == "off":
        return
    for row in KERNELS:
        _guarded(row.module, partial(_offer, row, linear, platforms.PlatformEnum, wanted))
    for what, (module, name) in CONFIGS.items():
        _guarded(what, partial(_offer_config, module, name))
    _guarded(WEIGHT_ONLY_NVFP4, _offer_weight_only_nvfp4)


def _guarded(what: str, offer: Callable[[], None]) -> None:
    try:
        if lacking := lacking_of(what):
            raise NotImplementedError("; ".join(lacking))
        offer()
    except Exception as error:  # whatever another vLLM may raise
        logger.warning(
            "mixed_gemm: %s is not offered to this vLLM: %s: %s",
            *(what, type(error).__name__, error),
        )


def _offer(row: Kernel, linear: Any, platforms: Any, wanted: str) -> None:
    kernel, ahead, lists = row.load(), row.load(row.ahead), getattr(linear, row.listed)

    def put_first(kernel: Any, platform: Any) -> None:
        lists[platform].remove(kernel)
        lists[platform].insert(0, kernel)

    for name in PLATFORMS:
        platform = getattr(platforms, name)
        wants_ahead = wanted == "auto" and name == "CUDA"
        for one in (kernel, ahead) if wants_ahead else (kernel,):
            if one not in lists.get(platform, []):
                linear.register_linear_kernel(one, platform, row.kind)
        if wants_ahead:
            put_first(ahead, platform)
        elif ahead in lists.get(platform, []):
            lists[platform].remove(ahead)
        if wanted == "first" or (row.kind, name) in ALWAYS_FIRST:
            put_first(kernel, platform)


def _offer_weight_only_nvfp4() -> None:
    importlib.import_module(f"{__package__}.{WEIGHT_ONLY_NVFP4}").offer()


def _offer_config(module: str, name: str) -> None:
    """Register a configuration of ours: one by a name of its own, which vLLM asks before its own
    ones, or one in the place of vLLM's by all names of that."""
    methods: Any = importlib.import_module(QUANTIZATION)
    found = importlib.import_module(f"{__package__}.{module}")
    config = getattr(found, name)
    taken = {x: methods._CUSTOMIZED_METHOD_TO_QUANT_CONFIG.get(x) for x in found.NAMES}
    for place_of, there in taken.items():
        if there not in (None, config):
            raise NotImplementedError(f"{there} has the place of {place_of} already")
    for place_of, there in taken.items():
        if there is None:
            methods.register_quantization_config(place_of)(config)
