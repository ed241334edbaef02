"""The inputs of units, in the model whose earlier units are rounded or in the dense one: what
earlier units returned is kept until the last one that takes it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from .block import CalibrationBlock
from .block_sequence import GIVEN, BlockCall, Given, Place, Unit, Way
from .own import Own
from .values import Apart, first_tensor


class Stream:
    """One of the two models.

    Args:
        own: the model by itself. units: in their order. dense: which of the two.
    """

    def __init__(self, own: Own, units: list[Unit], dense: bool) -> None:
        self._own, self._dense = own, dense
        self._carried: dict[tuple[int, Place], Tensor] = {}
        self._wanted = Counter(
            (call.batch, place) for unit in units for call in unit.calls for place in call.links()
        )

    def given(self, unit: Unit) -> list[tuple[BlockCall | None, Given]]:
        """Return the inputs of a unit, beside the call of the dense model that each stands for;
        None where there is none."""
        if unit.way is Way.WHOLE:
            return [(None, Given((i, self._dense), {})) for i in range(self._own.batches)]
        links = {(x.batch, p): link for x in unit.calls for p, link in x.links().items()}
        fit = all(link.fits(self._carried.get(x)) for x, link in links.items())
        if unit.way is Way.CHAINED and fit:
            found: list[tuple[BlockCall | None, Given]] = [
                (call, call.given(self._carried)) for call in unit.calls
            ]
        else:
            found = self._captured(unit)
        for x in ((call.batch, place) for call in unit.calls for place in call.links()):
            self._wanted[x] -= 1
            if not self._wanted[x]:
                self._carried.pop(x, None)
        return found

    def _captured(self, unit: Unit) -> list[tuple[BlockCall | None, Given]]:
        """Take the inputs from the model's own forward. Rounding may have changed how often a batch
        calls a block."""
        found: list[tuple[BlockCall | None, Given]] = []
        for i, every in enumerate(self._own.captured(unit, self._dense)):
            calls = [call for call in unit.calls if call.batch == i]
            known = calls if len(calls) == len(every) else [None] * len(every)
            found += zip(known, every, strict=True)
        for call, x in found:
            if call is not None:
                self._carry(call, (x.args, x.kwargs), GIVEN)
        return found

    def _carry(self, call: BlockCall, value: Any, *prefix: Any) -> None:
        """Keep the tensors of a value that later units take."""
        for path, tensor in Apart(value).tensors:
            at = call.batch, Place(call.number, (*prefix, *path))
            if self._wanted[at]:
                self._carried[at] = tensor

    @torch.no_grad()
    def after(
        self, block: CalibrationBlock, given: list[tuple[BlockCall | None, Given]], outputs: bool
    ) -> list[Tensor] | None:
        """Keep what the unit returns, as far as later ones take it.

        Args:
            block: the unit as it is now. given: what it is called with.
            outputs: whether its outputs are returned.
        """
        taken = {(i, place.call) for (i, place), times in self._wanted.items() if times}
        found: list[Tensor] = []
        for call, x in given:
            is_taken = call is not None and (call.batch, call.number) in taken
            if not (outputs or is_taken):
                continue
            result = block.results(x)
            if outputs:
                found.append(first_tensor(result))
            if call is not None and is_taken:
                self._carry(call, result)
        return found if outputs else None
