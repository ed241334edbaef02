"""The lines of the plug-in in vLLM's own log, and the answers that never raise."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from .measured import scheme_of, why_not_ahead

# vLLM shows what is logged below its own name, from INFO on.
logger = logging.getLogger("vllm.mixed_gemm")


@functools.cache
def say_once(text: str) -> None:
    logger.info("%s", text)


def answer(kernel: str, judge: Callable[[Any], str | None], asked: Any) -> tuple[bool, str | None]:
    """Return what ``can_implement`` returns: vLLM asks it of every kernel in turn, unguarded.

    Args:
        kernel: who answers.
        judge: why it cannot serve what is asked, or None when it can.
        asked: vLLM's description of a layer.
    """
    try:
        reason = judge(asked)
    except Exception as error:  # raised for a description of a vLLM that we do not know
        reason = f"the layer could not be judged: {type(error).__name__}: {error}"
    if reason is None:
        return True, None
    say_once(f"{kernel} does not take a layer: {reason}")
    return False, f"mixed_gemm: {reason}"


def answer_ahead(kernel: str, module: str, asked: Any) -> tuple[bool, str | None]:
    """Answer ``can_implement`` for a class that stands before vLLM's: yes where its scheme is
    measured ahead on this GPU. Says once for each scheme where it runs, and why.

    Args:
        module: whose kernel it is, as ``offers.KERNELS`` has it. The rest as in :func:`answer`.
    """
    try:
        from vllm.platforms import current_platform

        gpu = str(current_platform.get_device_name())
        reason = why_not_ahead(module, asked, gpu)
        scheme = scheme_of(module, asked)
    except Exception as error:  # a description of a vLLM that we do not know
        return False, f"mixed_gemm: not judged: {type(error).__name__}: {error}"
    if reason is None:
        say_once(f"{scheme} runs on {kernel}: measured ahead of vLLM's own kernels on {gpu}")
        return True, None
    say_once(reason)
    return False, f"mixed_gemm: {reason}"
