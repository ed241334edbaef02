"""Gradients, autocast, vmap and FLOP formulas of conv_ops.py. As in ``_autograd``: activations and
bias train, quantized weights do not, and asking for that is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ._autograd import _ACTIVATION_BACKWARD, _argument_names, _refuse_gradient
from ._transforms import register_autocast
from .conv_scheme import channels_per_tap

_GEOMETRY = ("kernel_size", "stride", "padding", "dilation")


def dense_filter(
    weight_packed: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    *,
    bits: int,
    block_size: int,
    in_c: int,
    kernel_size: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """The filter ``[Co, Ci, Kh, Kw]`` behind packed bytes; fp32, then rounded to ``dtype``."""
    out_c, taps = scales.shape[1], math.prod(kernel_size)
    channels = channels_per_tap(in_c)
    q: Tensor = torch.ops.mixed_gemm.unpack_weights(weight_packed, bits, out_c, taps * channels)
    q = q.view(out_c, taps, channels)[..., :in_c].transpose(1, 2)

    def per_channel(x: Tensor) -> Tensor:
        block = in_c if block_size == -1 else block_size
        return x.float().repeat_interleave(block, dim=0)[:in_c].t().unsqueeze(-1)

    weight = q.float() * per_channel(scales)
    if offsets is not None:
        weight = weight + per_channel(offsets)
    return weight.to(dtype).reshape(out_c, in_c, *kernel_size)


def _refuse(op: str, ctx: Any, trainable: tuple[str, ...]) -> None:
    for name, needs in zip(_argument_names(op), ctx.needs_input_grad, strict=False):
        if needs and name not in trainable:
            raise RuntimeError(
                f"mixed_gemm::{op}: {name} requires grad, but quantized weights do not train. "
                f"Hint: {name}.detach(), and train an adapter or the bias instead"
            )


def _bias_needs_grad(ctx: Any) -> bool:
    return any(ctx.needs_input_grad[4:5])  # the dispatcher drops trailing arguments that are None


def _conv_setup(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor
) -> None:
    _refuse("qconv2d", ctx, ("input", "bias"))
    input, weight_packed, scales, offsets, bias = inputs
    ctx.options = {
        name: value for name, value in keyword_only_inputs.items() if name != "activation"
    }
    ctx.activation = keyword_only_inputs["activation"]
    ctx.input_shape = input.shape
    if ctx.activation == "identity":  # the pre-activation is not needed: keep no images alive
        input = bias = None
    ctx.save_for_backward(input, weight_packed, scales, offsets, bias)


def _conv_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    input, weight_packed, scales, offsets, bias = ctx.saved_tensors
    options = ctx.options
    if ctx.activation != "identity":
        pre = torch.ops.mixed_gemm.qconv2d(input, weight_packed, scales, offsets, bias, **options)
        grad = _ACTIVATION_BACKWARD[ctx.activation](grad, pre)
    grad_input = grad_bias = None
    if ctx.needs_input_grad[0]:
        weight = dense_filter(
            weight_packed,
            scales,
            offsets,
            bits=options["bits"],
            block_size=options["block_size"],
            in_c=ctx.input_shape[1],
            kernel_size=options["kernel_size"],
            dtype=grad.dtype,
        )
        grad_input = torch.ops.aten.convolution_backward(
            grad,
            grad.new_empty(1).expand(ctx.input_shape),  # only its shape is read
            weight,
            None,
            options["stride"],
            options["padding"],
            options["dilation"],
            False,
            [0],
            1,
            (True, False, False),
        )[0]
    if _bias_needs_grad(ctx):
        grad_bias = grad.sum((0, 2, 3))
    return grad_input, None, None, None, grad_bias


def _block_setup(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor
) -> None:
    _refuse("block_quant_gemm", ctx, ("a", "bias"))
    a, b, scale_b, offset_b, bias = inputs
    ctx.block_size = keyword_only_inputs["block_size"]
    ctx.activation = keyword_only_inputs["activation"]
    if ctx.activation == "identity":
        a = bias = None
    ctx.save_for_backward(a, b, scale_b, offset_b, bias)


def _block_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b, scale_b, offset_b, bias = ctx.saved_tensors
    if ctx.activation != "identity":
        pre = torch.ops.mixed_gemm.block_quant_gemm(
            a, b, scale_b, offset_b, bias, block_size=ctx.block_size
        )
        grad = _ACTIVATION_BACKWARD[ctx.activation](grad, pre)
    grad_a = grad_bias = None
    if ctx.needs_input_grad[0]:  # straight through the rounding of a
        k = b.shape[0]
        block = max(k, 1) if ctx.block_size == -1 else ctx.block_size
        scale, offset = (x.float().repeat_interleave(block, dim=0)[:k] for x in (scale_b, offset_b))
        grad_a = grad @ (b.float() * scale + offset).to(grad.dtype).t()
    if _bias_needs_grad(ctx):
        grad_bias = grad.sum_to_size(grad.shape[-1])
    return grad_a, None, None, None, grad_bias


def _conv_vmap(
    info: Any, in_dims: tuple[int | None, ...], *args: Any, **kwargs: Any
) -> tuple[Tensor, int]:
    """A batch over ``input`` is more images; weights are shared."""
    if any(dim is not None for dim in in_dims[1:]):
        raise NotImplementedError(
            "mixed_gemm::qconv2d: vmap runs over input only, got in_dims "
            f"{in_dims}. Hint: loop over the layers"
        )
    assert in_dims[0] is not None
    batched = args[0].movedim(in_dims[0], 0)
    out = torch.ops.mixed_gemm.qconv2d(batched.flatten(0, 1), *args[1:], **kwargs)
    return out.unflatten(0, batched.shape[:2]), 0


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


def _block_flops(
    a_shape: Sequence[int],
    b_shape: Sequence[int],
    *args: Any,
    out_shape: Sequence[int] | None = None,
    **kwargs: Any,
) -> int:
    return 2 * math.prod(a_shape) * b_shape[1]


def register() -> None:
    ops = torch.ops.mixed_gemm
    torch.library.register_autograd(
        "mixed_gemm::qconv2d", _conv_backward, setup_context=_conv_setup
    )
    torch.library.register_autograd(
        "mixed_gemm::block_quant_gemm", _block_backward, setup_context=_block_setup
    )
    _refuse_gradient(
        "qconv2d_int8",
        "rounding to int8 has no gradient. Hint: .detach(), or qconv2d, which has one",
        ("weight_scale", "bias"),
    )
    torch.library.register_vmap("mixed_gemm::qconv2d", _conv_vmap)
    for op in (ops.qconv2d, ops.block_quant_gemm):
        register_autocast(op.default)
    register_flop_formula(ops.qconv2d)(_conv_flops)
    register_flop_formula(ops.qconv2d_int8)(_conv_int8_flops)
    register_flop_formula(ops.block_quant_gemm)(_block_flops)
