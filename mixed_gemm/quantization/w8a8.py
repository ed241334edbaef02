"""The W8A8 half of ``quantize_``: calibration, smoothing, and the layer that replaces a linear."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from ..nn.linear_w8a8 import LinearW8A8, check_activations
from ..ops.problem import MAX_INT8_K
from .dataflow import Observations, observe
from .smoothquant import Smoothing, smooth

Make = Callable[[str, nn.Linear], LinearW8A8]


def w8a8_problem(name: str, linear: nn.Linear) -> str:
    """Why a linear cannot become W8A8; empty when it can."""
    if linear.in_features <= MAX_INT8_K:
        return ""
    return (
        f"{name}: in_features must be at most {MAX_INT8_K}, so that int32 sums cannot wrap, got "
        f"{linear.in_features}"
    )


def _input_range(
    name: str, seen: Observations | None, smoothing: Smoothing | None
) -> tuple[float, float]:
    observed = None if seen is None else seen.linears[name]
    if observed is None or observed.low is None or observed.high is None:
        raise ValueError(f"calibration never reached {name}. Hint: name it in skip")
    low, high = observed.low, observed.high
    if smoothing is not None:
        low, high = low / smoothing.factors, high / smoothing.factors
    return float(low.min()), float(high.max())


def prepare(
    model: nn.Module,
    linears: dict[str, nn.Linear],
    activations: str,
    calibration: Iterable[Any] | None,
    alpha: float | None,
    shared: set[int],
) -> tuple[Make, dict[str, str]]:
    """Calibrate and smooth.

    Args:
        linears: name -> module, of those to replace.
        activations: as in :class:`LinearW8A8`. calibration: batches, or None.
        alpha: of SmoothQuant; None: no smoothing.
        shared: ids of parameters that more than one module holds.

    Returns:
        The function that makes the replacement of a linear, and name -> what smoothing did.

    Raises:
        ValueError: see ``quantize_``. Nothing was changed then.
    """
    mode = check_activations("quantize_", activations)
    if calibration is None and (alpha is not None or not mode.per_token):
        wanted = "smooth" if alpha is not None else f"activations={activations!r}"
        raise ValueError(
            f"quantize_: {wanted} needs calibration, an iterable of batches. Hint: some hundred "
            "typical inputs"
        )
    if alpha is not None and not 0 <= alpha <= 1:
        raise ValueError(f"quantize_: smooth must be in 0..1, got {alpha}")
    seen = None if calibration is None else observe(model, linears, calibration)
    if not mode.per_token:
        for name in linears:
            _input_range(name, seen, None)  # all of them, before anything is folded
    smoothing: dict[str, Smoothing] = {}
    if seen is not None and alpha is not None:
        smoothing = smooth(linears, seen, alpha, shared)

    def make(name: str, linear: nn.Linear) -> LinearW8A8:
        found = smoothing.get(name)
        return LinearW8A8.from_float(
            linear,
            activations,
            input_range=None if mode.per_token else _input_range(name, seen, found),
            smoothing=None if found is None else found.factors,
            folded=found is not None and found.folded,
        )

    return make, {name: found.where for name, found in smoothing.items()}
