"""Autocast: an op runs in the dtype that the user chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .library import LIBRARY


def _kernel(
    op: torch._ops.OpOverload[..., Any], device_type: str, key: torch._C.DispatchKey
) -> Callable[..., Tensor]:
    """Cast the float tensors to the autocast dtype that the user chose, and call the op below
    autocast. torch.library.register_autocast knows one fixed dtype only, and no keyword
    arguments."""
    exclude = torch._C.DispatchKeySet(key)

    def cast(x: Any, dtype: torch.dtype) -> Any:
        # float64 is left alone, as torch.autocast does: the op then refuses it by name.
        eligible = isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype) if eligible else x

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device_type)
        with torch._C._ExcludeDispatchKeyGuard(exclude):
            result: Tensor = op(*(cast(x, dtype) for x in args), **kwargs)
        return result

    return kernel


def register(names: Iterable[str]) -> None:
    for name in names:
        op = getattr(torch.ops.mixed_gemm, name).default
        for device_type, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
            kernel = _kernel(op, device_type, getattr(torch._C.DispatchKey, key))
            LIBRARY.impl(op, kernel, key)  # type: ignore[no-untyped-call]
