"""How a :class:`mixed_gemm.GatedMLP` runs, and whether a call is one that it may run so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling, is_exporting
from torch.nn.modules.module import _has_any_global_hook

from ..ops.autograd import transforms_active
from ..weights.joining import row_step, why_apart
from .gates import Gate
from .joined import HOOKS
from .linear import Linear


@dataclass(frozen=True)
class GatedCall:
    """The parts of an MLP, and how it computes.

    Attributes:
        sources: names of its children that read its input: gate and up, or one layer with the rows
            of gate before those of up.
        down: the name of the child that returns its output.
        gate: what is computed between them.
        others: (name, child) of every other child, which are the activation and its like.
    """

    sources: tuple[str, ...]
    down: str
    gate: Gate
    others: tuple[tuple[str, nn.Module], ...] = ()

    def layers(self, modules: dict[str, Any]) -> list[Linear] | None:
        """The layers that read the input; None where one has become something else, or anybody
        hears of a call that would not be made.

        Args:
            modules: the children of the MLP, of now.
        """
        for name, other in self.others:
            if modules.get(name) is not other or other.training or is_heard(other):
                return None
        found = [modules.get(name) for name in self.sources]
        if self.down not in modules or any(type(x) is not Linear or is_heard(x) for x in found):
            return None
        return found  # type: ignore[return-value]


def is_heard(module: nn.Module) -> bool:
    """Whether somebody hears of the calls of ``module``, or has put a forward of its own there."""
    if any(getattr(module, hooks) for hooks in HOOKS):
        return True
    return "forward" in module.__dict__ or "_hf_hook" in module.__dict__


def is_ordinary(x: Any) -> bool:
    """Whether ``x`` is a tensor that ops are called with as they are: no proxy, no tensor of a
    transform, and none that autocast would cast.

    Args:
        x: what an MLP was called with.
    """
    if is_dynamo_compiling():
        if is_exporting() or not isinstance(x, Tensor):
            return False
    elif type(x) is not Tensor or transforms_active() or _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    return not torch.is_autocast_enabled("cpu" if x.is_cpu else x.device.type)


def side_by_side(layers: list[Linear], x: Tensor) -> Tensor | None:
    """The products of layers as one tensor, where they are one product; else None.

    Args:
        layers: all that are joined, in their order. x: ``[..., K]``.
    """
    pieces = [layer.piece_that_holds(layer.plain_weight) for layer in layers]
    there = [piece for piece in pieces if piece is not None]
    return there[0].product.whole(there, x) if there else None


def why_no_pair(gate: Linear, up: Linear) -> str:
    """Why gate and up have no product whose halves are theirs; empty where they have.

    Args:
        gate, up: layers that ``fuse_`` may join.
    """
    if gate is up:
        return "they are one layer"
    for name, layer in (("gate", gate), ("up", up)):
        if reason := layer.why_not_joined():
            return f"of {name}, {reason}"
    rows = [layer.weight.shape[0] for layer in (gate, up)]
    if rows[0] != rows[1]:
        return f"they have {rows[0]} and {rows[1]} output channels"
    if reason := why_apart(gate.weight, up.weight):
        return f"of up, {reason}"
    step = row_step(gate.weight)
    if rows[0] % step:
        return (
            f"their {rows[0]} output channels are no multiple of {step}, to which rows are padded"
        )
    return ""
