"""What is public is what ``__all__`` names: each name with a docstring that says what it must, and
listed in docs/api.md."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from support import docstrings

import mixed_gemm
from tools.pages import api

OBJECTS = {
    f"{package}.{name}": thing
    for package, names in api.public_objects().items()
    for name, thing in names.items()
    if callable(thing)
}


def lacks(name: str) -> list[tuple[str, str]]:
    thing = OBJECTS[name]
    if inspect.isclass(thing):
        return list(docstrings.lacks_of_class(thing))
    return [(name.rpartition(".")[2], lack) for lack in docstrings.lacks(thing)]


@pytest.mark.parametrize("name", OBJECTS)
def test_docstring_says_what_it_must(name: str) -> None:
    assert lacks(name) == []


def test_docstring_of_the_config_of_transformers() -> None:
    pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    assert list(docstrings.lacks_of_class(mixed_gemm.MixedGemmConfig)) == []


def test_nothing_else_is_public() -> None:
    names = {name for name, x in vars(mixed_gemm).items() if not isinstance(x, ModuleType)}
    assert {x for x in names if not x.startswith("_")} <= set(mixed_gemm.__all__)
    for package in api.PACKAGES:
        listed = importlib.import_module(package).__all__
        assert len(set(listed)) == len(listed)


def test_every_package_with_a_list_is_on_the_page() -> None:
    found = {"mixed_gemm"}
    for module in pkgutil.walk_packages(mixed_gemm.__path__, "mixed_gemm."):
        if module.ispkg and hasattr(importlib.import_module(module.name), "__all__"):
            found.add(module.name)
    assert found == set(api.PACKAGES)


# --- the checker ---------------------------------------------------------------------------------


def full(x: torch.Tensor, size: int) -> torch.Tensor:
    """Cut a tensor.

    Args:
        x: ``[K]``. size: of the result.

    Raises:
        ValueError: ``size`` is negative.
    """
    if size < 0:
        raise ValueError(size)
    return x[:size]


def bare(x: int) -> int:
    return x


def no_argument(first: int, second: int) -> int:
    """Add two numbers.

    Args:
        first: one of them.
    """
    return first + second


def other_argument(first: int) -> int:
    """Add nothing.

    Args:
        first: a number. third: another.
    """
    return first


def no_shape(x: torch.Tensor) -> torch.Tensor:
    """Twice a tensor ``x``."""
    return 2 * x


def no_raises(size: int) -> int:
    """The ``size`` itself."""
    if size < 0:
        raise ValueError(size)
    return size


def no_sentence(size: int) -> int:
    """the size"""
    return size


@pytest.mark.parametrize(
    ("function", "lack"),
    [
        (full, ""),
        (bare, "no docstring"),
        (no_argument, "arguments that it does not explain: second"),
        (other_argument, "Args that it has not: third"),
        (no_shape, "no shape of x"),
        (no_raises, "no Raises, and it can raise"),
        (no_sentence, "its first paragraph is no sentence"),
    ],
)
def test_the_checker_sees_it(function: object, lack: str) -> None:
    assert list(docstrings.lacks(function)) == ([lack] if lack else [])


@dataclass
class Fields:
    """Two numbers.

    Attributes:
        one: the first. three: the other.
    """

    one: int
    two: int


class Methods:
    """A number.

    Attributes:
        size: of it. weight: of it.
    """

    def __init__(self) -> None:
        self.size = 1

    @property
    def half(self) -> float:
        return self.size / 2


def test_the_checker_sees_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Fields, Methods):
        monkeypatch.setattr(cls, "__module__", "mixed_gemm.example")
    assert list(docstrings.lacks_of_class(Fields)) == [
        ("Fields", "fields that it does not explain: two"),
        ("Fields", "fields that it has not: three"),
    ]
    assert list(docstrings.lacks_of_class(Methods)) == [
        ("Methods", "attributes that it has not: weight"),
        ("Methods.half", "no docstring"),
    ]
