"""torch's operators that write into an argument, and arguments for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

SHAPE = (8, 32)
# Other arguments for an operator that refuses the first: by type, or by the part of a name.
OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"int": 1},
    {"List[int]": [0]},
    {"List[int]": [1]},
    {"bool": True},
    {"index": torch.tensor([0, 1]), "indices": torch.tensor([0, 1])},
    {"mask": torch.eye(*SHAPE).bool()},
    {"value": torch.tensor(0.5)},
)


def is_written(argument: Any) -> bool:
    info = argument.alias_info
    return info is not None and info.is_write and "Tensor" in str(argument.type)


def schemas() -> list[Any]:
    """The schemas of all operators with a written argument that is a tensor, or has tensors in
    it."""
    found = [s for s in torch._C._jit_get_all_schemas() if any(map(is_written, s.arguments))]
    return sorted(found, key=lambda s: (s.name, s.overload_name))


def operator(schema: Any) -> Any:
    """The operator that torch calls a subclass of its tensors with; None where Python has none."""
    space, name = schema.name.split("::")
    packet = getattr(getattr(torch.ops, space), name, None)
    return getattr(packet, schema.overload_name or "default", None)


def name_of(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name or 'default'}"


def arguments(
    schema: Any, target: Any, position: int, others: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments with ``target`` in the place of a written one.

    Args:
        schema: of the operator. target: of the shape ``SHAPE``.
        position: of the written argument, among those.
        others: one of ``OTHERS``.

    Raises:
        KeyError: an argument has a type that is not known here.
    """
    written = [a.name for a in schema.arguments if is_written(a)]
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in schema.arguments:
        kind = str(argument.type)
        if is_written(argument):
            tensor = target if argument.name == written[position] else torch.rand(SHAPE)
            value: Any = [tensor] if "List" in kind else tensor
        else:
            value = _value(kind, argument.name, others)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


def _value(kind: str, name: str, others: dict[str, Any]) -> Any:
    if kind.startswith("Optional"):
        return None
    for part, value in others.items():
        if kind == part or (kind == "Tensor" and part in name):
            return value
    plain: dict[str, Any] = {
        "Tensor": torch.rand(SHAPE),
        "List[Tensor]": [torch.rand(SHAPE)],
        "List[Optional[Tensor]]": [torch.tensor([1, 2])],
        "int": 0,
        "float": 0.5,
        "bool": False,
        "number": 0.5,
        "List[int]": list(SHAPE),
        "List[float]": [0.5, 0.5],
        "List[number]": [0.5],
    }
    return plain[kind]


class Recorded:
    """Stands for an operator that no arguments are at hand for: it has its schema, writes
    ``value`` into whatever the schema calls written, and returns that."""

    def __init__(self, schema: Any, value: float) -> None:
        self._schema, self.value = schema, value
        self.namespace = schema.name.split("::")[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [*zip(self._schema.arguments, args, strict=False)]
        given += [(a, kwargs[a.name]) for a in self._schema.arguments if a.name in kwargs]
        written = list(self._tensors(given))
        for tensor in written:
            assert type(tensor) is Tensor, f"{name_of(self._schema)} got a {type(tensor)}"
            tensor.fill_(self.value)
        return written

    @staticmethod
    def _tensors(given: list[tuple[Any, Any]]) -> Iterator[Tensor]:
        for argument, value in given:
            if is_written(argument):
                yield from value if isinstance(value, list) else [value]
