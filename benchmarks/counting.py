"""How many of our ops run within a block."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """``with counting() as count``: ``count.calls`` ops of the library ran."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.calls += str(func).startswith("mixed_gemm.")
        return func(*args, **(kwargs or {}))
