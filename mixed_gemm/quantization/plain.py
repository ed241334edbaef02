"""Linear layers of a class of their own, which models bring along: whether one computes what
``nn.Linear`` does and nothing else, so that a quantized layer can take its place.

Falcon's ``FalconLinear`` writes the product another way; Llama 4's ``Llama4Router`` goes on from
there. The names do not tell, so each is tried on data.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn

_N, _K = 24, 40  # sizes of the layer that stands for one while it is tried
_SHAPES = ((_K,), (3, _K), (2, 3, _K))
# Methods that a quantized layer can do without; whoever calls another would miss it.
_OWN = frozenset({"forward", "reset_parameters", "extra_repr"})


def why_not_plain(layer: nn.Linear) -> str:
    """Tell why a layer of a subclass of ``nn.Linear`` is not known to be a plain one; empty when it
    computes ``torch.nn.functional.linear(x, weight, bias)``.

    It is one when it holds a weight and a bias alone, has no methods of its own beside ``forward``,
    and a small layer of its class gives what ``linear`` gives: in float64 within the rounding of
    one sum, and in each dtype that layers have, in training and out of it.
    """
    kind = type(layer)
    what = f"is a {kind.__name__}"
    if kind.__module__.split(".")[0] == "torch":
        return f"{what}, not exactly nn.Linear"
    if more := sorted(_parts(layer) - {"weight", "bias"}):
        return f"{what}, which holds more than a weight and a bias: {', '.join(more)}"
    if more := sorted(_methods(kind) - _OWN):
        return f"{what}, which has methods that nn.Linear has not: {', '.join(more)}"
    if kind.forward is nn.Linear.forward and "forward" not in vars(layer):
        return ""
    takes = inspect.signature(kind.forward).parameters
    if len(takes) != 2 or "forward" in vars(layer):
        return f"{what}, whose forward does not take one input"
    return "" if _computes_linear(layer) else f"{what}, which computes otherwise than nn.Linear"


def why_no_product(module: nn.Module) -> str:
    """Tell why a quantized layer from a file would not compute what a linear of the model's own
    class does; empty when it would, and for modules that are no linear. Classes of torch have its
    forward."""
    kind = type(module)
    if not isinstance(module, nn.Linear) or kind.__module__.split(".")[0] == "torch":
        return ""
    return why_not_plain(module)


def _parts(layer: nn.Module) -> set[str]:
    """Return the names of parameters, buffers and children."""
    held = (layer._parameters, layer._buffers, layer._modules)
    return {name for parts in held for name, part in parts.items() if part is not None}


def _methods(kind: type[nn.Module]) -> set[str]:
    """Return the names of functions and properties that classes between this one and ``nn.Linear``
    define."""
    own = (x for x in kind.__mro__[: kind.__mro__.index(nn.Linear)])
    return {
        name
        for each in own
        for name, value in vars(each).items()
        if (callable(value) or isinstance(value, property | classmethod | staticmethod))
        and name != "__init__"
    }


def _computes_linear(layer: nn.Linear) -> bool:
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        # A result may be as far off as sums in another order are, in each dtype.
        limit = 16 * torch.finfo(dtype).eps
        for training in (False, True):
            for shape in _SHAPES:
                weight, x, bias = (
                    # Models are built on the meta device, where there is nothing to compare.
                    torch.randn(size, generator=generator, dtype=torch.float64, device="cpu").to(
                        dtype
                    )
                    for size in ((_N, _K), shape, (_N,))
                )
                given = bias if layer.bias is not None else None
                probe = _like(layer, weight, given).train(training)
                try:
                    with torch.no_grad():
                        found: Any = probe(x.clone())
                        wanted = nn.functional.linear(x, weight, given)
                except Exception:  # raised by code that nobody here has seen: it is not plain
                    return False
                if not isinstance(found, torch.Tensor) or found.dtype != dtype:
                    return False
                if found.shape != wanted.shape:
                    return False
                scale = x.double().abs() @ weight.double().abs().t() + 1
                if bool(((found.double() - wanted.double()).abs() > limit * scale).any()):
                    return False
    return True


def _like(layer: nn.Linear, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """Make a layer of the same class with the same attributes, but small, on the CPU."""
    probe = copy.copy(layer)
    probe._parameters = {
        "weight": nn.Parameter(weight, requires_grad=False),
        "bias": None if bias is None else nn.Parameter(bias, requires_grad=False),
    }
    probe.in_features, probe.out_features = _K, _N
    return probe
