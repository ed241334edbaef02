"""vLLM plug-in: entry point ``vllm.general_plugins`` -> :func:`register`, run in each of vLLM's
processes. It offers vLLM linear kernels (``offers.py`` lists them), a method for layers of experts
(``experts.py``) of each kind of files that it knows (``offers.CONFIGS``) and a reader of the GPTQ
files that vLLM refuses (``gptq.py``).

$MIXED_GEMM_VLLM says where the kernels stand among those of vLLM: ``auto`` (the default: first
where they are measured ahead of vLLM's on this kind of GPU, ``measured.py``; else last), ``last``
(they run what the others refuse), ``first``, or ``off``. Any other value is the default, with a
warning: vLLM calls a plug-in unguarded, and what one raises keeps vLLM from starting.
"""

from __future__ import annotations

import functools
import os

from .log import logger

PLACES = ("auto", "last", "first", "off")
VARIABLE = "MIXED_GEMM_VLLM"


@functools.cache
def _warn_of_place(wanted: str) -> None:
    logger.warning(
        "mixed_gemm: %s must be one of %s, got %r; %s is used",
        *(VARIABLE, ", ".join(PLACES), wanted, PLACES[0]),
    )


def place() -> str:
    """Return what $MIXED_GEMM_VLLM asks for; the default, and one warning, for what it must not
    hold."""
    wanted = os.environ.get(VARIABLE, PLACES[0])
    if wanted in PLACES:
        return wanted
    _warn_of_place(wanted)
    return PLACES[0]


def register() -> None:
    """Offer the kernels to vLLM. May be called any number of times; does not touch CUDA.

    Raises nothing: what a vLLM has not, or has otherwise, is not offered to it, and a warning in
    its log says so.
    """
    try:
        from .offers import offer_all

        offer_all(place())
    except Exception as error:  # whatever another vLLM may raise
        logger.warning(
            "mixed_gemm: its kernels are not offered to this vLLM: %s: %s",
            *(type(error).__name__, error),
        )
