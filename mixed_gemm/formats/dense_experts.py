"""Dense experts that files have in one tensor of a layer (gpt-oss, Llama 4), seen as linears one by
one: only the bytes of one expert are read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..nn.expert import Form, Names
from ..nn.expert_tensors import is_bias, of_part

if TYPE_CHECKING:
    from .index import TensorFile, TensorIndex


@dataclass(frozen=True, eq=False)
class Stack:
    """The experts of one layer in files.

    Attributes:
        owner: what the names of their linears begin with. form: how the tensors hold them.
        names: of the linears of one. keys: parameter of the module of transformers that holds them
            -> name of the tensor.
        in_one_tensor: whether other readers look for these tensors, and for no linears.
    """

    owner: str
    form: Form
    names: Names
    keys: Mapping[str, str]
    in_one_tensor: bool

    def shown(self, index: TensorIndex) -> dict[str, tuple[int, ...]]:
        """Name of a linear -> (N, K).

        Args:
            index: of the files.
        """
        found = dict[str, tuple[int, ...]]()
        for part, key in self.keys.items():
            if not is_bias(part):
                shapes = _shapes(part, index.shape(key), self)
                for number in range(self.form.count):
                    found |= {f"{self.owner}.{number}.{x}": shape for x, shape in shapes.items()}
        return found


def _shapes(part: str, shape: tuple[int, ...], stack: Stack) -> dict[str, tuple[int, ...]]:
    """Linear -> the shape of what a stacked tensor has of it."""
    one = torch.empty(shape[1:], device="meta")
    return {x: tuple(y.shape) for x, y in of_part(part, one, stack.form, stack.names).items()}


class OfStack:
    """One stacked tensor of a file, shown as those of linears; a ``TensorFile``.

    Args:
        file: that holds it. stack: which it is of. part: which of the keys.
    """

    def __init__(self, file: TensorFile, stack: Stack, part: str) -> None:
        self.path, self._file, self._stack, self._part = file.path, file, stack, part
        self._key = stack.keys[part]
        self._shapes = _shapes(part, file.shape(self._key), stack)
        role = "bias" if is_bias(part) else "weight"
        self._places = {
            f"{stack.owner}.{number}.{linear}.{role}": (number, linear)
            for number in range(stack.form.count)
            for linear in self._shapes
        }

    def names(self) -> Iterable[str]:
        return tuple(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[self._places[name][1]]

    def dtype(self, name: str) -> torch.dtype | str:
        return self._file.dtype(self._key)

    def load(self, name: str) -> Tensor:
        number, linear = self._places[name]
        read = getattr(self._file, "load_slice", None)
        if read is None:
            one = self._file.load(self._key)[number]
        else:
            one = read(self._key, 0, number, number + 1)[0]
        found = of_part(self._part, one, self._stack.form, self._stack.names)
        return found[linear].clone(memory_format=torch.contiguous_format)


def shown_apart(
    owners: Mapping[str, TensorFile], stacks: Iterable[Stack]
) -> Iterator[tuple[str, TensorFile]]:
    """Yield the tensors of a checkpoint, with linears in the places of stacked experts.

    Args:
        owners: name of a tensor -> the file that holds it. stacks: that are shown as linears.
    """
    places = {key: (stack, part) for stack in stacks for part, key in stack.keys.items()}
    for name, file in owners.items():
        if name not in places:
            yield name, file
            continue
        shown = OfStack(file, *places[name])
        yield from ((x, shown) for x in shown.names())
