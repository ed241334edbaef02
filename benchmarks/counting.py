"""How many of our ops run within a block."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """``with counting() as count``: ``count.calls`` ops of the library ran, whose names have
    ``part`` in them."""

    def __init__(self, part: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls, self._part = 0, part

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = str(func)
        self.calls += name.startswith("mixed_gemm.") and self._part in name.split(".")[1]
        return func(*args, **(kwargs or {}))
