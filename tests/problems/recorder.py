"""The calls of our ops that reach the dispatcher below autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Recorded:
    op: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    out: Any

    @property
    def name(self) -> str:
        return str(self.op).removeprefix("mixed_gemm.").removesuffix(".default")


class Recorder(TorchDispatchMode):
    """Keeps every call of one of our ops."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Recorded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace == "mixed_gemm":
            self.calls.append(Recorded(func, args, kwargs or {}, out))
        return out
