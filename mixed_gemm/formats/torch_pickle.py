"""The pickle in a torch file, read as data: a table of the few instructions that a state dict is
written with. Nothing that the pickle names is imported or called, whoever wrote it, and its cost is
bounded; tensors come out as places in the file.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .safetensors_file import DTYPES

MAX_BYTES = 24 << 20
MAX_STEPS = 300_000  # 7,000 tensors have so many; half a second

_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "ComplexFloatStorage": torch.complex64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "UntypedStorage": torch.uint8,
}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES.values()}


@dataclass(frozen=True)
class Storage:
    """Bytes of the file: the record "data/<key>"; dtype is that of its elements."""

    key: str
    dtype: torch.dtype


@dataclass(frozen=True)
class StoredTensor:
    """A view of a storage: offset and strides count elements."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Name:
    """A name that the pickle refers to: "collections.OrderedDict"."""

    text: str


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple) or len(value) > 64:
        raise ValueError("a tensor whose shape is no tuple")
    if not all(type(x) is int and 0 <= x < 2**63 for x in value):
        raise ValueError(f"a tensor with the sizes {value[:8]}")
    return value


def _tensor(*args: Any) -> StoredTensor:
    storage, offset, shape, stride = args[:4]
    if not isinstance(storage, Storage) or len(_sizes(shape)) != len(_sizes(stride)):
        raise ValueError("a tensor without storage, or with other strides than sizes")
    return StoredTensor(storage, storage.dtype, _sizes((offset,))[0], shape, stride)


def _tensor_of_dtype(*args: Any) -> StoredTensor:
    dtype = args[6]
    if not isinstance(dtype, torch.dtype):
        raise ValueError("a tensor without a dtype")
    found = _tensor(*args)
    return StoredTensor(found.storage, dtype, found.offset, found.shape, found.stride)


_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": lambda: {},
    "torch.Size": lambda sizes: _sizes(sizes),
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
}


def _named(module: str, name: str) -> object:
    if module == "torch" and name in _DTYPES:
        return _DTYPES[name]
    if module in ("torch", "torch.storage") and name in _STORAGES:
        return _STORAGES[name]
    return _Name(f"{module}.{name}")


@dataclass
class _Machine:
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def since_mark(self) -> list[Any]:
        at = self.marks.pop()
        values = self.stack[at:]
        del self.stack[at:]
        return values

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(values)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int):  # hashing nested tuples can take forever
                raise ValueError(f"a dict with a key of type {type(key).__name__}")
            target[key] = value

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError
        target.extend(items)

    def global_name(self, module: object, name: object) -> None:
        self.stack.append(_named(str(module), str(name)))

    def call(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Name) or function.text not in _CALLS:
            text = function.text if isinstance(function, _Name) else type(function).__name__
            raise ValueError(f"it asks to call {text}, which no state dict needs; nothing was run")
        self.stack.append(_CALLS[function.text](*args))

    def storage(self) -> None:
        kind, dtype, key = self.stack.pop()[:3]
        if kind != "storage" or not isinstance(dtype, torch.dtype) or not isinstance(key, str):
            raise ValueError("a reference to something that is no storage")
        self.stack.append(Storage(key, dtype))

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]


def _push(machine: _Machine, arg: Any) -> None:
    machine.stack.append(arg)


_DO: dict[str, Callable[[_Machine, Any], Any]] = {
    "PROTO": lambda m, _: None,
    "FRAME": lambda m, _: None,
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "SETITEM": lambda m, _: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.since_mark()),
    "BINPUT": lambda m, arg: m.put(arg),
    "LONG_BINPUT": lambda m, arg: m.put(arg),
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    "BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    "LONG_BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    "GLOBAL": lambda m, arg: m.global_name(*arg.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.global_name(m.stack.pop(-2), m.stack.pop()),
    "REDUCE": lambda m, _: m.call(),
    "BINPERSID": lambda m, _: m.storage(),
    "BUILD": lambda m, _: m.stack.pop(),  # attributes: the versions of modules
    **dict.fromkeys(
        (
            *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
            *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
            *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        ),
        _push,
    ),
}


def read_state(content: bytes | bytearray) -> dict[str, StoredTensor]:
    """The tensors of a state dict by name; what is no tensor is left out. A dict whose "state_dict"
    is one will do.

    Raises:
        ValueError: it is damaged, or holds something that a state dict has no use for.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"a pickle of {len(content)} bytes, at most {MAX_BYTES} are read")
    machine = _Machine()
    try:
        for step, (opcode, arg, _) in enumerate(pickletools.genops(bytes(content))):
            if step > MAX_STEPS:
                raise ValueError(f"a pickle of more than {MAX_STEPS} instructions")
            if opcode.name == "STOP":
                break
            if opcode.name not in _DO:
                raise ValueError(f"the instruction {opcode.name}, which no state dict needs")
            _DO[opcode.name](machine, arg)
        state = machine.stack.pop()
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeError, OverflowError) as error:
        raise ValueError(f"its pickle is damaged ({error!r})") from error
    if not isinstance(state, dict):
        raise ValueError(f"it must hold a state dict, got {type(state).__name__}")
    inner = state.get("state_dict", state)
    if not isinstance(inner, dict):
        raise ValueError(f"its state_dict is a {type(inner).__name__}")
    return {k: v for k, v in inner.items() if isinstance(k, str) and isinstance(v, StoredTensor)}
