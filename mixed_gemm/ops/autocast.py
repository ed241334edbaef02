"""Autocast: an op runs in the dtype that the user chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .library import LIBRARY


@dataclass(frozen=True)
class AllBut:
    """Every floating-point tensor is cast but these arguments, whose dtype is one."""

    kept: tuple[str, ...]


def _kernel(
    op: torch._ops.OpOverload[..., Any],
    rule: Literal[True] | AllBut,
    device_type: str,
    key: torch._C.DispatchKey,
) -> Callable[..., Tensor]:
    """Cast the float tensors to the autocast dtype that the user chose, and call the op below
    autocast. torch.library.register_autocast knows one fixed dtype only, and no keyword
    arguments."""
    exclude = torch._C.DispatchKeySet(key)
    kept = () if rule is True else rule.kept
    is_kept = [x.name in kept for x in op._schema.arguments]

    def cast(x: Any, dtype: torch.dtype) -> Any:
        # float64 is left alone, as torch.autocast does: the op then refuses it by name.
        eligible = isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype) if eligible else x

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(device_type)
        with torch._C._ExcludeDispatchKeyGuard(exclude):
            given = zip(args, is_kept, strict=False)
            result: Tensor = op(*(x if stays else cast(x, dtype) for x, stays in given), **kwargs)
        return result

    return kernel


def register(rules: Mapping[str, Literal[True] | AllBut]) -> None:
    for name, rule in rules.items():
        op = getattr(torch.ops.mixed_gemm, name).default
        for device_type, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
            kernel = _kernel(op, rule, device_type, getattr(torch._C.DispatchKey, key))
            LIBRARY.impl(op, kernel, key)  # type: ignore[no-untyped-call]
