"""What trains, and how: one row for every op that takes tensors.

Activations and biases train; packed weights and their scales do not, and asking for that is an
error. ``awq_dequantize`` is a weight by itself, and linear in its scales, so these train.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .autograd import Row, Rule, Saved
from .dense import dense_blocks, dense_filter


def _through_op(x: str, bias: str = "") -> Callable[[Saved, Tensor, Tensor | None], Tensor]:
    """Of an op that is its own forward derivative: it multiplies tangents as it does ``x``."""

    def forward(saved: Saved, dx: Tensor, dbias: Tensor | None) -> Tensor:
        return saved.linear(**{x: dx}, **({bias: dbias} if bias else {}))

    return forward


def _gemm_backward(saved: Saved, grad: Tensor) -> Tensor:
    given = saved.arguments
    weight = torch.ops.mixed_gemm.dequantize_weights(
        given["b_packed"],
        given["scales"],
        given["zeros"],
        bits=given["bits"],
        group_size=given["group_size"],
        zero_mode=given["zero_mode"],
        n=given["scales"].shape[1],
        k=saved.x_shape[-1],
        dtype=grad.dtype,
    )
    pre_scale = given["pre_scale"]
    grad_a: Tensor = grad @ weight
    return grad_a if pre_scale is None else grad_a * pre_scale


def _conv_backward(saved: Saved, grad: Tensor) -> Tensor:
    given = saved.arguments
    weight = dense_filter(
        given["weight_packed"],
        given["scales"],
        given["offsets"],
        bits=given["bits"],
        block_size=given["block_size"],
        in_c=saved.x_shape[1],
        kernel_size=given["kernel_size"],
        dtype=grad.dtype,
    )
    shape_only = grad.new_zeros(1).expand(saved.x_shape)
    grad_input: Tensor = torch.ops.aten.convolution_backward(
        grad,
        shape_only,
        weight,
        None,
        given["stride"],
        given["padding"],
        given["dilation"],
        False,
        [0],
        1,
        (True, False, False),
    )[0]
    return grad_input


def _block_weight(saved: Saved, dtype: torch.dtype) -> Tensor:
    given = saved.arguments
    return dense_blocks(
        given["b"],
        given["scale_b"],
        given["offset_b"],
        block_size=given["block_size"],
        dtype=dtype,
    )


def _block_forward(saved: Saved, da: Tensor, dbias: Tensor | None) -> Tensor:
    """Straight through the rounding of a: the op itself would round the tangent."""
    out = da @ _block_weight(saved, da.dtype)
    return out if dbias is None else out + dbias


def _block_backward(saved: Saved, grad: Tensor) -> Tensor:
    return grad @ _block_weight(saved, grad.dtype).t()


def _awq_backward(saved: Saved, grad: Tensor) -> Tensor:
    given = saved.arguments
    weight = torch.ops.mixed_gemm.awq_dequantize(given["qweight"], given["scales"], given["qzeros"])
    grad_input: Tensor = grad @ weight.t()
    return grad_input


def _awq_scales_backward(saved: Saved, grad: Tensor) -> Tensor:
    """w = (code - zero) * scale: the sum over the rows of a group; in fp32, rounded once."""
    given = saved.arguments
    groups, n = saved.x_shape
    one = grad.new_ones(saved.x_shape, dtype=torch.float32)
    integers = torch.ops.mixed_gemm.awq_dequantize(given["qweight"], one, given["qzeros"])
    by_group: Tensor = (grad.float() * integers).reshape(groups, -1, n).sum(1)
    return by_group.to(grad.dtype)


_DETACH = "Hint: {name}.detach()"
_WEIGHTS = f"quantized weights do not train. {_DETACH}"
_ADAPTER = f"{_WEIGHTS}, and train an adapter (LoRA) or the bias instead"
_SCALES = f"scales do not train. {_DETACH}"
_FORCED = (
    "a forced configuration is for tests and benchmarks, and has no gradient. "
    f"{_DETACH}, or the op without _config"
)
_ROUNDING = (
    f"rounding to int8 has no gradient. {_DETACH}, or mixed_gemm.Linear(scheme='w8a8'), which "
    "trains straight through it"
)
_INTEGERS = f"integers do not train. {_DETACH}"

_AWQ_SCALES = (
    f"quantized weights do not train. {_DETACH}, or input @ mixed_gemm.awq_dequantize(...), which "
    "is differentiable in scales"
)

ROWS = (
    Row("fpA_intB_gemm", _ADAPTER, Rule("a", "bias", _through_op("a", "bias"), _gemm_backward)),
    Row("fpA_intB_gemm_config", _WEIGHTS, whys={"a": _FORCED, "bias": _FORCED}),
    Row("dequantize_weights", _WEIGHTS),
    Row(
        "awq_gemm",
        _WEIGHTS,
        Rule("input", "", _through_op("input"), _awq_backward),
        whys={"scales": _AWQ_SCALES},
    ),
    Row(
        "awq_dequantize",
        _WEIGHTS,
        Rule("scales", "", _through_op("scales"), _awq_scales_backward),
    ),
    Row(
        "qconv2d",
        _ADAPTER,
        Rule("input", "bias", _through_op("input", "bias"), _conv_backward, channel=-3),
    ),
    Row(
        "qconv2d_int8",
        f"rounding to int8 has no gradient. {_DETACH}, or qconv2d, which has one",
    ),
    Row("block_quant_gemm", _ADAPTER, Rule("a", "bias", _block_forward, _block_backward)),
    Row("scaled_mm", _SCALES, Rule("", "bias")),
    Row("scaled_mm_azp", _SCALES, Rule("", "bias")),
    Row("quantize_per_token", _ROUNDING),
    Row("quantize_per_tensor", _ROUNDING),
    Row("pack_weights", _INTEGERS),
    Row("unpack_weights", _INTEGERS),
    Row("pack_conv_weights", _INTEGERS),
    Row("awq_repack", _INTEGERS),
    Row("gptq_repack", _INTEGERS),
    Row("_scaled_mm_config", _FORCED),
    Row("_qconv2d_config", _FORCED),
    Row("_qconv2d_configs", _FORCED),
    Row("_qconv2d_int8_config", _FORCED),
    Row("_qconv2d_int8_configs", _FORCED),
    Row("_block_quant_gemm_config", _FORCED),
    Row("_block_quantize", _ROUNDING),
)
