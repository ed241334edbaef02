"""8-bit activations: the ranges of static ones, and SmoothQuant's factors, from calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from torch import nn

from ..._progress import Progress
from ...ops.errors import ArgumentValueError, wrong_value
from ...weights.fp8 import Fp8Weight
from ...weights.fp8_weight_only import Fp8WeightOnly
from ...weights.kinds import kind_of
from ...weights.tensor import QuantizedTensor
from ...weights.w8a8 import W8A8Weight
from ..dataflow import Observations, observe
from ..select import Target, weight_owners
from .base import BlockMethod, Defaults
from .sequential import Sequential
from .smoothed_model import smoothed
from .smoothing import FixedFactors, Smoothing, smooth
from .smoothing_search import ROWS, SearchedFactors

SEARCH: Literal["search"] = "search"


class SmoothQuant(Defaults):
    """8-bit weights and activations; outliers of the activations move into int8 weights first.

    Args:
        alpha: of SmoothQuant in 0..1; "search": for each layer the one by which its output changes
            least; None: no smoothing.
        then: rounds the weights that have the factors in them, ``GPTQ()`` say; None: to the
            nearest.
        progress: of ``then``, see ``quantize_``.

    Raises:
        ValueError: ``alpha`` is out of range.
    """

    reads_calibration = True

    def __init__(
        self,
        alpha: float | Literal["search"] | None = None,
        then: BlockMethod | None = None,
        progress: Progress = True,
    ) -> None:
        if isinstance(alpha, str):
            if alpha != SEARCH:
                wrong_value("quantize_", "smooth", f"be in 0..1 or '{SEARCH}'", repr(alpha))
        elif alpha is not None and not 0 <= alpha <= 1:
            raise ArgumentValueError(f"quantize_: smooth must be in 0..1, got {alpha}")
        self._alpha, self._then, self.progress = alpha, then, progress
        self._walk: Sequential | None = None
        self._inner: dict[str, tuple[str, Target]] = {}
        self._seen: Observations | None = None
        self._smoothing: dict[str, Smoothing] = {}

    def __repr__(self) -> str:
        then = "" if self._then is None else f", then={self._then!r}"
        return f"SmoothQuant({self._alpha!r}{then})"

    def prepare(
        self, model: nn.Module, targets: Mapping[str, Target], calibration: Iterable[Any] | None
    ) -> None:
        """Observe the activations, and fold factors into the layers before where that is possible.
        Arguments as in :class:`Method`.

        Raises:
            ValueError: there is no calibration, and smoothing, static activations or ``then`` need
                it; or it does not reach a layer that needs it; or a layer that would be smoothed is
                float8; or ``then`` is given for int8 by block. The model is as it was then.
        """
        if self._then is not None:
            self._refuse_others(targets)
            calibration = None if calibration is None else list(calibration)
        for name, target in targets.items():
            if self._alpha is not None and target.scheme.weights.type == "float":
                wrong_value(
                    "quantize_",
                    "smooth",
                    "be None for float8 layers",
                    f"{self._alpha} and {name} as {target.scheme}",
                    because="float8 has small steps for small numbers beside large ones",
                    hint="scheme='w8a8', or method='gptq'",
                )
        linears = {x: t.layer for x, t in targets.items() if isinstance(t.layer, nn.Linear)}
        static = [name for name in targets if _is_static(targets[name])]
        if calibration is None and (self._alpha is not None or static or self._then):
            wanted = "smooth" if self._alpha is not None else f"{self._then}"
            if static and self._alpha is None:
                wanted = f"activations={targets[static[0]].scheme.activations!r}"
            raise ArgumentValueError(
                f"quantize_: {wanted} needs calibration, an iterable of batches. Hint: some "
                "hundred typical inputs"
            )
        shared = {parameter for parameter, who in weight_owners(model).items() if len(who) > 1}
        looked_at = [] if self._only_then else list(linears)
        modules = {name: targets[name].module for name in dict.fromkeys([*looked_at, *static])}
        rows = ROWS if self._alpha == SEARCH else 0
        self._seen = None
        if calibration is not None and (modules or not self._only_then):
            self._seen = observe(model, modules, calibration, rows)
        for name in static:
            self._range(name)  # all of them, before anything is folded
        undo: list[Callable[[], None]] = []
        if self._seen is not None and self._alpha is not None:
            layers = self._seen.layers
            factors: Any = (
                SearchedFactors(targets, layers)
                if isinstance(self._alpha, str)
                else FixedFactors(linears, layers, self._alpha)
            )
            self._smoothing = smooth(linears, self._seen, factors, shared, undo)
            for observed in layers.values():
                observed.sample = None
        if self._then is not None:
            walk = Sequential(self._then, self.progress)
            mine = {name: targets[name] for name in linears}
            try:
                with smoothed(mine, self._smoothing) as self._inner:
                    walk.prepare(model, dict(self._inner.values()), calibration)
            except BaseException:
                for back in reversed(undo):
                    back()
                raise
            self._walk = walk

    @property
    def _only_then(self) -> bool:
        """Whether there is nothing to smooth: only static activations are looked at."""
        return self._then is not None and self._alpha is None

    def _refuse_others(self, targets: Mapping[str, Target]) -> None:
        for name, target in targets.items():
            scheme = target.scheme
            stored = any(kind.stores(scheme, 2) for kind in (W8A8Weight, Fp8Weight))
            if isinstance(target.layer, nn.Linear) and not (stored or scheme.is_weight_only):
                raise ArgumentValueError(
                    f"quantize_: {self._then} is for weights of 'w8a8' and 'fp8' where activations "
                    f"are rounded, got {name} as {scheme}. Hint: method='smoothquant'"
                )

    def _range(self, name: str) -> tuple[float, float]:
        """Return the least and the largest activation after smoothing."""
        observed = None if self._seen is None else self._seen.layers[name]
        if observed is None or observed.low is None or observed.high is None:
            raise ArgumentValueError(
                f"quantize_: calibration never reached {name}. Hint: name it in skip"
            )
        found = self._smoothing.get(name)
        return observed.range_after(None if found is None else found.factors)

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """Round the weight times its factors. Arguments and errors as in :class:`Method`."""
        statistics: dict[str, Any] = {}
        if _is_static(target):
            statistics["input_range"] = self._range(name)
            if self._seen is not None and (output := self._seen.layers[name].output) is not None:
                statistics["output_range"] = output
        if (found := self._smoothing.get(name)) is not None:
            statistics |= {"smoothing": found.factors, "folded": found.folded}
        weight = target.layer.weight
        if self._walk is not None and name in self._inner:
            rounded = self._walk.weight(*self._inner[name])
            if isinstance(rounded, (Fp8Weight, Fp8WeightOnly)):
                return rounded.with_activations(target.scheme, **statistics)
            if target.scheme.is_weight_only:
                return rounded
            inner = rounded.unpacked()
            return W8A8Weight.from_codes(
                inner.q, inner.scales[0], target.scheme, dtype=weight.dtype, **statistics
            )
        kind: Any = kind_of(name, target.scheme, tuple(weight.shape))
        made: QuantizedTensor = kind.from_float(weight, target.scheme, **statistics)
        return made

    @property
    def calibrated(self) -> dict[str, str]:
        """The calibrated blocks of the method that rounds the weights; empty where it goes by no
        blocks."""
        return {} if self._walk is None else self._walk.calibrated

    def output_error(self, name: str) -> float | None:
        """Return the relative error of the output of ``name``; None where nobody knows it."""
        inner = self._inner.get(name)
        return None if self._walk is None or inner is None else self._walk.output_error(inner[0])

    def note(self, name: str) -> str:
        """Tell where the factors of the layer ``name`` went; empty where it has none."""
        found = self._smoothing.get(name)
        return "" if found is None else found.where


def _is_static(target: Target) -> bool:
    side = target.scheme.input_activations
    return side is not None and not side.dynamic
