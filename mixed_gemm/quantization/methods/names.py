"""The methods by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ...ops.errors import ArgumentTypeError, wrong_value
from .autoround import AutoRound
from .awq import AWQ
from .base import BlockMethod, CompleteMethod, completed, goes_by_blocks, is_method
from .distilled import Distilled
from .gptq import GPTQ
from .hqq import HQQ
from .rounding import SearchedRounding
from .smoothquant import SEARCH, SmoothQuant

METHODS: dict[str, Callable[[], Any]] = {
    "rtn": SearchedRounding,
    "hqq": HQQ,
    "awq": AWQ,
    "gptq": GPTQ,
    "awq+gptq": lambda: AWQ(then=GPTQ()),
    "autoround": AutoRound,
    "gptq+distill": Distilled,
    "smoothquant": lambda: SmoothQuant(SEARCH),
    "smoothquant+gptq": lambda: SmoothQuant(SEARCH, then=GPTQ()),
}
WITHOUT_DATA = ("rtn", "hqq")
IN_MEMORY = (Distilled, SmoothQuant)  # these need the whole model at once
FEWER_BITS = (2, 3)  # widths of codes that are stored in 4 bits


def named(method: Any, bits: int | None = None) -> BlockMethod | CompleteMethod:
    """Return a method by name, or the one that is given.

    Args:
        method: a name of ``METHODS``, or an object. bits: 2 or 3, the codes that it may use of the
            4 bits that are stored; else ignored.

    Raises:
        ValueError: there is none of this name. TypeError: it is no method.
    """
    if isinstance(method, str):
        if method not in METHODS:
            wrong_value("quantize_", "method", f"be one of {', '.join(METHODS)}", repr(method))
        method = METHODS[method]()
    if not is_method(method):
        raise ArgumentTypeError(
            f"quantize_: method must be one of {', '.join(METHODS)} or an object of "
            f"mixed_gemm.quantization.methods, got {method!r}"
        )
    if bits in FEWER_BITS:
        method = _with_bits(method, bits)
    return method if goes_by_blocks(method) else completed(method)


def _with_bits(method: Any, bits: int) -> Any:
    """Return the method with other ``bits``, also in the methods that it holds (``AWQ.then``)."""
    settings = [x.name for x in fields(method)] if is_dataclass(method) else []
    changed: dict[str, Any] = {"bits": bits} if "bits" in settings else {}
    for name, value in ((x, getattr(method, x)) for x in settings):
        if is_method(value):
            changed[name] = _with_bits(value, bits)
    if not changed:
        raise ArgumentTypeError(f"quantize_: {method!r} takes no bits={bits}")
    return replace(method, **changed)


def fewer_bits(method: Any) -> int | None:
    """Return one of ``FEWER_BITS`` where a method, or one that it holds, looks for codes of so few;
    else None.

    Args:
        method: as :func:`named` returns it, or None.
    """
    settings = [getattr(method, x.name) for x in fields(method)] if is_dataclass(method) else []
    if getattr(method, "bits", None) in FEWER_BITS:
        return int(method.bits)
    return next((found for x in settings if is_method(x) and (found := fewer_bits(x))), None)
