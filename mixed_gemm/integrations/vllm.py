"""vLLM plug-in: entry point ``vllm.general_plugins`` -> :func:`register`, run in each of vLLM's
processes. It offers one linear kernel for 4- and 8-bit weights with 16-bit activations, which
serves GPTQ, compressed-tensors and AWQ models alike (``vllm_kernel.py``).

Tested with vLLM 0.32 on the CPU, and with stub modules of its interface and of the one before it,
which knew act-order.

$MIXED_GEMM_VLLM says where the kernel stands among those of vLLM: ``last`` (the default, as vLLM
appends: it runs what the others refuse), ``first``, or ``off``. Any other value is the default,
with a warning: vLLM calls a plug-in unguarded, and what one raises keeps vLLM from starting.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import Any

PLACES = ("last", "first", "off")
VARIABLE = "MIXED_GEMM_VLLM"
_LINEAR = "vllm.model_executor.kernels.linear"

logger = logging.getLogger(__name__)


@functools.cache
def _warn_of_place(wanted: str) -> None:
    logger.warning(
        "mixed_gemm: %s must be one of %s, got %r; %s is used",
        *(VARIABLE, ", ".join(PLACES), wanted, PLACES[0]),
    )


def place() -> str:
    """What $MIXED_GEMM_VLLM asks for; the default, and one warning, for what it must not hold."""
    wanted = os.environ.get(VARIABLE, PLACES[0])
    if wanted in PLACES:
        return wanted
    _warn_of_place(wanted)
    return PLACES[0]


def register() -> None:
    """Offer the kernel to vLLM. May be called any number of times; does not touch CUDA.

    Raises nothing: a vLLM without the interface is left as it is, and a warning in the log says so.
    """
    try:
        _register(place())
    except Exception as error:  # whatever another vLLM may raise
        logger.warning(
            "mixed_gemm: its kernel is not offered to this vLLM: %s: %s",
            *(type(error).__name__, error),
        )


def _register(wanted: str) -> None:
    linear: Any = importlib.import_module(_LINEAR)
    platforms: Any = importlib.import_module("vllm.platforms")
    envs: Any = importlib.import_module("vllm.envs")
    kernel = importlib.import_module("mixed_gemm.integrations.vllm_kernel").MixedGemmLinearKernel
    offer, lists = linear.register_linear_kernel, linear._POSSIBLE_KERNELS
    enum = platforms.PlatformEnum
    # vLLM hashes its variables into the key of its compile cache: the choice belongs there.
    envs.environment_variables[VARIABLE] = place
    if wanted == "off":
        return
    for platform in (enum.CUDA, enum.CPU):
        if kernel not in lists.get(platform, []):
            offer(kernel, platform, "mp")
        if wanted == "first":
            lists[platform].remove(kernel)
            lists[platform].insert(0, kernel)
