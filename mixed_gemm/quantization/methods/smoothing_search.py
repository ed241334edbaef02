"""SmoothQuant's alpha where nobody gives one: the one by which the outputs of the linears that
share an input change least, on rows that calibration kept. None of the alphas of a model fits all
of its layers: the best of SmolLM2's are between none and 0.95.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...weights.kinds import kind_of
from ..dataflow import Observed
from ..select import Target
from .smoothing import largest_input, smoothing_factors

ALPHAS = tuple(step / 20 for step in range(4, 20))  # alphas beside no smoothing at all
ROWS = 512  # rows of the input of each layer that are kept, at most


class SearchedFactors:
    """Factors for linears that share an input.

    Args:
        targets: name -> layer. seen: name -> what it read, with a sample of rows.
    """

    def __init__(self, targets: Mapping[str, Target], seen: Mapping[str, Observed]) -> None:
        self._targets, self._seen = targets, seen

    def __call__(self, names: Sequence[str]) -> Tensor | None:
        """``[K]``, or None where the linears ``names`` are better off without."""
        weights = torch.cat([self._targets[x].layer.weight.detach() for x in names])
        largest = torch.stack([largest_input(self._seen[x]) for x in names]).amax(0)
        tried: list[Tensor | None] = [None]
        tried += [smoothing_factors(largest, weights, alpha) for alpha in ALPHAS]
        changes = [sum(self._change(x, factors) for x in names) for factors in tried]
        return tried[min(range(len(tried)), key=changes.__getitem__)]

    def _change(self, name: str, factors: Tensor | None) -> float:
        """Return the sum of squares of the change of the output by rounding."""
        target, observed = self._targets[name], self._seen[name]
        assert observed.sample is not None
        weight, x = target.layer.weight.detach(), observed.sample.rows()
        wanted = linear(x, weight.to(x.dtype)).float()
        scheme = target.scheme
        statistics: dict[str, Any] = {}
        if scheme.input_activations is not None and not scheme.input_activations.dynamic:
            statistics["input_range"] = observed.range_after(factors)
        if factors is not None:
            statistics |= {"smoothing": factors, "folded": True}
            x = (x.float() / factors).to(x.dtype)
        kind: Any = kind_of(name, scheme, tuple(weight.shape))
        made = kind.from_float(weight, scheme, dtype=x.dtype, **statistics)
        return float((linear(x, made).float() - wanted).square().sum())
