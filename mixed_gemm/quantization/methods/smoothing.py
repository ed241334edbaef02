"""SmoothQuant (Xiao et al. 2023, https://arxiv.org/abs/2211.10438): move outliers of the
activations into the weights, channel by channel, before both become int8.

y = (x / s) @ (W * s).T for any s; s_k = max|x_k|^alpha / max|W_k|^(1 - alpha) shares the range
between the two. Dividing x costs nothing where the layer before it (a norm or a linear) can do it;
where anything else reads that layer's output, the division stays as a pre_scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...ops.errors import ArgumentValueError
from ..dataflow import Observations, Observed, Producer

__all__ = ["Smoothing", "smoothing_factors"]

MIN_FACTOR = 1e-5  # bounds the factor of a channel that is nearly zero on one side


@dataclass(frozen=True)
class Smoothing:
    """The factors of one linear. ``where`` says in words what divides its input."""

    factors: Tensor  # [K], float32
    folded: bool
    where: str


def smoothing_factors(activations: Tensor, weight: Tensor, alpha: float = 0.5) -> Tensor:
    """Compute s_k = max|x_k|^alpha / max|W_k|^(1 - alpha), the factors that W is multiplied by.

    Args:
        activations: ``[K]``, the largest absolute value of every input channel.
        weight: ``[N, K]``, or the weights of all linears that share the input, stacked over N.
        alpha: 0 leaves the difficulty with the activations, 1 moves all of it to the weights. The
            paper takes 0.5, and 0.75 for models with more outliers.

    Returns:
        float32 ``[K]``, at least 1e-5; 1 where a channel of either side is all zero.

    Raises:
        ValueError: ``alpha`` is not in 0..1, or the shapes do not fit.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"smoothing_factors: alpha must be in 0..1, got {alpha}")
    x, w = activations.float(), weight.detach().abs().amax(0).float()
    if x.shape != w.shape:
        raise ArgumentValueError(
            f"smoothing_factors: activations must be [K] and weight [N, K], got "
            f"{tuple(activations.shape)} and {tuple(weight.shape)}"
        )
    factors = (x.pow(alpha) / w.pow(1 - alpha)).clamp(min=MIN_FACTOR)
    return torch.where((x > 0) & (w > 0), factors, 1.0)


def largest_input(observed: Observed) -> Tensor:
    """Return the largest absolute value of every input channel, ``[K]``."""
    assert observed.low is not None and observed.high is not None
    return torch.maximum(observed.low.abs(), observed.high.abs())


class FixedFactors:
    """Factors of one ``alpha`` for linears that share an input.

    Args:
        linears: name -> module. seen: name -> what it read. alpha: see :func:`smoothing_factors`.
    """

    def __init__(
        self, linears: Mapping[str, nn.Linear], seen: Mapping[str, Observed], alpha: float
    ) -> None:
        self._linears, self._seen, self._alpha = linears, seen, alpha

    def __call__(self, names: Sequence[str]) -> Tensor:
        """``[K]`` for the linears ``names``."""
        largest = torch.stack([largest_input(self._seen[x]) for x in names]).amax(0)
        weights = torch.cat([self._linears[x].weight.detach() for x in names])
        return smoothing_factors(largest, weights, self._alpha)


def _why_not_fold(producer: Producer, seen: Observations, shared: set[int]) -> str:
    """Tell why the factors of the readers cannot be folded into this layer; empty when they can."""
    if producer.others:
        return f"{producer.name} is also read by {', '.join(sorted(producer.others))}"
    for reader in producer.readers:
        if seen.layers[reader].producers != {producer.name}:
            return f"{reader} has other inputs than {producer.name}"
    parameters = [p for p in producer.module._parameters.values() if p is not None]
    if any(id(p) in shared for p in parameters):
        return f"{producer.name} shares its parameters"
    if producer.module._forward_pre_hooks or producer.module._forward_hooks:
        return f"{producer.name} has hooks"
    return ""


@torch.no_grad()
def _fold(producer: Producer, factors: Tensor, undo: list[Callable[[], None]]) -> bool:
    """Divide the output of a layer by ``factors``. A class that torch does not define may do
    something else with its weight (1 + weight, say): it is tried on a sample and undone if so."""

    def back() -> None:
        with torch.no_grad():
            for name, parameter in kept.items():
                getattr(module, name).copy_(parameter)

    module, sample = producer.module, producer.sample
    trusted = type(module) in (nn.Linear, nn.LayerNorm, nn.RMSNorm)
    kept = {name: p.clone() for name, p in module._parameters.items() if p is not None}
    if any(p.shape[0] != factors.numel() for p in kept.values()) or (
        sample is None and not trusted
    ):
        return False
    before = None if trusted else module(sample).float()
    for name, parameter in kept.items():
        divisor = factors[:, None] if parameter.dim() == 2 else factors
        getattr(module, name).copy_((parameter.float() / divisor).to(parameter.dtype))
    if before is None:
        undo.append(back)
        return True
    after = module(sample).float()
    # The weight rounds once more, and so does the output; a bias may cancel most of a product.
    size = before.abs().flatten(0, -2).amax(0)
    if "bias" in kept:
        size = size + kept["bias"].float().abs()
    allowed = 8 * torch.finfo(sample.dtype).eps * size / factors  # type: ignore[union-attr]
    if bool(((after - before / factors).abs() <= allowed).all()):
        undo.append(back)
        return True
    back()
    return False


def smooth(
    linears: dict[str, nn.Linear],
    seen: Observations,
    factors_of: Callable[[Sequence[str]], Tensor | None],
    shared: set[int],
    undo: list[Callable[[], None]],
) -> dict[str, Smoothing]:
    """Find the factors of every linear and fold what can be folded into the layers before.

    Args:
        linears: name -> module; their weights are not changed here.
        seen: of calibration.
        factors_of: the factors of linears that share an input, None where they need none.
        shared: ids of parameters that more than one module holds.
        undo: what takes the folding back is added.

    Returns:
        name -> factors, for the linears that calibration reached and that need some.
    """
    result: dict[str, Smoothing] = {}
    left = {name for name in linears if seen.layers[name].low is not None}
    why: dict[str, str] = {}
    for producer in seen.producers.values():
        readers = sorted(producer.readers & left)
        if not readers:
            continue
        reason = _why_not_fold(producer, seen, shared)
        if not reason:
            factors = factors_of(readers)
            if factors is None or _fold(producer, factors, undo):
                left.difference_update(readers)
                if factors is not None:
                    folded = Smoothing(factors, True, f"folded into {producer.name}")
                    result.update(dict.fromkeys(readers, folded))
                continue
            reason = f"{producer.name} does not scale with its weight"
        why.update(dict.fromkeys(readers, reason))
    for name in (x for x in linears if x in left):
        if (factors := factors_of([name])) is not None:
            reason = why.get(name, "its input comes from no norm or linear")
            result[name] = Smoothing(factors, False, f"kept as pre_scale: {reason}")
    return result
