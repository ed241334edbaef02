"""The methods by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...ops.errors import ArgumentTypeError, wrong_value
from .autoround import AutoRound
from .awq import AWQ
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
IN_MEMORY = (Distilled, SmoothQuant)  # need the whole model at once
FEWER_BITS = (2, 3)  # that are stored in 4


def named(method: Any, bits: int | None = None) -> Any:
    """A method by name, or the one that is given.

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
    if not (hasattr(method, "quantize") or hasattr(method, "weight")):
        raise ArgumentTypeError(
            f"quantize_: method must be one of {', '.join(METHODS)} or an object of "
            f"mixed_gemm.quantization.methods, got {method!r}"
        )
    return method if bits not in FEWER_BITS else _with_bits(method, bits)


def _with_bits(method: Any, bits: int) -> Any:
    changed: dict[str, Any] = {"bits": bits} if hasattr(method, "bits") else {}
    for part in ("then", "method"):  # of methods that go on from another
        if getattr(method, part, None) is not None:
            changed[part] = _with_bits(getattr(method, part), bits)
    if not changed:
        raise ArgumentTypeError(f"quantize_: {method!r} takes no bits={bits}")
    return replace(method, **changed)
