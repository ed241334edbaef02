"""How a call is refused: the exceptions, their one form of text, and the translation of what the
library throws.

The text is the same whoever finds the mistake: CPU and CUDA kernels (csrc/ops/errors.h), fake
kernels, or the Python function in front of them. The type depends on the entrance:

* ``mixed_gemm.*`` raises what the field expects. An argument that is no tensor, or has the wrong
  dtype: ``TypeError``. A number, name, shape, stride, device or storage that does not fit:
  ``ValueError``. Legal, but this device or build has no kernel for it: ``NotImplementedError``. No
  memory left: ``torch.OutOfMemoryError``. The first two come as :class:`ArgumentTypeError` and
  :class:`ArgumentValueError`, which are ``RuntimeError`` as well, because that is what torch's own
  ops raise for such mistakes and what callers of this library have caught so far; the others are
  by birth. So ``except RuntimeError`` catches every refusal.
* ``torch.ops.mixed_gemm.*`` raises ``RuntimeError`` with the same text: the stable ABI lets nothing
  else through. So does a graph that ``torch.compile`` made, where it runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


class ArgumentTypeError(TypeError, RuntimeError):
    """An argument is no tensor, or not of the dtype or Python type that the op takes."""


class ArgumentValueError(ValueError, RuntimeError):
    """A number, name, shape, stride, device or storage of an argument does not fit."""


class UnsupportedError(NotImplementedError):
    """A legal call for which this device or this build has no kernel."""


# The exceptions by their names in ops/errors.h. "runtime" stays a RuntimeError.
_KINDS: dict[str, type[RuntimeError]] = {
    "type": ArgumentTypeError,
    "value": ArgumentValueError,
    "unsupported": UnsupportedError,
    "memory": torch.OutOfMemoryError,
}


def _sentence(argument: str, expected: str, got: str, because: str, hint: str) -> str:
    got = f", got {got}" if got else ""
    because = f"; {because}" if because else ""
    return f"{argument} must {expected}{got}{because}{f'. Hint: {hint}' if hint else ''}"


def wrong_type(
    where: str, argument: str, expected: str, got: str = "", because: str = "", hint: str = ""
) -> NoReturn:
    """Raise :class:`ArgumentTypeError` with "where: argument must expected, got got; because. Hint:
    hint", where what is empty is left out."""
    raise ArgumentTypeError(f"{where}: {_sentence(argument, expected, got, because, hint)}")


def wrong_value(
    where: str, argument: str, expected: str, got: str = "", because: str = "", hint: str = ""
) -> NoReturn:
    """Raise :class:`ArgumentValueError` with the same form of text."""
    raise ArgumentValueError(f"{where}: {_sentence(argument, expected, got, because, hint)}")


def dtype_name(dtype: object) -> str:
    """ "float16" of ``torch.float16``."""
    return str(dtype).removeprefix("torch.")


def shape_text(sizes: Any) -> str:
    """ "(3, 4)", as the library writes it; symbolic sizes by name."""
    return "(" + ", ".join(str(s) for s in sizes) + ("," if len(sizes) == 1 else "") + ")"


def check_storage(where: str, **tensors: torch.Tensor | None) -> None:
    """Raise ``ValueError`` for a tensor whose storage was freed or shrunk under it. The ops do so
    themselves; this is for code that reads a tensor with torch's ops, which crash."""
    for name, tensor in tensors.items():
        # A wrapper (of vmap, of grad) has no storage.
        if tensor is None or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            continue
        if torch.compiler.is_compiling() or not isinstance(tensor.numel(), int):
            continue
        if tensor.numel() == 0:
            continue
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in steps)
        needed, held = (last + 1) * tensor.element_size(), tensor.untyped_storage().nbytes()
        if needed > held:
            wrong_value(
                where,
                name,
                f"have a storage of {needed} bytes or more",
                f"{held} bytes",
                f"its shape is {shape_text(tensor.shape)}",
                "the storage was freed or resized, as FSDP does between steps: gather the "
                "parameters first",
            )


def check_not_freed(where: str, **tensors: torch.Tensor | None) -> None:
    """:func:`check_storage` for the forward of modules, of what torch's ops read before ours do: it
    only looks closer where a storage is empty."""
    if torch.compiler.is_compiling():
        return
    for name, tensor in tensors.items():
        if tensor is None or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            continue
        held = tensor.untyped_storage().nbytes()
        if isinstance(held, int) and held == 0:  # a symbol is of a tensor without memory
            check_storage(where, **{name: tensor})


# The Python types of an argument, by its type in the schema of an op.
_PYTHON_TYPES: dict[str, Any] = {
    "Tensor": torch.Tensor,
    "Optional[Tensor]": (torch.Tensor, type(None)),
    "int": (int, torch.SymInt),
    "float": (int, float, torch.SymInt, torch.SymFloat),
    "bool": (bool, torch.SymBool),
    "str": str,
    "ScalarType": torch.dtype,
}


def as_its_kind(error: RuntimeError) -> RuntimeError:
    """The exception of the right kind, with the same text, for a plain one of the library."""
    text = str(error)
    kind = _KINDS.get(torch.ops.mixed_gemm._error_kind(text))
    return error if kind is None else kind(text)


def _answer_to(error: RuntimeError, op: str, given: dict[str, Any]) -> RuntimeError:
    """The exception of the right kind for a plain one of the library, or of the dispatcher, which
    looks at Python types before any kernel runs."""
    text = str(error)
    kind = torch.ops.mixed_gemm._error_kind(text)
    if kind:
        return _KINDS.get(kind, RuntimeError)(text)
    for expected in getattr(torch.ops.mixed_gemm, op).default._schema.arguments:
        value = given.get(expected.name, expected.default_value)
        types = _PYTHON_TYPES.get(str(expected.real_type), object)
        if value is None and types is torch.Tensor:
            what = _sentence(expected.name, "be a tensor", "None", "", "")
            return ArgumentTypeError(f"mixed_gemm::{op}: {what}")
        if type(error) is RuntimeError and not isinstance(value, types):
            return ArgumentTypeError(text)
    return error


def raise_its_kind(error: RuntimeError, op: str, given: dict[str, Any]) -> NoReturn:
    """Raise what a call of an op threw as the exception of its kind, with the same text.

    Args:
        given: the arguments of the call, by name.
    """
    if type(error) not in (RuntimeError, NotImplementedError):  # it has its kind
        raise error
    answer = _answer_to(error, op, given)
    if answer is error:
        raise error
    raise answer.with_traceback(error.__traceback__) from None


def translates_errors(op: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate the Python function in front of ``torch.ops.mixed_gemm.<op>``, whose arguments have
    the names of the op's: what the library throws becomes the exception of its kind, with the same
    text. It adds half a microsecond to a call that is accepted."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        parameters, is_compiling = inspect.signature(function), torch.compiler.is_compiling

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if is_compiling():  # Dynamo puts the op into a graph, and runs no handler
                return function(*args, **kwargs)
            try:
                return function(*args, **kwargs)
            except RuntimeError as error:
                raise_its_kind(error, op, parameters.bind(*args, **kwargs).arguments)

        return call

    return decorate


def check_is_dtype(op: str, name: str, value: object) -> None:
    """Raise ``TypeError`` unless it is a ``torch.dtype``. torch takes any integer there, and reads
    beyond its table of dtypes for one that stands for none, before a kernel of ours runs."""
    if not isinstance(value, torch.dtype):
        wrong_type(op, name, "be a torch.dtype", repr(value))


def check_int8_weight(
    where: str, argument: str, weight: torch.Tensor, dims: int, rule: str
) -> None:
    """Check the weight of a helper function: int8, with ``dims`` dimensions, its storage not freed.

    Args:
        rule: the words for the shape in an error.
    """
    if weight.dtype != torch.int8 or weight.dim() != dims:
        refuse = wrong_value if weight.dtype == torch.int8 else wrong_type
        got = f"{dtype_name(weight.dtype)} {shape_text(weight.shape)}"
        refuse(where, argument, f"be int8 {rule}", got)
    check_storage(where, **{argument: weight})
