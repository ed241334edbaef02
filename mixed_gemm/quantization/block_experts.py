"""The experts of a block while its layers are quantized: which of them saw too few tokens, and
whose inputs are looked at together, since no expert reads what another computes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from ..nn.expert import Expert
from ..nn.experts import Experts
from .block_layer import BlockLayer

FEW_TOKENS = 64  # with fewer of its own an expert is calibrated with those of the whole layer
MAX_BYTES = 1 << 30  # statistics that are added up in one run of the block have no more bytes


class BlockExperts:
    """The experts whose linears are among the layers of a block.

    Args:
        module: the block. layers: of it that are quantized.
    """

    def __init__(self, module: Any, layers: Iterable[BlockLayer]) -> None:
        modules = module.modules() if isinstance(module, nn.Module) else ()
        owners: dict[int, tuple[Experts, int]] = {}
        for owner in (x for x in modules if isinstance(x, Experts)):
            owners |= {id(x): (owner, number) for number, x in enumerate(owner.experts)}
        self._owner: dict[str, tuple[Experts, int]] = {}
        self._is_last: dict[str, bool] = {}
        self._starved: dict[Experts, frozenset[int]] = {}
        self._own_rows: dict[str, int] = {}  # the tokens that a starved expert's layers had
        for layer in layers:
            for parent, child in layer.target.places:
                if isinstance(parent, Expert) and id(parent) in owners:
                    self._owner[layer.name] = owners[id(parent)]
                    self._is_last[layer.name] = child == parent.names.down

    def __bool__(self) -> bool:
        return bool(self._owner)

    def has(self, layer: BlockLayer) -> bool:
        """Tell whether a layer is an expert's."""
        return layer.name in self._owner

    def may_fold(self, group: Sequence[BlockLayer], layer: BlockLayer | None) -> bool:
        """Tell whether factors of the inputs of a group may go to the outputs of a layer: those of
        an expert only to a layer of that expert, since all experts read what comes from elsewhere.

        Args:
            group: layers that read one tensor. layer: None for a norm.
        """
        mine = self._owner.get(group[0].name)
        return mine == (None if layer is None else self._owner.get(layer.name))

    def feed_starved(self, rows: Mapping[str, int]) -> bool:
        """Let experts that saw fewer than ``FEW_TOKENS`` rows see those of the whole layer from now
        on, and return whether there are such.

        Args:
            rows: name of a layer -> how many it was given; a layer that did not run is not in it.
        """
        starved: dict[Experts, set[int]] = defaultdict(set)
        for name, (owner, number) in self._owner.items():
            if rows.get(name, 0) < FEW_TOKENS:
                starved[owner].add(number)
                self._own_rows[name] = rows.get(name, 0)
        self._starved = {owner: frozenset(numbers) for owner, numbers in starved.items()}
        return bool(starved)

    @contextmanager
    def fed(self) -> Iterator[None]:
        """Within this, experts that saw too few tokens see those of the layer."""
        for owner, numbers in self._starved.items():
            owner.starved = numbers
        try:
            yield
        finally:
            for owner in self._starved:
                owner.starved = frozenset()

    def note(self, layer: BlockLayer) -> str:
        """Return words for the report where a layer saw the tokens of other experts; else empty."""
        own = self._own_rows.get(layer.name)
        if own is None:
            return ""
        return f"saw {own} tokens of its own, so that those of all experts were shown to it"

    def together(self, groups: Sequence[list[BlockLayer]]) -> list[list[list[BlockLayer]]]:
        """Return groups whose statistics may be added up in one run, in the order in which they are
        quantized: first products of experts before the second ones, as many as memory allows.

        Args:
            groups: in the order in which they run.
        """
        found: list[list[list[BlockLayer]]] = []
        seen: set[int] = set()
        for group in groups:
            if not self.has(group[0]):
                found.append([group])
                continue
            owner = self._owner[group[0].name][0]
            if id(owner) in seen:
                continue
            seen.add(id(owner))
            mine = [x for x in groups if self.has(x[0]) and self._owner[x[0].name][0] is owner]
            for is_last in (False, True):
                found += _cut([x for x in mine if self._is_last[x[0].name] is is_last])
        return found


def _cut(groups: list[list[BlockLayer]]) -> list[list[list[BlockLayer]]]:
    if not groups:
        return []
    k = groups[0][0].dense.shape[1]
    most = max(1, MAX_BYTES // (8 * k * k))  # a gram and a cross product of float32
    return [groups[i : i + most] for i in range(0, len(groups), most)]
