"""Linears of experts that another rank has: this one needs to know how they are stored, since all
ranks save them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..weights.scheme import Scheme
from ..weights.tensor import QuantizedTensor
from .local_linear import LocalLinear
from .read import ROWS


class Elsewhere(nn.Module):
    """The place of a linear that another rank has, until that rank tells how it is stored.

    Args:
        linear: what the model has there.
    """

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_parameter("bias", linear._parameters.get("bias"))  # which may be read


@dataclass(frozen=True)
class Told:
    """A message to the other ranks from the one that has a linear: all but its numbers.

    Attributes:
        nothing: the weight with none of its rows. bias: that with none of its elements, or None.
        shape, scheme: of the weight. is_conv1d: of the module.
    """

    nothing: QuantizedTensor
    bias: Tensor | None
    shape: tuple[int, int]
    scheme: Scheme
    is_conv1d: bool

    @classmethod
    def of(cls, linear: LocalLinear) -> Told:
        """Make the message.

        Args:
            linear: all of whose rows this rank has.
        """
        bias, weight = linear._parameters.get("bias"), linear.own_weight.cut(ROWS, 0, 0)
        return cls(
            weight.with_parts(lambda part: part.cpu()),
            None if bias is None else bias.detach()[:0].cpu(),
            (linear.out_features, linear.in_features),
            linear.scheme,
            linear.is_conv1d,
        )

    def linear(self, mesh: Any) -> LocalLinear:
        """The linear on a rank that has nothing of it.

        Args:
            mesh: one-dimensional.
        """
        device = torch.device(mesh.device_type)
        weight = self.nothing.with_parts(lambda part: part.to(device))
        bias = None if self.bias is None else self.bias.to(device)
        made = LocalLinear.of(weight, bias, mesh, ROWS, self.shape, self.scheme)
        made.is_conv1d = self.is_conv1d
        return made
