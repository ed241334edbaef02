"""The product of 8-bit weights with activations that are rounded on the way, differentiated as if
they had not been rounded; and of float8 weights with activations as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..ops.autograd import refusal, transforms_active
from ..ops.problem import ceil_div
from ..ops.rounding import quantize_fp8, quantize_per_tensor, quantize_per_token
from ..ops.scaled import scaled_mm, scaled_mm_azp
from ..ops.scaled_dynamic import scaled_mm_dynamic
from .rounding_fp8 import FP8, dequantize_blocks, quantize_with

# How float8 weights with scales of blocks meet their activations, in place of the columns that
# share a scale of those.
AS_THEY_ARE = -1  # not rounded: the weight is made dense
BY_ROW = 0  # a scale for each row, or one for all


def block_size_of(block: tuple[int, int], shared: int) -> tuple[int, int]:
    """The ``block_size`` of ``scaled_mm``, which no scale of either operand is cut by.

    Args:
        block: rows and columns of the weight that share a scale. shared: columns of the activations
            that do, or ``BY_ROW``.
    """
    rows, columns = block
    return rows, columns if shared == BY_ROW else math.gcd(shared, columns)


def _product(
    x: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    azp_adj: Tensor | None,
    input_scale: Tensor | None,
    input_azp: Tensor | None,
    rows: int,
    columns: int,
    shared: int,
) -> Tensor:
    if rows and shared == AS_THEY_ARE:
        dense = dequantize_blocks(weight, weight_scale, (rows, columns), x.dtype)
        return torch.nn.functional.linear(x, dense, bias)
    b = weight.t()
    azp: Tensor | None = None
    if weight.dtype == FP8 and input_scale is None:
        q, scale = quantize_fp8(x, block_size=shared if rows and shared != BY_ROW else None)
    elif input_scale is None and x.device.type == "cpu":
        # On GPUs only the two calls that it stands for have been measured.
        return scaled_mm_dynamic(x, b, weight_scale, azp_adj, bias)
    elif input_scale is None:
        q, scale, azp = quantize_per_token(x, symmetric=azp_adj is None)
    elif weight.dtype == FP8:
        q, scale = quantize_with(x, input_scale), input_scale
    else:
        q, scale = quantize_per_tensor(x, input_scale, input_azp), input_scale
    if rows:
        k, (_, size) = x.shape[-1], block_size_of((rows, columns), shared)
        return scaled_mm(
            q,
            b,
            _in_blocks(
                scale.reshape(1) if scale.dim() == 0 else scale, shared or k, size, k
            ).expand(*x.shape[:-1], -1),
            _in_blocks(weight_scale.float(), columns, size, k),
            bias,
            out_dtype=x.dtype,
            block_size=(rows, size),
        )
    if azp_adj is None:
        return scaled_mm(q, b, scale, weight_scale, bias, out_dtype=x.dtype)
    return scaled_mm_azp(q, b, scale, weight_scale, azp_adj, azp, bias, out_dtype=x.dtype)


def _in_blocks(scale: Tensor, now: int, size: int, k: int) -> Tensor:
    """Scales of ``now`` elements of K in the last dimension as those of ``size``, which no block is
    cut by."""
    if scale.shape[-1] == ceil_div(k, size):
        return scale
    return scale.repeat_interleave(ceil_div(now, size), -1)[..., : ceil_div(k, size)]


def _times_weight(grad: Tensor, weight: Tensor, scale: Tensor, block: tuple[int, int]) -> Tensor:
    """``grad @ w`` of a gradient ``[..., N]``."""
    if weight.dtype == FP8:  # scales of float8 may be too small for float16
        return grad @ _dense(weight, scale, block, grad.dtype)
    return (grad * scale.to(grad.dtype)) @ weight.to(grad.dtype)


def _dense(weight: Tensor, scale: Tensor, block: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The weight ``[N, K]`` that activations are multiplied by; ``block`` as of ``_product``."""
    if weight.dtype != FP8:
        return (weight * scale.unsqueeze(1)).to(dtype)
    if block == (0, 0):  # a scale for each row
        block, scale = (1, weight.shape[1]), scale.unsqueeze(1)
    return dequantize_blocks(weight, scale, block, dtype)


_FROZEN = {2: "weight_scale", 5: "input_scale"}  # by their place in the arguments of _product


def _refuse_frozen(asks: tuple[bool, ...], what: str) -> None:
    for i, name in _FROZEN.items():
        if asks[i]:
            why = "scales do not train. Hint: {name}.detach()"
            raise refusal("mixed_gemm.Linear", name, what, why)


class _StraightThrough(torch.autograd.Function):
    """The product, differentiated as if the activations had not been rounded. Arguments as of
    ``_product``."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        _refuse_frozen(ctx.needs_input_grad, "requires grad")
        ctx.save_for_backward(*args[1:3])
        ctx.block = args[-3:-1]
        return _product(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        grad_x = grad_bias = None
        if grad is not None and ctx.needs_input_grad[0]:
            weight, scale = ctx.saved_tensors
            grad_x = _times_weight(grad, weight, scale, ctx.block)
        if grad is not None and ctx.needs_input_grad[3]:
            grad_bias = grad.sum_to_size(grad.shape[-1])
        return grad_x, None, None, grad_bias, None, None, None, None, None, None


class _Transformable(torch.autograd.Function):
    """``_StraightThrough`` for forward mode and torch.func: torch.compile takes no Function with
    ``jvp``, and one with ``setup_context`` takes 0.1 ms longer a call."""

    generate_vmap_rule = True
    forward = staticmethod(_product)
    backward = _StraightThrough.backward

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _refuse_frozen(ctx.needs_input_grad, "requires grad")
        ctx.save_for_backward(*inputs[1:3])
        ctx.save_for_forward(*inputs[1:3])
        ctx.block = inputs[-3:-1]
        ctx.output_shape = output.shape
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        _refuse_frozen(tuple(x is not None for x in tangents), "has a tangent")
        dx, dbias = tangents[0], tangents[3]
        if dx is None:
            assert dbias is not None
            return dbias.expand(ctx.output_shape)
        weight, scale = ctx.saved_tensors
        out: Tensor = dx @ _dense(weight, scale, ctx.block, dx.dtype).t()
        return out if dbias is None else out + dbias


def eight_bit_product(
    x: Tensor,
    *others: Tensor | None,
    block: tuple[int, int] = (0, 0),
    shared: int = AS_THEY_ARE,
) -> Tensor:
    """``x`` rounded as the weight is, to int8 or float8, times the weight; or as it is, where
    there is a ``block`` and ``shared`` says so.

    Args:
        x: float16, bfloat16 or float32 ``[..., K]``.
        others: weight int8 or float8_e4m3fn ``[N, K]``, weight_scale float32 ``[N]`` (with
            ``block``: any float dtype, one for each block), bias ``[N]`` or None, azp_adj int32
            ``[N]`` or None, input_scale float32 ``[]`` and input_azp int32 ``[]`` of static
            activations or None.
        block: of float8 weights: rows and columns that share a scale; (0, 0) is none.
        shared: with a block: columns of ``x`` that share a scale, ``BY_ROW``, or ``AS_THEY_ARE``:
            then the weight is made dense for each product, and again in the backward, so that it is
            not kept in between.

    Returns:
        ``[..., N]`` in the dtype of ``x``.
    """
    product: Callable[..., Tensor] = _product
    if torch.is_grad_enabled() and x.requires_grad:
        product = _StraightThrough.apply
    if not torch.compiler.is_compiling() and transforms_active():
        product = _Transformable.apply
    return product(
        x, *others, *block, shared
    )  # flat: torch.func cannot have a tuple inside arguments
