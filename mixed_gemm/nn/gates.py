"""The gate of a model's experts, or of an MLP, by the name that ``gated_activation`` has for it:
found by trying, since what a class is called says less than what it computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..ops.gated import gated_activation

if TYPE_CHECKING:
    from .experts import Experts

_NAMES = ("silu", "gelu", "gelu_tanh", "relu")
# Numbers that tell the activations apart, and whether there is a limit.
PROBE = (*(x / 4 for x in range(-40, 41)), -3e4, -500.0, -20.0, 20.0, 500.0, 3e4)


@dataclass(frozen=True)
class Gate:
    """Arguments of ``gated_activation``."""

    activation: str
    limit: float | None = None
    alpha: float = 1.0

    def __str__(self) -> str:
        limit = "" if self.limit is None else f", limit {self.limit:g}"
        return f"{self.activation}{limit}" + (f", alpha {self.alpha:g}" if self.alpha != 1 else "")

    def __call__(self, gate_up: Tensor) -> Tensor:
        """The activation of gate, times up.

        Args:
            gate_up: ``[M, 2 * I]``, the columns of gate first.
        """
        return gated_activation(
            gate_up, activation=self.activation, limit=self.limit, alpha=self.alpha
        )


def gate_of(experts: Experts) -> Gate | None:
    """The gate that computes what experts do between their products; None where there is none.

    Args:
        experts: whose activation has no parameters, or it may be another one tomorrow.
    """
    activation = getattr(experts, "act_fn", None)
    learns = isinstance(activation, nn.Module) and any(
        True for _ in itertools.chain(activation.parameters(), activation.buffers())
    )
    if not experts.form.has_gate or learns:
        return None
    gate = torch.tensor(PROBE, device="cpu")
    up = gate.flip(0).roll(7)
    rows = torch.stack((torch.cat((gate, gate)), torch.cat((up, gate.roll(3))))).flatten(1)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        try:
            wanted = experts.gated(*rows)
        except Exception:  # whatever the code of a model may raise on float32 on a CPU
            return None
        for found in _candidates(experts):
            if torch.allclose(found(rows.flatten()), wanted, rtol=2e-5, atol=1e-5):
                return found
    return None


def settings_of(experts: Experts) -> tuple[Any, ...]:
    """The activation and the numbers that the gate of experts depends on.

    Args:
        experts: with an activation, or a gate of their class and its numbers.
    """
    return (
        getattr(experts, "act_fn", None),
        *_numbers(experts, "limit"),
        *_numbers(experts, "alpha"),
    )


def _candidates(experts: Experts) -> Iterator[Gate]:
    yield from candidates(experts) if experts.has_own_gate else map(Gate, _NAMES)


def candidates(module: nn.Module) -> Iterator[Gate]:
    """Every gate that there is, with the limits and the alphas that a module holds.

    Args:
        module: whose attributes may be such numbers.
    """
    limits = [x for x in _numbers(module, "limit") if x > 0]
    alphas = [x for x in _numbers(module, "alpha") if x > 0]
    for limit in (*limits, None):
        yield from (Gate(name, limit) for name in _NAMES)
        yield from (Gate("swiglu_oai", limit, alpha) for alpha in (*alphas, 1.0))


def _numbers(module: nn.Module, word: str) -> tuple[float, ...]:
    given = module.__dict__
    return tuple(float(given[x]) for x in given if word in x and type(given[x]) in (int, float))
