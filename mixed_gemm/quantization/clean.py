"""Tensors that depend on no layer that is to be rounded: the data, weights that stay, and tensors
that are computed from these alone. A tensor counts only where all that made it was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from .state import version

# Operations with these tags give the values of their arguments out as numbers of Python, or as a
# shape.
_TOLD = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_NEVER = -2  # the version of a storage none of whose tensors is clean again
# These read values without an operation that torch dispatches.
_READ = {getattr(Tensor, name) for name in ("tolist", "numpy", "__array__", "__dlpack__")}

# These make tensors of numbers that Python has.
_MADE = {torch.tensor, torch.as_tensor, torch.from_numpy, torch.asarray}
# The results of these have the shape of their argument and none of its values.
_LIKE = {
    getattr(torch.ops.aten, name)
    for name in (
        "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided", "zeros_like",
        "ones_like", "full_like", "empty_like",
    )
}  # fmt: skip


class _Calls(TorchFunctionMode):
    """A mode that sees values being read without an operation."""

    def __init__(self, clean: Clean) -> None:
        super().__init__()
        self._clean = clean

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _READ and not self._clean.paused and not self._clean.has(args[0]):
            self._clean.told = True
        result = func(*args, **(kwargs or {}))
        noting = not (self._clean.paused or self._clean.told)
        if noting and func in _MADE and not (args and isinstance(args[0], Tensor)):
            self._clean.add(result)
        return result


class Clean(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that notes, while it is entered, which tensors are computed from clean ones alone.

    Attributes:
        paused: nothing is noted meanwhile, so that what is computed then is not clean.
        told: a value that is not clean became a number or a shape: nothing is clean from then on.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.paused = self.told = False
        self._known: Any = WeakIdKeyDictionary()
        # Storage -> its version when a tensor of it was written last.
        self._versions: dict[int, int] = {}
        self._calls = _Calls(self)
        for x in tensors:
            self.add(x)

    def __enter__(self) -> Any:
        self._calls.__enter__()  # type: ignore[no-untyped-call]
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._calls.__exit__(*error)  # type: ignore[no-untyped-call]

    def add(self, x: Tensor, is_view: bool = False) -> None:
        """Note that a tensor is clean as it is now; a view counts with the tensor that it is a view
        of."""
        if type(x) in (Tensor, torch.nn.Parameter) and x.layout == torch.strided:
            self._known[x] = True
            if not is_view:
                self._versions[_storage(x)] = version(x)

    def has(self, x: Tensor) -> bool:
        """Tell whether a tensor is clean, and nobody has written to it unseen."""
        if self.told or x not in self._known:
            return False
        return self._versions.get(_storage(x)) == version(x)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        read = args[1:] if func.overloadpacket in _LIKE else args
        given = [x for x in tree_leaves((read, kwargs)) if isinstance(x, Tensor)]
        are_clean = not self.told and all(map(self.has, given))
        if not are_clean and _TOLD & set(func.tags):
            self.told = True
        result = func(*args, **kwargs)
        for x in _written(func, args, kwargs):  # torch counts it once this has returned
            self._versions[_storage(x)] = version(x) + 1 if are_clean else _NEVER
        if are_clean:
            shared = set(map(_storage, given))
            for x in tree_leaves(result):
                if isinstance(x, Tensor):
                    self.add(x, is_view=_storage(x) in shared)
        return result


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the arguments that an operation writes to."""
    if func._schema.is_mutable:
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[i] if i < len(args) else kwargs.get(argument.name)
                yield from (x for x in tree_leaves(value) if isinstance(x, Tensor))


def _storage(x: Tensor) -> int:
    try:
        return int(x.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # wrappers of functorch have none
        return -id(x)
