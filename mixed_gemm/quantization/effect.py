"""The change that rounding some tensors makes to the outputs of a model, where the outputs of the
layers themselves cannot be compared: an error of an output head is one of the logits, and one of a
layer far before it is one of a sum of many. SmolLM2 loses 0.14 of a nat by its table, which is its
head, too, in 4 bits, and 0.26 by all other layers, while the errors of their own outputs are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..ops.errors import ArgumentValueError
from .select import Target
from .state import Runs, evaluating

_Key = TypeVar("_Key")
# A layer and its weight, float32 ``[N, K]``, made when the layer runs.
Weights = Sequence[tuple[Target, Callable[[], Tensor]]]


@torch.no_grad()
def effects(
    model: nn.Module, changes: Mapping[_Key, Weights], batches: Sequence[Any]
) -> dict[_Key, float]:
    """Return a change -> the squared error of the model's outputs relative to them, each
    less its mean over the last dimension, which a softmax takes away.

    Args:
        model: dense. changes: key -> the layers with another weight. batches: of calibration.

    Raises:
        ValueError: the model returns no tensor of floats.
    """
    lost, whole = dict.fromkeys(changes, 0.0), 0.0
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        runs = stack.enter_context(Runs(model))
        for batch in batches:
            dense = _outputs(runs(batch))
            whole += _squares(dense)
            for name, weights in changes.items():
                with _changed(weights):
                    found = _outputs(runs(batch))
                lost[name] += _squares([x - y for x, y in zip(found, dense, strict=True)])
    return {name: x / max(whole, 1e-30) for name, x in lost.items()}


@contextmanager
def _changed(weights: Weights) -> Iterator[None]:
    """Have layers another weight while they run, one at a time."""
    with ExitStack() as stack:
        for target, value in weights:
            for handle in _swapping(target, value):
                stack.callback(handle.remove)
        yield


def _swapping(target: Target, value: Callable[[], Tensor]) -> Iterator[Any]:
    module = target.module
    kept = module._parameters["weight"]

    def before(*_: Any) -> None:
        found = value().to(kept.dtype)
        found = found if module is target.layer else found.t()  # Conv1D has it transposed
        module._parameters["weight"] = nn.Parameter(found, requires_grad=False)

    def behind(*_: Any) -> None:
        module._parameters["weight"] = kept

    yield module.register_forward_pre_hook(before)
    yield module.register_forward_hook(behind, always_call=True)


def _outputs(found: Any) -> list[Tensor]:
    """Return the logits of a model, or all floats that it returns where it names none."""
    logits = getattr(found, "logits", None)
    leaves = [logits] if isinstance(logits, Tensor) else tree_leaves(found)
    floats = [x.float() for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]
    if not floats:
        raise ArgumentValueError(
            "quantize_: average_bits of output heads and embeddings needs a model that returns a "
            f"tensor of floats, got {type(found).__name__}"
        )
    return [x - x.mean(-1, keepdim=True) if x.dim() and x.shape[-1] > 1 else x for x in floats]


def _squares(tensors: Sequence[Tensor]) -> float:
    return sum(float(x.square().sum()) for x in tensors)
