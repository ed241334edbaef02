"""Something of ours that runs right after somebody else imports a module: registration with
packages that take long to import, for those who use them.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Runs the module as its own loader does, and then the action."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name = name
        self.action = action
        self._loader: importlib.abc.Loader | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None if self._loader is None else self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self._loader is not None
        # The module keeps its own loader, which others ask for its source.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self.action()


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` now if the module ``name`` was imported, else once somebody imports it."""
    if name in sys.modules:
        action()
    elif not any(
        isinstance(x, _AfterImport) and (x.name, x.action) == (name, action) for x in sys.meta_path
    ):
        sys.meta_path.insert(0, _AfterImport(name, action))
