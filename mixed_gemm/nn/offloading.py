"""Layers that accelerate offloads. Its hooks fetch the parameters of a layer by name from a mapping
that was a ``state_dict()``, where a quantized weight is found by its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from ..weights.tensor import QuantizedTensor
    from .base import QuantizedModule

_NAME = "_hf_hook"


class AssembledWeights(Mapping[str, Tensor]):
    """A mapping with the parts of a weight, in which the weight itself is found, too.

    Args:
        parts: name -> tensor, on any device or read from a disk.
        like: the weight, whose parts may have no memory. Its derived parts are worked out from the
            others each time.
    """

    def __init__(self, parts: Mapping[str, Tensor], like: QuantizedTensor) -> None:
        self.parts = parts
        self.like = like.with_parts(lambda part: part.to("meta"))

    def __getitem__(self, key: str) -> Tensor:
        if key != "weight":
            return self.parts[key]
        like = self.like
        found = {name: self.parts[name] for name in like.stored()}
        cast = [part.name for part in like.parts if part.follows and part.name in found]
        dtype = found[cast[0]].dtype if cast else like.dtype
        return type(like)(found, like.scheme, like.shape, dtype)

    def __iter__(self) -> Iterator[str]:
        yield from self.parts
        yield "weight"

    def __len__(self) -> int:
        return len(self.parts) + 1


class HookSeat:
    """The attribute by which accelerate leaves its hook on a module. A hook that will look for the
    weight among its parts finds it there."""

    def __get__(self, module: QuantizedModule | None, kind: type | None = None) -> Any:
        if module is None:
            return self
        try:
            return module.__dict__[_NAME]
        except KeyError:
            raise AttributeError(_NAME) from None

    def __set__(self, module: QuantizedModule, hook: Any) -> None:
        for each in getattr(hook, "hooks", (hook,)):
            found = getattr(each, "weights_map", None)
            weight = module._quantized()
            if found is None or weight is None or "weight" not in module._parameters:
                continue
            if not isinstance(found, AssembledWeights) and "weight" not in found:
                each.weights_map = AssembledWeights(found, weight)
        module.__dict__[_NAME] = hook

    def __delete__(self, module: QuantizedModule) -> None:
        del module.__dict__[_NAME]
