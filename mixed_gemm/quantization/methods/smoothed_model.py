"""A model whose linears have SmoothQuant's factors in their weights already, for as long as another
method looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor, nn

from ...weights.scheme import Scheme
from ..select import Target
from .smoothing import Smoothing

INNER = "linear"  # the name of a stand-in's layer


class _Divided(nn.Module):
    """A linear with factors in its weight; ``divisor``: ``[K]``, what its input is divided by
    where the layer before does not do that."""

    def __init__(self, linear: nn.Linear, divisor: Tensor | None) -> None:
        super().__init__()
        self.linear = linear
        self._divisor = divisor

    @property
    def weight(self) -> Tensor:
        """Attributes of a linear that models read (T5 its dtype) before they call it."""
        return self.linear.weight

    @property
    def bias(self) -> Tensor | None:
        return self.linear.bias

    def forward(self, input: Tensor) -> Tensor:
        if self._divisor is not None:
            input = (input / self._divisor).to(input.dtype)
        out: Tensor = self.linear(input)
        return out


def _multiplied(target: Target, factors: Tensor) -> nn.Linear:
    n, k = target.layer.weight.shape
    made = nn.Linear(k, n, bias=False, device="meta")
    weight = target.layer.weight.detach()
    made.weight = nn.Parameter((weight.float() * factors).to(weight.dtype), requires_grad=False)
    made.bias = target.layer.bias
    return made


def _of_weights(scheme: Scheme) -> Scheme:
    if scheme.weights.type == "float":
        return replace(scheme, input_activations=None)
    return scheme if scheme.is_weight_only else Scheme.weight_only(8, -1)


@contextmanager
def smoothed(
    targets: Mapping[str, Target], smoothing: Mapping[str, Smoothing]
) -> Iterator[dict[str, tuple[str, Target]]]:
    """Hang linears with factors in the places of the layers.

    Args:
        targets: name -> linear. smoothing: name -> factors, of those that have some.

    Yields:
        name -> what that layer is called meanwhile, and as what it is quantized: with the weights
        of its scheme, and activations as they are.
    """
    found: dict[str, tuple[str, Target]] = {}
    kept = [(p, c, getattr(p, c)) for name in smoothing for p, c in targets[name].places]
    try:
        for name, target in targets.items():
            scheme = _of_weights(target.scheme)
            if (of := smoothing.get(name)) is None:
                found[name] = (name, Target(target.layer, scheme, target.module, target.places))
                continue
            divided = _Divided(_multiplied(target, of.factors), None if of.folded else of.factors)
            for parent, child in target.places:
                setattr(parent, child, divided)
            inner = Target(divided.linear, scheme, divided.linear, [(divided, INNER)])
            found[name] = (f"{name}.{INNER}", inner)
        yield found
    finally:
        for parent, child, module in kept:
            setattr(parent, child, module)
