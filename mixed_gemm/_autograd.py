"""Gradients: of fpA_intB_gemm for ``a`` and ``bias``, by dequantize + matmul. Quantized weights,
scales, zeros and pre_scale do not train, and asking for it is an error: an op without a formula
would only warn and leave ``.grad`` None.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_FROZEN = ("b_packed", "scales", "zeros", "pre_scale")

_aten = torch.ops.aten
# activation -> f(grad of the output, pre-activation) -> grad of the pre-activation
_ACTIVATION_BACKWARD = {
    "relu": lambda grad, x: _aten.threshold_backward(grad, x, 0),
    "relu6": lambda grad, x: _aten.hardtanh_backward(grad, x, 0, 6),
    "gelu": lambda grad, x: _aten.gelu_backward(grad, x),
    "gelu_tanh": lambda grad, x: _aten.gelu_backward(grad, x, approximate="tanh"),
    "silu": lambda grad, x: _aten.silu_backward(grad, x),
}


def _refuse_frozen(op: str, names: list[str], needs_grad: tuple[bool, ...]) -> None:
    for name, needs in zip(names, needs_grad, strict=False):
        if needs and name in _FROZEN:
            raise RuntimeError(
                f"mixed_gemm::{op}: {name} requires grad, but quantized weights do not train. "
                f"Hint: {name}.detach(), and train an adapter (LoRA) or the bias instead"
            )


def _argument_names(op: str) -> list[str]:
    return [x.name for x in getattr(torch.ops.mixed_gemm, op).default._schema.arguments]


def _gemm_setup(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor
) -> None:
    _refuse_frozen("fpA_intB_gemm", _argument_names("fpA_intB_gemm"), ctx.needs_input_grad)
    a, b_packed, scales, zeros, bias, pre_scale = inputs
    ctx.scheme = {x: keyword_only_inputs[x] for x in ("bits", "group_size", "zero_mode")}
    ctx.activation = keyword_only_inputs["activation"]
    ctx.k = a.shape[-1]
    if ctx.activation == "identity":  # the pre-activation is not needed: keep no activations alive
        a = bias = None
    ctx.save_for_backward(a, b_packed, scales, zeros, bias, pre_scale)


def _gemm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b_packed, scales, zeros, bias, pre_scale = ctx.saved_tensors
    if ctx.activation != "identity":
        pre = torch.ops.mixed_gemm.fpA_intB_gemm(
            a, b_packed, scales, zeros, bias, pre_scale, **ctx.scheme
        )
        grad = _ACTIVATION_BACKWARD[ctx.activation](grad, pre)
    n = scales.shape[1]
    grad_a = grad_bias = None
    if ctx.needs_input_grad[0]:
        weight = torch.ops.mixed_gemm.dequantize_weights(
            b_packed, scales, zeros, **ctx.scheme, n=n, k=ctx.k, dtype=grad.dtype
        )
        grad_a = grad @ weight
        if pre_scale is not None:
            grad_a = grad_a * pre_scale
    if any(ctx.needs_input_grad[4:5]):  # the dispatcher drops trailing arguments that are None
        grad_bias = grad.sum_to_size(n)
    return grad_a, None, None, None, grad_bias, None


def _scaled_backward(position: int, count: int) -> Any:
    """Of a scaled GEMM whose ``bias`` is at ``position``: the operands are integers, so only the
    bias has a gradient."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * count
        if ctx.needs_input_grad[position]:
            grads[position] = grad.sum_to_size(grad.shape[-1])
        return tuple(grads)

    return backward


def _scaled_setup(op: str) -> Any:
    def setup(
        ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor
    ) -> None:
        for name, needs in zip(_argument_names(op), ctx.needs_input_grad, strict=False):
            if needs and name != "bias":
                raise RuntimeError(
                    f"mixed_gemm::{op}: {name} requires grad, but scales do not train. "
                    f"Hint: {name}.detach()"
                )

    return setup


_ROUNDING = (
    "rounding to int8 has no gradient. Hint: .detach(), or mixed_gemm.LinearW8A8, which trains "
    "straight through it"
)


def _refuse_gradient(op: str, why: str, trainable: tuple[str, ...]) -> None:
    """Register a formula that only refuses, at the forward call."""

    def setup(
        ctx: Any,
        inputs: tuple[Any, ...],
        output: Tensor,
        keyword_only_inputs: dict[str, Any] | None = None,
    ) -> None:
        names = _argument_names(op)
        _refuse_frozen(op, names, ctx.needs_input_grad)
        for name, needs in zip(names, ctx.needs_input_grad, strict=False):
            if needs and name in trainable:
                raise RuntimeError(f"mixed_gemm::{op}: {name} requires grad, but {why}")

    def backward(ctx: Any, grad: Tensor) -> None:
        raise RuntimeError(f"mixed_gemm::{op} has no gradient: {why}")

    torch.library.register_autograd(f"mixed_gemm::{op}", backward, setup_context=setup)


def register() -> None:
    torch.library.register_autograd(
        "mixed_gemm::fpA_intB_gemm", _gemm_backward, setup_context=_gemm_setup
    )
    _refuse_gradient("dequantize_weights", "quantized weights do not train", ())
    _refuse_gradient(
        "fpA_intB_gemm_config",
        "a forced configuration is for tests and benchmarks. Hint: fpA_intB_gemm has a gradient",
        ("a", "bias"),
    )
    for op in ("scaled_mm", "scaled_mm_azp"):
        names = _argument_names(op)
        count = len(names) - 1  # without out_dtype, which is keyword-only
        torch.library.register_autograd(
            f"mixed_gemm::{op}",
            _scaled_backward(names.index("bias"), count),
            setup_context=_scaled_setup(op),
        )
    _refuse_gradient("quantize_per_token", _ROUNDING, ("a",))
    _refuse_gradient("quantize_per_tensor", _ROUNDING, ("a", "scale"))
