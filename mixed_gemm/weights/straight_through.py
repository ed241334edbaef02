"""The product of int8 weights with activations that are rounded on the way, differentiated as if
they had not been rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..ops.autograd import refusal, transforms_active
from ..ops.rounding import quantize_per_tensor, quantize_per_token
from ..ops.scaled import scaled_mm, scaled_mm_azp


def _product(
    x: Tensor,
    weight_int8: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    azp_adj: Tensor | None,
    input_scale: Tensor | None,
    input_azp: Tensor | None,
) -> Tensor:
    azp: Tensor | None
    if input_scale is None:
        q, scale, azp = quantize_per_token(x, symmetric=azp_adj is None)
    else:
        q, scale, azp = quantize_per_tensor(x, input_scale, input_azp), input_scale, None
    b = weight_int8.t()
    if azp_adj is None:
        return scaled_mm(q, b, scale, weight_scale, bias, out_dtype=x.dtype)
    return scaled_mm_azp(q, b, scale, weight_scale, azp_adj, azp, bias, out_dtype=x.dtype)


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
        return _product(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        grad_x = grad_bias = None
        if grad is not None and ctx.needs_input_grad[0]:
            weight_int8, weight_scale = ctx.saved_tensors
            grad_x = (grad * weight_scale.to(grad.dtype)) @ weight_int8.to(grad.dtype)
        if grad is not None and ctx.needs_input_grad[3]:
            grad_bias = grad.sum_to_size(grad.shape[-1])
        return grad_x, None, None, grad_bias, None, None, None


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
        ctx.output_shape = output.shape
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        _refuse_frozen(tuple(x is not None for x in tangents), "has a tangent")
        weight_int8, weight_scale = ctx.saved_tensors
        dx, dbias = tangents[0], tangents[3]
        if dx is None:
            assert dbias is not None
            return dbias.expand(ctx.output_shape)
        weight = (weight_int8 * weight_scale.unsqueeze(1)).to(dx.dtype)
        out: Tensor = dx @ weight.t()
        return out if dbias is None else out + dbias


def w8a8_product(x: Tensor, *others: Tensor | None) -> Tensor:
    """``x`` rounded to int8, times the weight.

    Args:
        x: float16, bfloat16 or float32 ``[..., K]``.
        others: weight_int8 int8 ``[N, K]``, weight_scale float32 ``[N]``, bias ``[N]`` or None,
            azp_adj int32 ``[N]`` or None, input_scale float32 ``[]`` and input_azp int32 ``[]`` of
            static activations or None.

    Returns:
        ``[..., N]`` in the dtype of ``x``.
    """
    product: Callable[..., Tensor] = _product
    if torch.is_grad_enabled() and x.requires_grad:
        product = _StraightThrough.apply
    if not torch.compiler.is_compiling() and transforms_active():
        product = _Transformable.apply
    return product(x, *others)
