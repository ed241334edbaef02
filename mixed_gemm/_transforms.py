"""What torch does around an op: autocast, vmap and FLOP counting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

# Registrations last as long as this object.
_LIBRARY = torch.library.Library("mixed_gemm", "IMPL")  # type: ignore[no-untyped-call]


def _autocast_kernel(
    op: torch._ops.OpOverload[..., Any], device_type: str, key: torch._C.DispatchKey
) -> Callable[..., Tensor]:
    """Cast the float tensors to the autocast dtype the user chose, then call the op below autocast.
    torch.library.register_autocast knows one fixed dtype only, and no keyword arguments."""
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


def _vmap(
    info: Any, in_dims: tuple[int | None, ...], *args: Any, **kwargs: Any
) -> tuple[Tensor, int]:
    """A batch over ``a`` is one more leading dimension; weights are shared."""
    if any(dim is not None for dim in in_dims[1:]):
        raise NotImplementedError(
            "mixed_gemm::fpA_intB_gemm: vmap runs over a only, got in_dims "
            f"{in_dims}. Hint: loop over the layers"
        )
    assert in_dims[0] is not None
    a = args[0].movedim(in_dims[0], 0)
    return torch.ops.mixed_gemm.fpA_intB_gemm(a, *args[1:], **kwargs), 0


def _flops(
    a_shape: Sequence[int],
    b_packed_shape: Sequence[int],
    scales_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] | None = None,
    **kwargs: Any,
) -> int:
    """2 * M * N * K of the logical GEMM, as for a dense one: padding does not count."""
    return 2 * math.prod(a_shape) * scales_shape[1]


def register_autocast(op: torch._ops.OpOverload[..., Any]) -> None:
    for device_type, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        kernel = _autocast_kernel(op, device_type, getattr(torch._C.DispatchKey, key))
        _LIBRARY.impl(op, kernel, key)  # type: ignore[no-untyped-call]


def _scaled_flops(
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] | None = None,
    **kwargs: Any,
) -> int:
    return 2 * math.prod(a_shape) * b_shape[1]


def register() -> None:
    packets = (torch.ops.mixed_gemm.fpA_intB_gemm, torch.ops.mixed_gemm.fpA_intB_gemm_config)
    for packet in packets:
        register_autocast(packet.default)
        register_flop_formula(packet)(_flops)
    torch.library.register_vmap("mixed_gemm::fpA_intB_gemm", _vmap)
    for packet in (torch.ops.mixed_gemm.scaled_mm, torch.ops.mixed_gemm.scaled_mm_azp):
        register_flop_formula(packet)(_scaled_flops)
