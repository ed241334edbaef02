"""The formats that a folder is written in: compressed-tensors, and bitsandbytes where all of its
layers have the code books of that, for which compressed-tensors has no words; or that of gpt-oss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor

from ..weights.exchange import QuantizedWeight
from .bnb_encode import Books, are_told_apart, why_not_bitsandbytes
from .ct_encode import Groups
from .gpt_oss_encode import Stacks, is_gpt_oss
from .outline import Outline


class Written(Protocol):
    """A format that is written, layer by layer.

    Attributes:
        own: layer -> why only this library reads it.
        joins_experts: whether it has all experts of a layer in one tensor, where readers of such
            models look for them.
    """

    own: dict[str, str]
    joins_experts: bool

    def encode(self, weight: QuantizedWeight) -> Iterator[tuple[str, Tensor]]:
        """Give (name, tensor) of what there is to write once a layer is known."""

    def add(self, weight: QuantizedWeight, name: str, file_name: str = "") -> None:
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
    own: bool,
    config: Mapping[str, Any],
) -> Written:
    """Choose the format of a folder.

    Args:
        outlines: layer -> its outline; None of one that has none. dense: linears that are dense.
        carried: keys of the configuration of the source that go along. own: whether other readers
            are to refuse the whole model.
        config: of the model, as config.json has it.
    """
    found = {name: x for name, x in outlines.items() if x is not None}
    if len(found) != len(outlines) or own or any(carried.values()):
        return Groups()
    if is_gpt_oss(found, dense, config):
        return Stacks(found)
    is_held = not any(map(why_not_bitsandbytes, found.values()))
    one_book = len({x.scheme.weight_type for x in found.values()}) == 1
    if is_held and one_book and are_told_apart(found, dense):
        return Books({name: x.dtype for name, x in found.items()})
    return Groups()
