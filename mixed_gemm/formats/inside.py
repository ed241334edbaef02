"""The module that a tensor belongs to, by its name: looked up by the names of all around it,
since a mixture has tens of thousands of modules, and as many prefixes would all be tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator


def owners(name: str) -> Iterator[str]:
    """The modules that a tensor may belong to, the innermost first."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def is_inside(name: str, modules: Collection[str]) -> bool:
    """Whether a tensor, or a module, is below one of some modules.

    Args:
        name: of it. modules: their names, in a set or a dictionary.
    """
    return any(owner in modules for owner in owners(name))
