"""What torch does around an op: autocast and FLOP counting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .library import LIBRARY

_CODES_PER_WORD = 8  # of AutoAWQ's int32 words


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


def _register_autocast(op: torch._ops.OpOverload[..., Any]) -> None:
    for device_type, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        kernel = _autocast_kernel(op, device_type, getattr(torch._C.DispatchKey, key))
        LIBRARY.impl(op, kernel, key)  # type: ignore[no-untyped-call]


def _gemm_flops(
    a_shape: Sequence[int],
    b_packed_shape: Sequence[int],
    scales_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] | None = None,
    **kwargs: Any,
) -> int:
    """2 * M * N * K of the logical GEMM, as for a dense one: padding does not count."""
    return 2 * math.prod(a_shape) * scales_shape[1]


def _conv_flops(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *args: Any,
    kernel_size: Sequence[int] = (1, 1),
    out_shape: Sequence[int] = (),
    **kwargs: Any,
) -> int:
    """2 * N * Ho * Wo * Co * Ci * Kh * Kw, as for a dense one: padding does not count."""
    return 2 * math.prod(out_shape) * input_shape[1] * math.prod(kernel_size)


def _conv_int8_flops(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] = (),
    **kwargs: Any,
) -> int:
    return 2 * math.prod(out_shape) * math.prod(weight_shape[1:])


def _dense_flops(
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] | None = None,
    **kwargs: Any,
) -> int:
    return 2 * math.prod(a_shape) * b_shape[1]


def _awq_flops(
    input_shape: Sequence[int],
    qweight_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] | None = None,
    **kwargs: Any,
) -> int:
    return 2 * math.prod(input_shape) * qweight_shape[1] * _CODES_PER_WORD


_AUTOCAST = ("fpA_intB_gemm", "fpA_intB_gemm_config", "awq_gemm", "qconv2d", "block_quant_gemm")
_FLOPS: dict[str, Callable[..., int]] = {
    "fpA_intB_gemm": _gemm_flops,
    "fpA_intB_gemm_config": _gemm_flops,
    "awq_gemm": _awq_flops,
    "qconv2d": _conv_flops,
    "qconv2d_int8": _conv_int8_flops,
    "block_quant_gemm": _dense_flops,
    "scaled_mm": _dense_flops,
    "scaled_mm_azp": _dense_flops,
}


def register() -> None:
    ops = torch.ops.mixed_gemm
    for name in _AUTOCAST:
        _register_autocast(getattr(ops, name).default)
    for name, formula in _FLOPS.items():
        register_flop_formula(getattr(ops, name))(formula)
