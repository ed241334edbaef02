"""A gated MLP whose three layers run one by one: what ``GatedMLP.from_modules`` makes one of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


# As gated_activation names them.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": torch.relu,
}


class PlainMLP(nn.Module):
    """``down_proj(activation(gate_proj(x)) * up_proj(x))``."""

    def __init__(self, gate: nn.Module, up: nn.Module, down: nn.Module, activation: str) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down
        self.activation = activation
        self.train(gate.training)

    def forward(self, x: Tensor) -> Tensor:
        """The layers one by one, the activation in the dtype of ``x``.

        Args:
            x: ``[..., K]``.
        """
        activated = ACTIVATIONS[self.activation](self.gate_proj(x))
        out: Tensor = self.down_proj(activated * self.up_proj(x))
        return out

    def extra_repr(self) -> str:
        return f"activation={self.activation}"
