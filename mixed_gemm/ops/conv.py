"""The convolution with packed weights, typed.

N is the number of images, Ci and Co of input and output channels, B = ceil(Ci / block_size) (1 for
-1). Where two numbers are taken (kernel_size, stride, padding, dilation) an int stands for both.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved, through_op
from .conv_layout import dense_filter
from .conv_problem import ConvGeometry, IntOrPair, geometry_of, new_images
from .errors import translates_errors
from .op import Op, for_tests
from .problem import refuse_non_numbers
from .reasons import ADAPTER, FORCED
from .sharding import Rows, Sharding, channel_blocks, gathered
from .vmap import Batching

__all__ = ["qconv2d"]


def qconv2d(
    input: Tensor,
    weight_packed: Tensor,
    scales: Tensor,
    offsets: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    bits: int,
    block_size: int = -1,
    kernel_size: IntOrPair,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
    activation: str = "identity",
) -> Tensor:
    """activation(conv2d(input, w) + bias) with w = q * scale + offset stored in 4 or 8 bits.

    Sums are fp32 and rounded once, to the dtype of ``input``. Pixels outside the image are 0.
    Differentiable in ``input`` and ``bias``. On the CPU an NCHW input is reordered once per call,
    and a pointwise convolution of a channels-last image is one GEMM.

    Args:
        input: float16, bfloat16 or float32 ``[N, Ci, H, W]`` with fewer than 2^31 elements; NCHW or
            channels-last, any strides; no images are fine.
        weight_packed: uint8, from :func:`pack_conv_weights`.
        scales: ``[B, Co]`` in the dtype of ``input``, shared over the taps of a filter. A NaN or
            Inf makes NaN or Inf of its output channel, and of that alone.
        offsets: ``[B, Co]`` in the dtype of ``input``, or None: 0.
        bias: ``[Co]`` in the dtype of ``input``, or None.
        bits: 4 or 8.
        block_size: channels that share a scale: -1 (all) or a multiple of 16 that is at most Ci;
            the last block may be ragged.
        kernel_size, stride, padding, dilation: as in ``torch.nn.functional.conv2d``.
        activation: identity, relu, relu6, gelu, gelu_tanh or silu.

    Returns:
        ``[N, Co, Ho, Wo]`` in the dtype and the memory format of ``input``.

    Raises:
        ValueError: a scalar is out of range; a tensor's shape, device or storage does not fit the
            rest; the kernel is larger than the padded image; or input or output have 2^31 elements
            or more.
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError: this GPU has no kernel for it.
        torch.OutOfMemoryError: there is no room for the result or the workspace.
        RuntimeError: a quantized weight requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    op = "mixed_gemm::qconv2d"
    geometry = geometry_of(op, kernel_size, stride, padding, dilation)
    refuse_non_numbers(op, bits=bits, block_size=block_size)
    geometry.check(op)
    return unchecked_qconv2d(
        input,
        weight_packed,
        scales,
        offsets,
        bias,
        geometry,
        {"bits": bits, "block_size": block_size, "activation": activation},
    )


@translates_errors("qconv2d")
def unchecked_qconv2d(
    input: Tensor,
    weight_packed: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    bias: Tensor | None,
    geometry: ConvGeometry,
    options: dict[str, Any],
) -> Tensor:
    """:func:`qconv2d` for ``Conv2d``, which checked its scalars when it was made.

    Args:
        options: bits, block_size and activation.
    """
    _library.require()
    out: Tensor = torch.ops.mixed_gemm.qconv2d(
        input,
        weight_packed,
        scales,
        offsets,
        bias,
        kernel_size=geometry.kernel_size,
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
        **options,
    )
    return out


def _made(
    input: Tensor,
    scales: Tensor,
    kernel_size: IntOrPair,
    stride: IntOrPair,
    padding: IntOrPair,
    dilation: IntOrPair,
    **others: Any,
) -> Tensor:
    geometry = geometry_of("mixed_gemm::qconv2d", kernel_size, stride, padding, dilation)
    return new_images(input, scales.shape[1], geometry, input.dtype)


def _backward(saved: Saved, grad: Tensor) -> Tensor:
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
    grad, weight = gathered(grad), gathered(weight)
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


def merge_images(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    """A batch of images is more images."""
    images = given.pop("input")
    out = op(images.flatten(0, 1), **given)
    return out.reshape(*images.shape[:2], *out.shape[1:])


def _flops(out: torch.Size, *, input: Any, kernel_size: Any, **given: Any) -> int:
    """2 * N * Ho * Wo * Co * Ci * Kh * Kw."""
    return int(2 * math.prod(out) * input[1] * math.prod(kernel_size))


OPS = (
    Op(
        "qconv2d",
        "activation(conv2d(input, w) + bias), w packed in 4 or 8 bits",
        fake=_made,
        derivatives=Derivatives(
            ADAPTER,
            Rule("input", "bias", through_op("input", "bias"), _backward, channel=-3),
        ),
        autocast=True,
        vmap=Batching(("input",), ("bias",), merge_images),
        flops=_flops,
        sharding=Sharding(
            (
                Rows("images", "input", whole=3),
                channel_blocks({"scales": 1, "weight_packed": 0, "offsets": 1, "bias": 0}, 1),
            )
        ),
    ),
    for_tests("_qconv2d_config", "the same with a kernel configuration by name", FORCED),
    for_tests("_qconv2d_configs", "the names of its configurations, a line each", FORCED),
)
