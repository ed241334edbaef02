"""vLLM plug-in: entry point ``vllm.general_plugins`` -> :func:`register`, run in each of vLLM's
processes. It offers one linear kernel for 4- and 8-bit weights with 16-bit activations, which
serves GPTQ, compressed-tensors and AWQ models alike (``vllm_kernel.py``).

Tested against stub modules written after vLLM's interface (``register_linear_kernel`` of
vllm#37989, ``MPLinearKernel``), not against an installed vLLM.

$MIXED_GEMM_VLLM says where the kernel stands among those of vLLM: ``last`` (the default, as vLLM
appends: it runs what the others refuse), ``first``, or ``off``.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any

PLACES = ("last", "first", "off")
VARIABLE = "MIXED_GEMM_VLLM"
_LINEAR = "vllm.model_executor.kernels.linear"

logger = logging.getLogger(__name__)


def place() -> str:
    """What $MIXED_GEMM_VLLM asks for."""
    wanted = os.environ.get(VARIABLE, PLACES[0])
    if wanted not in PLACES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(PLACES)}, got {wanted!r}")
    return wanted


def register() -> None:
    """Offer the kernel to vLLM. May be called any number of times; does not touch CUDA.

    A vLLM without the interface is left as it is, and a warning in the log says so: a plug-in that
    raises would keep vLLM from starting.
    """
    wanted = place()
    try:
        linear: Any = importlib.import_module(_LINEAR)
        platforms: Any = importlib.import_module("vllm.platforms")
        envs: Any = importlib.import_module("vllm.envs")
        kernel = importlib.import_module("mixed_gemm.integrations.vllm_kernel")
        linear.register_linear_kernel, linear._POSSIBLE_KERNELS  # noqa: B018
    except (ImportError, AttributeError) as error:
        logger.warning("mixed_gemm: not registered, this vLLM has another interface: %s", error)
        return
    # vLLM hashes its variables into the key of its compile cache: the choice belongs there.
    envs.environment_variables[VARIABLE] = place
    if wanted == "off":
        return
    enum = platforms.PlatformEnum
    for platform in (enum.CUDA, enum.CPU):
        if kernel.MixedGemmLinearKernel not in linear._POSSIBLE_KERNELS.get(platform, []):
            linear.register_linear_kernel(kernel.MixedGemmLinearKernel, platform, "mp")
        if wanted == "first":
            kernels = linear._POSSIBLE_KERNELS[platform]
            kernels.remove(kernel.MixedGemmLinearKernel)
            kernels.insert(0, kernel.MixedGemmLinearKernel)
