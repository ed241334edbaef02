"""The formats that a folder is written in: compressed-tensors, and bitsandbytes where all of its
layers have the code books of that, for which compressed-tensors has no words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from torch import Tensor

from ..weights.exchange import QuantizedWeight
from .bnb_encode import Books, are_told_apart, why_not_bitsandbytes
from .ct_encode import Groups
from .outline import Outline


class Written(Protocol):
    """A format that is written, layer by layer.

    Attributes:
        own: layer -> why only this library reads it.
    """

    own: dict[str, str]

    def encode(self, weight: QuantizedWeight) -> dict[str, Tensor]:
        """Role -> tensor."""

    def add(self, weight: QuantizedWeight, file_name: str = "") -> None:
        """Add a layer to the configuration."""

    def configuration(
        self,
        ignore: Iterable[str],
        own: bool = False,
        carried: Mapping[str, Any] | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make the quantization_config of config.json."""


def written_as(
    outlines: Mapping[str, Outline | None],
    dense: Iterable[str],
    carried: Mapping[str, Any],
    own: bool = False,
) -> Written:
    """Choose the format of a folder.

    Args:
        outlines: layer -> its outline; None of one that has none. dense: linears that are dense.
        carried: keys of the configuration of the source that go along. own: whether other readers
            are to refuse the whole model.
    """
    found = {name: x for name, x in outlines.items() if x is not None}
    is_held = len(found) == len(outlines) and not any(map(why_not_bitsandbytes, found.values()))
    one_book = len({x.scheme.weight_type for x in found.values()}) == 1
    nothing_else = not own and not any(carried.values())
    if is_held and one_book and nothing_else and are_told_apart(found, dense):
        return Books({name: x.dtype for name, x in found.items()})
    return Groups()
