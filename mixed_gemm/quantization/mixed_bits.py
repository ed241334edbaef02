"""More bits for the layers that need them most, within an average: "4.5 bits" is 4 bits for most
layers and 8 for those whose outputs rounding to 4 bits changes most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ..ops.errors import ArgumentValueError, wrong_value
from ..weights.scheme import SCHEMES, Scheme
from .methods.grid import Range, search
from .select import Target
from .state import Runs, evaluating

BITS = (4, 8)


def widened(scheme: Scheme) -> Scheme:
    """Return the scheme of 8 bits that a layer of 4 gets: integers with the same groups and zero
    points; of codes that are no integers, which have no type of 8 bits with such scales, int8 with
    a scale for each output channel.

    Args:
        scheme: of packed codes.
    """
    return scheme.coded_as("int8") if scheme.is_weight_only else SCHEMES["w8a16"]


class _Seen:
    """Sums of squares of the inputs of a layer by channel ``[K]``, and of its outputs."""

    def __init__(self, k: int, device: torch.device) -> None:
        self.inputs = torch.zeros(k, device=device)
        self.outputs = 0.0

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.inputs += args[0].detach().float().square().reshape(-1, len(self.inputs)).sum(0)
        self.outputs += float(output.detach().float().square().sum())


@torch.no_grad()
def _observe(
    model: nn.Module, targets: Mapping[str, Target], batches: Sequence[Any] | None
) -> dict[str, _Seen]:
    seen = {}
    for name, target in targets.items():
        weight = target.layer.weight
        seen[name] = _Seen(weight.shape[1], weight.device)
        if batches is None:  # as if inputs were all alike
            seen[name].inputs += 1
            seen[name].outputs = float(weight.float().square().sum())
    if batches is None:
        return seen
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        for name, target in targets.items():
            handle = target.module.register_forward_hook(seen[name])
            stack.callback(handle.remove)
        runs = stack.enter_context(Runs(model))
        for batch in batches:
            runs(batch)
    return seen


def _error(target: Target, seen: _Seen, scheme: Scheme) -> float:
    """Return the squared relative error of the output by rounding to the nearest in a scheme."""
    weight = target.layer.weight.detach().float()
    grid = search(weight, Range.of(scheme, weight.shape[1], target.layer.weight.dtype), seen.inputs)
    error = grid.values(grid.codes(weight)) - weight
    return float((error.square() * seen.inputs).sum()) / max(seen.outputs, 1e-30)


def mixed_bits(
    model: nn.Module,
    targets: Mapping[str, Target],
    average: float,
    batches: Sequence[Any] | None,
) -> None:
    """Give 8 bits to the linears of 4 that gain most for what it costs, as far as the average over
    all weights allows; changes their schemes.

    Args:
        model: that holds the layers. targets: name -> layer, weight-only in 4 bits.
        average: bits of a weight, 4..8, without scales and zero points.
        batches: of calibration; None: inputs count alike.

    Raises:
        ValueError: ``average`` is out of range, or a layer has another scheme.
    """
    if not BITS[0] <= average <= BITS[1]:
        wrong_value("quantize_", "average_bits", f"be in {BITS[0]}..{BITS[1]}", f"{average}")
    linears = {name: t for name, t in targets.items() if isinstance(t.layer, nn.Linear)}
    for name, target in linears.items():
        if not target.scheme.is_packed or target.scheme.bits != BITS[0]:
            raise ArgumentValueError(
                f"quantize_: average_bits needs layers of {BITS[0]} bits, got {name} as "
                f"{target.scheme}"
            )
    seen = _observe(model, linears, batches)
    sizes = {name: target.layer.weight.numel() for name, target in linears.items()}
    gain = {
        name: (_error(t, seen[name], t.scheme) - _error(t, seen[name], widened(t.scheme)))
        / sizes[name]
        for name, t in linears.items()
    }
    left = (average - BITS[0]) * sum(sizes.values())
    for name in sorted(gain, key=lambda x: gain[x], reverse=True):
        cost = (BITS[1] - BITS[0]) * sizes[name]
        if cost <= left:
            left -= cost
            linears[name].scheme = widened(linears[name].scheme)
