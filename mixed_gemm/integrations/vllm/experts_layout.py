"""A kind of file to the method for experts: the tensors that vLLM's loader fills, and the weights
that become of them. No vLLM is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from ...weights.scheme import Scheme

FACTOR = "mixed_gemm_factor"


def word(x: Any) -> Any:
    """An enumeration of vLLM or compressed-tensors in its own words.

    Args:
        x: a member of one, or a plain value, which stays as it is.
    """
    return getattr(x, "value", x)


@dataclass(frozen=True)
class Part:
    """A tensor of all experts of a layer, for vLLM's loader.

    Attributes:
        values: to be filled.
        shares: vLLM's word for what shares a scale.
        is_transposed: whether input channels come before output channels.
        is_order: whether it holds the groups of columns (``g_idx``), which vLLM's loader does not
            know.
    """

    values: Tensor
    shares: str = "channel"
    is_transposed: bool = False
    is_order: bool = False


@dataclass(frozen=True)
class Packed:
    """One weight of all experts of a layer, the parts of a ``StackedWeight`` by their names."""

    scheme: Scheme
    tensors: dict[str, Tensor]


class Layout(Protocol):
    """How files of a kind have the experts of a layer.

    Attributes:
        scheme: of the weights, as the configuration of the file says it.
        names: part of a ``StackedWeight`` -> the parameter that holds it when it is packed.
        in_turns: whether rows of gate and up alternate.
        has_biases: whether biases are read.
        has_order: whether columns are in another order (act-order).
        packs_channels: whether numbers of neighboring output channels share a word of 32 bits.
        ends_on_cpu: whether vLLM's own method says yes on a CPU, and ends when it packs the
            weights.
    """

    names: ClassVar[Mapping[str, str]]
    in_turns: ClassVar[bool]
    has_biases: ClassVar[bool]

    @property
    def scheme(self) -> Scheme: ...

    @property
    def has_order(self) -> bool: ...

    @property
    def packs_channels(self) -> bool: ...

    @property
    def ends_on_cpu(self) -> bool: ...

    def parts(self, count: int, n: int, k: int, dtype: torch.dtype, stem: str) -> dict[str, Part]:
        """Make tensors for what a file has.

        Args:
            count: E, of experts. n, k: of the weight of one. dtype: of scales. stem: "w13", which
                has the channels of two matrices beside each other, or "w2".
        """

    def packed(self, found: dict[str, Tensor], n: int, dtype: torch.dtype, stem: str) -> Packed:
        """Pack what was loaded, one expert after the other.

        Args:
            found: as of :meth:`parts`; may be changed. n: channels of one expert.
            dtype: of activations. stem: as of :meth:`parts`.

        Raises:
            ValueError: a value is none that the scheme has.
        """


def stacked(count: int, experts: Iterable[Mapping[str, Tensor | None]]) -> dict[str, Tensor]:
    """Copy the parts of one expert after the other, so that no more than one is there twice. A part
    that some experts lack is zero for these.

    Args:
        count: of experts. experts: the parts of each.
    """
    made: dict[str, Tensor] = {}
    for number, parts in enumerate(experts):
        for name, part in parts.items():
            if part is None:
                continue
            if name not in made:
                made[name] = part.new_zeros(count, *part.shape)
            made[name][number] = part
    return made
