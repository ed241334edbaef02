"""Memory of a tensor that torch takes for dense and that is stored otherwise: no address holds its
elements in a row. Methods of ``torch.Tensor`` that read or write memory behind torch's operators
answer for the dense value, or for the parts, or refuse.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

# Packages of torch that ask for a storage in order to tell tensors apart.
_COMPILERS = ("torch._dynamo", "torch._functorch", "torch._inductor", "torch._subclasses",
              "torch.export")  # fmt: skip

_of_torch: Any = Tensor  # whose methods about memory have no types


@dataclass(frozen=True)
class Identity:
    """The result of ``data_ptr()``: equal for weights that share their parts, hashable, and no
    number, so that nobody takes it for an address and reads the dense elements there.

    Attributes:
        address: of the first part.
    """

    address: int

    def __repr__(self) -> str:
        return f"<identity of a quantized weight, first part at {self.address:#x}>"


class BytesEach(float):
    """Bytes of an element on average, which need not be whole. Times a number of elements, which is
    how others work out what a model takes, it is a whole number of bytes again."""

    def __mul__(self, other: Any) -> Any:
        product = float.__mul__(self, other)
        return round(product) if type(other) is int else product

    __rmul__ = __mul__


class Storageless(Tensor):
    """A tensor whose dense value lies nowhere; subclasses say what it is and what is stored."""

    # --- what subclasses say -------------------------------------------------------------------

    def _stored(self) -> list[Tensor]:
        """The plain tensors that are stored, the packed weight first."""
        raise NotImplementedError

    def _value(self) -> Tensor:
        """The dense value, with memory of its own."""
        raise NotImplementedError

    def _assign(self, value: Tensor) -> None:
        """Write a dense value, as ``copy_`` does."""
        raise NotImplementedError

    @classmethod
    def _wrap(
        cls, shape: Any, dtype: torch.dtype, device: Any, strides: Any = None, offset: Any = 0
    ) -> Any:
        """An instance for torch to see, whose own memory nobody gets at from C++ either.

        Args:
            shape, dtype, device: of the dense value. strides: contiguous when None.
            offset: of the first element.
        """
        made = torch.Tensor._make_wrapper_subclass(
            cls, shape, strides=strides, storage_offset=offset or None, dtype=dtype, device=device,
            requires_grad=False,
        )  # fmt: skip
        torch._C._set_throw_on_mutable_data_ptr(made)
        return made

    # --- addresses -----------------------------------------------------------------------------

    def _is_traced(self) -> bool:
        """Whether a compiler of torch holds this, or asks: it tells storages apart and leaves what
        is in them alone, so it gets the empty one that torch gives every such tensor."""
        traced = type(self._stored()[0]) not in (Tensor, torch.nn.Parameter)
        return traced or sys._getframe(2).f_globals["__name__"].startswith(_COMPILERS)

    def data_ptr(self) -> Any:
        """An :class:`Identity` in place of an address; 0 on the meta device and for compilers, as
        torch has it."""
        if self.is_meta or self._is_traced():
            return 0
        return Identity(self._stored()[0].data_ptr())

    def untyped_storage(self) -> torch.UntypedStorage:
        """Refused.

        Raises:
            RuntimeError: always, but where torch.compile traces.
        """
        return super().untyped_storage() if self._is_traced() else _refuse("untyped_storage()")

    def storage(self) -> Any:
        """Refused, as :meth:`untyped_storage`."""
        return _of_torch.storage(self) if self._is_traced() else _refuse("storage()")

    def _typed_storage(self) -> Any:
        return _of_torch._typed_storage(self) if self._is_traced() else _refuse("storage()")

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: the other library would share memory that is not there.

        Raises:
            RuntimeError: always.
        """
        _refuse("__dlpack__()")

    # --- sizes ---------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes of all that is stored."""
        return sum(tensor.nbytes for tensor in self._stored())

    def element_size(self) -> float:  # type: ignore[override]
        """Bytes of an element on average: ``numel() * element_size()`` is :attr:`nbytes`."""
        return BytesEach(self.nbytes / self.numel())

    @property
    def itemsize(self) -> float:  # type: ignore[override]
        """As :meth:`element_size`."""
        return self.element_size()

    # --- the dense value for others ------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> Any:
        """The dense value as an array that cannot be written to, since it is a copy.

        Args:
            force: whether a tensor on another device is copied to the CPU first.

        Returns:
            An array of the shape of this weight.

        Raises:
            What ``torch.Tensor.numpy`` raises: numpy has no bfloat16, and other devices are to be
            left first.
        """
        array = self._value().numpy(force=force)
        array.setflags(write=False)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The dense value for ``numpy.asarray``.

        Args:
            dtype: of the array. copy: whether it must be one: False is refused, as numpy has it.
        """
        if copy is False:
            raise ValueError(
                "QuantizedTensor: an array of the dense value is a copy, got copy=False. Hint: "
                "numpy.asarray(weight)"
            )
        array = self._value().numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def tolist(self) -> Any:
        """The dense value in nested lists."""
        return self._value().tolist()

    # --- memory of several processes -----------------------------------------------------------

    def share_memory_(self) -> Any:
        """Move all that is stored to memory that processes share."""
        for tensor in self._stored():
            _of_torch.share_memory_(tensor)
        return self

    def is_shared(self) -> bool:
        """Whether all that is stored lies in memory that processes share."""
        return all(_of_torch.is_shared(tensor) for tensor in self._stored())

    # --- functions of Python for each element --------------------------------------------------

    def apply_(self, callable: Callable[[Any], Any]) -> Any:
        """``torch.Tensor.apply_`` on the dense value, which is written back.

        Args:
            callable: element -> element.
        """
        self._assign(self._value().apply_(callable))
        return self

    def map_(self, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Any:
        """``torch.Tensor.map_`` on the dense value, which is written back.

        Args:
            tensor: of this shape. callable: (element, element of ``tensor``) -> element.
        """
        other = tensor._value() if isinstance(tensor, Storageless) else tensor
        self._assign(self._value().map_(other, callable))
        return self


def _refuse(call: str) -> NoReturn:
    raise RuntimeError(
        f"QuantizedTensor.{call}: there is no memory that holds the elements of a quantized weight "
        "in a row. Hint: weight.dequantize() is a dense copy, weight.tensors() are the parts that "
        "are stored"
    )
