"""The tensors of one module that others have read from files already."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class LoadedTensors:
    """The tensors of one module as the Tensors that a Codec reads.

    Attributes:
        name: of the module.
        tensors: by role ("qweight" of "model.x.qweight").
        files: where they came from, by role; what is not known is the empty path.
    """

    name: str
    tensors: dict[str, Tensor]
    files: dict[str, Path] = field(default_factory=dict)

    def _role(self, name: str) -> str:
        return name.removeprefix(f"{self.name}.")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._role(name) in self.tensors

    def file(self, name: str) -> Path:
        return self.files.get(self._role(name), Path())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[self._role(name)].shape)

    def dtype(self, name: str) -> torch.dtype | str:
        return self.tensors[self._role(name)].dtype

    def load(self, name: str) -> Tensor:
        return self.tensors[self._role(name)]
