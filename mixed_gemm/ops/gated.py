"""The gated activation between the two products of a feed-forward layer, typed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .. import _library
from .autograd import ACTIVATION_DERIVATIVE, Derivatives, Formulas, Saved
from .errors import translates_errors
from .op import Op
from .reasons import DETACH, NO_PRODUCT
from .sharding import Rows, Sharding
from .vmap import Batching

__all__ = ["gated_activation"]


@translates_errors("gated_activation")
def gated_activation(
    gate_up: Tensor, *, activation: str = "silu", limit: float | None = None, alpha: float = 1.0
) -> Tensor:
    """activation(gate) * up, where gate is the first half of the last dimension and up the second.

    In fp32 and rounded once, to the dtype of ``gate_up``. With a ``limit``, gate is first cut to
    at most that and up to -limit..limit, as DeepSeek-V4 does. "swiglu_oai" is that of gpt-oss:
    gate * sigmoid(alpha * gate) * (up + 1); there ``limit`` is 7 and ``alpha`` 1.702, and its
    weights, whose rows of gate and up take turns, have to be put in halves before. A NaN stays.
    Differentiable.

    Args:
        gate_up: float16, bfloat16 or float32 ``[..., 2 * I]``; any strides.
        activation: silu, gelu, gelu_tanh, relu or swiglu_oai.
        limit: positive and finite, or None.
        alpha: positive and finite; 1 with another activation than swiglu_oai.

    Returns:
        ``[..., I]``, contiguous, in the dtype of ``gate_up``.

    Raises:
        TypeError: ``gate_up`` is no tensor, or of another dtype.
        ValueError: ``gate_up`` is 0-d, its last dimension is odd or its storage was freed, or
            ``activation``, ``limit`` or ``alpha`` is none of these.
        ImportError: the library did not load.
    """
    _library.require()
    out: Tensor = torch.ops.mixed_gemm.gated_activation(
        gate_up, activation=activation, limit=limit, alpha=alpha
    )
    return out


def _swiglu_derivative(v: Tensor, x: Tensor, alpha: float) -> Tensor:
    # sigmoid(-x) is 1 - sigmoid(x) without its cancellation.
    s = torch.sigmoid(alpha * x)
    return v * s * (1 + alpha * x * torch.sigmoid(-alpha * x))


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
}


class _Gate:
    """One call in fp32, its two halves cut to the limit."""

    def __init__(self, saved: Saved) -> None:
        given = saved.arguments
        self.activation, self.alpha = given["activation"], given["alpha"]
        self.limit = math.inf if given["limit"] is None else given["limit"]
        self.raw_gate, self.raw_up = given["gate_up"].float().chunk(2, -1)
        self.gate = self.raw_gate.clamp(max=self.limit)
        self.up = self.raw_up.clamp(-self.limit, self.limit) + self._more

    @property
    def _more(self) -> int:
        return 1 if self.activation == "swiglu_oai" else 0

    def by_gate(self, v: Tensor) -> Tensor:
        """``v`` times the derivative by gate."""
        v = v * self.up * (self.raw_gate <= self.limit)
        if self.activation == "swiglu_oai":
            return _swiglu_derivative(v, self.gate, self.alpha)
        return ACTIVATION_DERIVATIVE[self.activation](v, self.gate)

    def by_up(self, v: Tensor) -> Tensor:
        """``v`` times the derivative by up."""
        v = v * (self.raw_up.abs() <= self.limit)
        if self.activation == "swiglu_oai":
            out: Tensor = v * self.gate * torch.sigmoid(self.alpha * self.gate)
            return out
        return v * _ACTIVATIONS[self.activation](self.gate)


def _backward(saved: Saved, grad: Tensor, name: str) -> Tensor:
    gate = _Gate(saved)
    v = grad.float()
    return torch.cat((gate.by_gate(v), gate.by_up(v)), -1).to(grad.dtype)


def _forward(saved: Saved, tangents: Mapping[str, Tensor]) -> Tensor:
    gate = _Gate(saved)
    d_gate, d_up = tangents["gate_up"].float().chunk(2, -1)
    return (gate.by_gate(d_gate) + gate.by_up(d_up)).to(tangents["gate_up"].dtype)


OPS = (
    Op(
        "gated_activation",
        "activation(gate) * up, two halves of a row",
        derivatives=Derivatives(DETACH, Formulas(("gate_up",), _backward, _forward)),
        autocast="it computes in fp32 what has any float type; a cast before would round twice",
        vmap=Batching(("gate_up",)),
        flops=NO_PRODUCT,
        sharding=Sharding((Rows("rows of gate_up", "gate_up"),)),
    ),
)
