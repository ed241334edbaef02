"""Parameters of vLLM's layers, as kernels need them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...weights.exchange import QuantizedWeight
from ...weights.floats import FloatWeight
from ...weights.scheme import Scheme


def replace(layer: nn.Module, name: str, values: Tensor | None) -> None:
    """Put a plain parameter in the place of vLLM's, which torch.compile would not trace; None is
    none.

    A tensor that keeps its address is what a captured graph reads, so weights that are loaded again
    are copied into it where the shapes are the same.
    """
    old = getattr(layer, name, None)
    if hasattr(layer, name) and name not in layer._parameters:
        delattr(layer, name)
    if values is None:
        layer.register_parameter(name, None)
        return
    if type(old) is nn.Parameter and (old.shape, old.dtype, old.device, old.stride()) == (
        values.shape,
        values.dtype,
        values.device,
        values.stride(),
    ):
        old.data.copy_(values)
        return
    layer.register_parameter(name, nn.Parameter(values, requires_grad=False))


def unpack_rows(words: Tensor, bits: int, n: int) -> Tensor:
    """Unpack int32 ``[G, ceil(n * bits / 32)]`` into codes ``[G, n]``, lowest bits first."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    codes = (words.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return codes.flatten(1)[:, :n]


def powers_of_two(exponents: Tensor) -> Tensor:
    """The float32 numbers that bytes of e8m0 stand for."""
    by = exponents.view(torch.uint8).int() - 127
    return torch.ldexp(torch.ones_like(by, dtype=torch.float32), by)


def float4_weight(
    pairs: Tensor, scales: Tensor, divisor: Tensor | None, scheme: Scheme, dtype: torch.dtype
) -> FloatWeight:
    """A weight of MXFP4 or NVFP4.

    Args:
        pairs: uint8 ``[N, K / 2]``, two codes each, the first in the low bits.
        scales: ``[N, G]``, the numbers that they are.
        divisor: float32 ``[N]``, what the weight is divided by besides, or None.
        dtype: of activations.

    Raises:
        ValueError: a scale is none that the scheme has.
    """
    codes = torch.stack([pairs & 15, pairs >> 4], -1).view(pairs.shape[0], -1).to(torch.int8)
    found = QuantizedWeight.of_codes(
        "weight", codes, scales.float().t().contiguous(), scheme=scheme, global_scale=divisor
    )
    return FloatWeight.store(found, dtype)
