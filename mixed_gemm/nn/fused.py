"""Activations that run in the kernel of the layer before them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from .conv import Conv2d
from .conv_int8 import Int8Conv2d
from .joined import HOOKS
from .linear import Linear
from .tracing import is_traced_through, recorded, typed

_LAYERS = (Linear, Conv2d, Int8Conv2d)
_BY_TYPE: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.ReLU6: "relu6", nn.SiLU: "silu"}
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}  # approximate -> activation


def activation_of(module: nn.Module) -> str | None:
    """The name by which the kernels know the activation of ``module``; None where they do
    not, or where somebody listens to it."""
    if any(getattr(module, hooks) for hooks in HOOKS):
        return None
    if type(module) is nn.GELU:
        return _GELU.get(module.approximate)
    return _BY_TYPE.get(type(module))


def fusable(layer: nn.Module, activation: nn.Module) -> str | None:
    """The name of ``activation`` where the kernel of ``layer`` can run it, else None: another type
    of layer (an adapter around one, say), a weight that is dense, sharded or of a kind whose kernel
    has no activations, or a hook on either."""
    if type(layer) not in _LAYERS or any(getattr(layer, hooks) for hooks in HOOKS):
        return None
    quantized: Any = layer
    weight = quantized.plain_weight
    name = None if weight is None else activation_of(activation)
    return name if name is not None and name in weight.fuses else None


def fused_pair(input: Tensor, layer: Any, activation: nn.Module) -> Tensor:
    """The layer and the activation behind it, in one kernel while they can; one node of a graph of
    torch.fx, so that it rounds once as the module does.

    Args:
        input: of the layer. layer, activation: of one ``nn.Sequential``.
    """
    if is_traced_through(input):
        return recorded(fused_pair, input, layer, activation)  # type: ignore[no-any-return]
    name = fusable(layer, activation)
    out: Tensor = activation(layer(input)) if name is None else layer.activated(input, name)
    return out


class FusedSequential(nn.Sequential):
    """``nn.Sequential`` that runs a quantized layer and the activation behind it in one kernel.

    ``quantize_(model, fuse_activations=True)`` makes every ``nn.Sequential`` one that has such a
    pair. Modules, names and state_dicts stay as they were, and a pair that stops being one (an
    adapter around the layer, a hook) runs as two modules again. relu and relu6 give the same bits
    as two modules do; the others round once instead of twice.
    """

    @typed
    def forward(self, input: Tensor) -> Tensor:
        """As ``nn.Sequential``.

        Args:
            input: of any shape that the first module takes.
        """
        modules = list(self._modules.values())
        done = 0
        while done < len(modules):
            module: Any = modules[done]
            after: Any = modules[done + 1] if done + 1 < len(modules) else None
            name = None if after is None else fusable(module, after)
            if name is None:
                input, done = module(input), done + 1
            elif is_traced_through(input):
                input, done = fused_pair(input, module, after), done + 2
            else:
                input, done = module.activated(input, name), done + 2
        return input


def pairs_of(module: nn.Module) -> dict[int, str]:
    """id of a layer -> its activation, of the pairs that one kernel can run.

    Args:
        module: whose children are looked at.
    """
    return {
        id(layer): name
        for layer, after in pairwise(module.children())
        if (name := fusable(layer, after)) is not None
    }


def fuse_activations(model: nn.Module) -> dict[int, str]:
    """Make every ``nn.Sequential`` below ``model``, itself included, that has a layer and an
    activation to run in one kernel a :class:`FusedSequential`.

    Returns:
        id of a layer -> its activation, of those pairs.
    """
    found: dict[int, str] = {}
    for module in model.modules():
        if type(module) not in (nn.Sequential, FusedSequential):
            continue
        pairs = pairs_of(module)
        if pairs:
            module.__class__ = FusedSequential
        found.update(pairs)
    return found
