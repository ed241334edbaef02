"""The change that rounding a tensor makes: the squared relative error of every output that is
computed from it, by linears that multiply by it and by an embedding whose rows are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..weights.kinds import kind_of
from ..weights.scheme import Scheme
from .methods.grid import Range
from .methods.search import search
from .select import Target
from .state import Runs, evaluating


@dataclass
class Candidate:
    """A tensor that may be stored in several schemes.

    target: whose weight it is. uses: name -> layer of all that compute with it: that one, and the
    output heads that are tied to it.
    """

    target: Target
    uses: dict[str, Target] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Elements of the weight."""
        return int(self.target.layer.weight.numel())

    def store(self, scheme: Scheme) -> None:
        """Give every layer that computes with it a scheme."""
        for target in self.uses.values():
            target.scheme = scheme


class Seen:
    """Sums over calibration: of squares of the outputs of a layer, and what each squared error of
    its weight costs them, which broadcasts over the weight.

    costs: of a linear the squares of its inputs by channel, ``[K]``; of an embedding how often each
    row was looked up, ``[V, 1]``.
    """

    def __init__(self, weight: Tensor, is_table: bool) -> None:
        shape = (weight.shape[0], 1) if is_table else (weight.shape[1],)
        self.costs = torch.zeros(shape, device=weight.device)
        self.outputs = 0.0

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        x = args[0].detach()
        if x.is_floating_point():
            self.costs += x.float().square().reshape(-1, len(self.costs)).sum(0)
        else:
            self.costs[:, 0] += torch.bincount(x.reshape(-1), minlength=len(self.costs))
        self.outputs += float(output.detach().float().square().sum())


@torch.no_grad()
def observe(
    model: nn.Module, candidates: Sequence[Candidate], batches: Sequence[Any] | None
) -> dict[str, Seen]:
    """Return name of a layer -> what it computes with.

    Args:
        model: that holds the layers. candidates: whose ``uses`` are the layers.
        batches: of calibration; None: as if inputs, or rows, were all alike.
    """
    layers = {name: x for candidate in candidates for name, x in candidate.uses.items()}
    seen = {}
    for name, target in layers.items():
        weight = target.layer.weight
        seen[name] = Seen(weight, isinstance(target.layer, nn.Embedding))
        if batches is None:
            seen[name].costs += 1
            seen[name].outputs = float(weight.float().square().sum())
    if batches is None:
        return seen
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        for name, target in layers.items():
            handle = target.module.register_forward_hook(seen[name])
            stack.callback(handle.remove)
        runs = stack.enter_context(Runs(model))
        for batch in batches:
            runs(batch)
    return seen


@torch.no_grad()
def error(candidate: Candidate, seen: Mapping[str, Seen], rounded: Tensor) -> float:
    """Return the sum of the squared relative errors of the outputs by a rounded weight.

    Args:
        candidate: the tensor. seen: from :func:`observe`. rounded: float32, written to.
    """
    changed = rounded.sub_(candidate.target.layer.weight.detach().float()).square_()
    return sum(
        float((changed * seen[name].costs).sum()) / max(seen[name].outputs, 1e-30)
        for name in candidate.uses
    )


@torch.no_grad()
def rounding(
    candidate: Candidate, seen: Mapping[str, Seen], scheme: Scheme
) -> Callable[[], Tensor]:
    """Return f() -> the weight in float32, a new tensor, as rows of an embedding are rounded; of a
    linear, whose method may be any, by the scales that cost its outputs least.

    Args:
        candidate: the tensor. seen: from :func:`observe`. scheme: of packed codes.
    """
    weight = candidate.target.layer.weight.detach()
    if isinstance(candidate.target.layer, nn.Embedding):
        kind: Any = kind_of("quantize_", scheme, tuple(weight.shape))
        return lambda: kind.from_float(weight, scheme).dequantize(torch.float32)
    (name,) = candidate.uses
    of = Range.of(scheme, weight.shape[1], weight.dtype)
    grid = search(weight.float(), of, seen[name].costs)
    return lambda: grid.values(grid.codes(weight.float()))
