"""The experts of one layer in stacked weights: when they can be, and how one product of all of them
follows the other then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..weights.stacked import StackedWeight
from .fused_moe import routed
from .gates import gate_of, settings_of
from .watch import Watch

if TYPE_CHECKING:
    from .experts import Experts


class StackedExperts:
    """The weights of all experts, stacked; those of the linears become views of it.

    Args:
        experts: of which :func:`why_apart` says nothing.
    """

    def __init__(self, experts: Experts) -> None:
        rows = [x.linears for x in experts.own.values()]
        firsts, seconds = [row[:-1] for row in rows], [row[-1:] for row in rows]
        # Tensors of inference mode would be of no use in training.
        with torch.inference_mode(False), torch.no_grad():
            self.first, views = _stacked(firsts)
            self.second, more = _stacked(seconds)
        self.dtype, self.device = self.first.scales.dtype, self.first.scales.device
        biases = [x.own_bias for row in rows for x in row]
        self.biases = [x for x in biases if x is not None]
        self.gate, self._settings = gate_of(experts), settings_of(experts)
        made = [x for row, last in zip(views, more, strict=True) for x in (*row, *last)]
        self.watch = Watch(experts, made)

    def multiplies(self, x: Tensor) -> bool:
        """Whether there are products of ``x``: in the dtype of the weights, which is one of 16 bits
        on a GPU, and outside of autocast. Biases that train get their gradients one by one.

        Args:
            x: ``[T, hidden size]``.
        """
        if x.dtype != self.dtype or x.device != self.device or not self.is_fast:
            return False
        if torch.is_autocast_enabled(x.device.type):
            return False
        if self.watch.away or self.watch.may_be_hooked:
            return False
        trains: bool = torch.is_grad_enabled() and any(x.requires_grad for x in self.biases)
        return not trains

    @property
    def is_fast(self) -> bool:
        """Whether activations in the dtype of the weights are multiplied by all experts together:
        not those of float32 on a GPU."""
        return self.device.type == "cpu" or self.dtype != torch.float32

    def forward(self, experts: Experts, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """The result of :meth:`Experts.forward` for the choices of tokens.

        Args:
            experts: of which this is. x: ``[T, hidden size]``. index, weights: ``[T, top_k]``.
        """
        weights = weights if weights.dtype == x.dtype else weights.float()
        if not index.is_cuda:  # where others than these two are refused
            index = index.clamp(-1, self.first.count)
        norm = getattr(experts, "post_expert_norm", None)
        after = None if norm is None else experts.finished
        return routed(x, self.first, self._between(experts), self.second, weights, index, after)

    def _between(self, experts: Experts) -> Any:
        if self.gate is not None and settings_of(experts) == self._settings:
            return self.gate
        return lambda rows: _gated(experts, rows)


def why_apart(experts: Experts) -> str:
    """Why the experts of a layer are multiplied one by one; empty where they can be stacked.

    Args:
        experts: of any weights.
    """
    if experts.form.is_sorted:
        return "rows come sorted by expert"
    own = experts.own
    for number, expert in own.items():
        if _is_called(expert):
            return f"{number} has hooks"
        for name, linear in expert._modules.items():
            if reason := _why_not(linear):
                return f"{number}.{name} {reason}"
    rows = [x.linears for x in own.values()]
    if len({id(x) for row in rows for x in (*row, *(y.own_weight for y in row))}) < 2 * sum(
        map(len, rows)
    ):
        return "two linears have one weight"
    for part in ([row[:-1] for row in rows], [row[-1:] for row in rows]):
        flat = [x for row in part for x in row]
        if reason := StackedWeight.why_not([x.own_weight for x in flat], len(part[0])):
            return f"weights must {reason}"
        if reason := _why_not_biases(flat):
            return reason
    return ""


def _why_not(linear: Any) -> str:
    if not type(linear).__dict__.get("can_be_stacked", False):
        return f"is a {type(linear).__name__}"
    if _is_called(linear):
        return "has hooks"
    weight = linear.own_weight
    parts: dict[str, Tensor] = getattr(weight, "tensors", dict)()
    if linear.is_spread and weight is linear._parameters.get("weight"):
        return "is spread over ranks"
    if not parts:
        return "has a dense weight"
    if linear.joint is not None:
        return "is joined with others by fuse_"
    bias = linear.own_bias
    plain = [*parts.values(), *([] if bias is None else [bias])]
    if any(x.is_meta for x in plain):
        return "has no storage"
    if any(type(x) not in (Tensor, nn.Parameter) for x in plain):
        return "is traced"
    return "was made under torch.inference_mode" if any(x.is_inference() for x in plain) else ""


def _is_called(module: nn.Module) -> bool:
    """Whether there is another forward on a module, as accelerate puts it there; hooks of torch are
    looked at in each call."""
    forward = module.__dict__.get("forward")
    is_other = forward is not None and getattr(forward, "__func__", 0) is not type(module).forward
    return is_other or hasattr(module, "_hf_hook")


def _why_not_biases(linears: Sequence[Any]) -> str:
    weight, biases = linears[0].own_weight, [x.own_bias for x in linears]
    form = None if biases[0] is None else (weight.dtype, weight.device)
    if any((None if x is None else (x.dtype, x.device)) != form for x in biases):
        return "some have no bias, or biases are in another dtype or on another device"
    return ""


def _stacked(rows: list[list[Any]]) -> tuple[StackedWeight, list[list[Tensor]]]:
    """The weights of all experts, and of each expert its parts of their biases."""
    stacked = StackedWeight.of(
        [[x.own_weight for x in row] for row in rows], [[x.own_bias for x in row] for row in rows]
    )
    views: list[list[Tensor]] = []
    for number, row in enumerate(rows):
        first = 0
        views.append([])
        for x in row:
            weight, bias = x.own_weight, x.own_bias
            count = weight.shape[0]
            parts = stacked.parts_of(number, first, count)
            if bias is not None:
                bias.data = parts.pop("bias")
                views[-1].append(stacked.parts_of(number, first, count)["bias"])
            weight.plain().is_stacked = True
            for name, part in parts.items():
                setattr(weight, name, part)
            first += count
    return stacked, views


def _gated(experts: Experts, rows: Tensor) -> Tensor:
    """The rows of the second product, by the model's own code.

    Args:
        rows: ``[M, 2 * I]``, or ``[M, I]`` without a gate.
    """
    if not experts.form.has_gate:
        return experts.gated(None, rows)
    gate, up = rows.chunk(2, -1)
    return experts.gated(gate, up)
