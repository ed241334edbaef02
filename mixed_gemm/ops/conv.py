"""The convolutions, typed.

N is the number of images, Ci and Co of input and output channels, B = ceil(Ci / block_size) (1 for
-1). Where two numbers are taken (kernel_size, stride, padding, dilation) an int stands for both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved, through_op
from .conv_problem import ConvGeometry, IntOrPair, check_int8_scalars, pair
from .dense import dense_filter
from .errors import UnsupportedError, translates_errors
from .op import Op
from .problem import refuse_non_numbers
from .reasons import ADAPTER, DETACH, FORCED, INTEGERS

__all__ = ["pack_conv_weights", "qconv2d", "qconv2d_int8"]


@translates_errors("pack_conv_weights")
def pack_conv_weights(q: Tensor, bits: int, *, check: bool = False) -> Tensor:
    """Pack the integers of a filter into the layout every kernel reads.

    It is :func:`mixed_gemm.pack_weights` of a ``[Co, K]`` matrix: K runs over the taps (height
    slowest) with the channels innermost, each tap padded to 8, 16, 32 or a multiple of 64 channels
    (csrc/layout/conv_layout.h). A 1x1 filter packs as its ``[Co, Ci]`` matrix does.

    Args:
        q: int8 ``[Co, Ci, Kh, Kw]`` as ``nn.Conv2d.weight``; any strides.
        bits: 4 or 8. For 4, values must be in -8..7: of others a GPU would keep the low 4 bits.
        check: whether to look for such values on a GPU too, which copies ``q`` to the host and
            waits for it. On the CPU they are always refused.

    Returns:
        uint8 ``[round_up(Co, 64), round_up(K, 64) * bits / 8]`` on the device of ``q``.

    Raises:
        ValueError: ``bits`` is not 4 or 8, ``q`` is not 4-D or empty, or a value is out of range;
            the text has the first such value and its index.
        TypeError: ``q`` is not an int8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    op = "mixed_gemm::pack_conv_weights"
    refuse_non_numbers(op, bits=bits)
    if isinstance(q, Tensor) and q.layout != torch.strided:  # no backend answers for this one
        raise UnsupportedError(f"{op}: q must be strided, got {q.layout}. Hint: q.to_dense()")
    packed: Tensor = torch.ops.mixed_gemm.pack_conv_weights(q, bits, check=check)
    return packed


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
    geometry = ConvGeometry(
        pair(op, "kernel_size", kernel_size),
        pair(op, "stride", stride),
        pair(op, "padding", padding),
        pair(op, "dilation", dilation),
    )
    refuse_non_numbers(op, bits=bits, block_size=block_size)
    geometry.check(op)
    return unchecked_qconv2d(
        input,
        weight_packed,
        scales,
        offsets,
        bias,
        bits=bits,
        block_size=block_size,
        geometry=geometry,
        activation=activation,
    )


@translates_errors("qconv2d")
def unchecked_qconv2d(
    input: Tensor,
    weight_packed: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    bias: Tensor | None,
    *,
    bits: int,
    block_size: int,
    geometry: ConvGeometry,
    activation: str = "identity",
) -> Tensor:
    """:func:`qconv2d` for ``Conv2d``, which checked its scalars when it was made."""
    _library.require()
    out: Tensor = torch.ops.mixed_gemm.qconv2d(
        input,
        weight_packed,
        scales,
        offsets,
        bias,
        bits=bits,
        block_size=block_size,
        kernel_size=geometry.kernel_size,
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
        activation=activation,
    )
    return out


@translates_errors("qconv2d_int8")
def qconv2d_int8(
    input: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None = None,
    *,
    input_scale: float,
    input_zero_point: int,
    output_scale: float,
    output_zero_point: int,
    clamp_min: int = -128,
    clamp_max: int = 127,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
) -> Tensor:
    """An int8 convolution with an int8 result: real input is input_scale * (input -
    input_zero_point), the real weight weight_scale * weight, the real output output_scale *
    (output - output_zero_point).

    With sums exact in integers (``reference_conv.qconv2d_int8`` is equal bit for bit)::

        sum = sum of (input - input_zero_point) * weight      pixels outside the image count 0
        m   = float32(input_scale * weight_scale / output_scale)          products in float64
        t   = float32(bias / output_scale + output_zero_point)
        out = round_half_even(clamp(float32(sum) * m + t))    product and sum rounded to float32

    which is the usual requantization, but without truncating the fused bias to an integer.

    Args:
        input: int8 ``[N, Ci, H, W]`` with fewer than 2^31 elements; any strides.
        weight: int8 ``[Co, Ci, Kh, Kw]``, not packed, Ci * Kh * Kw at most 65793. Kept in
            ``torch.channels_last`` it is read as it is, else reordered at every call.
        weight_scale: float32 ``[Co]``, or one element for all; not looked at: where it is NaN,
            the output is whatever integer the conversion gives.
        bias: float32 ``[Co]`` in real units, or None.
        input_scale, output_scale: positive numbers.
        input_zero_point, output_zero_point: in -128..127.
        clamp_min, clamp_max: in -128..127: a fused relu is clamp_min=output_zero_point.
        stride, padding, dilation: as in ``torch.nn.functional.conv2d``.

    Returns:
        int8 ``[N, Co, Ho, Wo]`` in the memory format of ``input``.

    Raises:
        ValueError: a scalar is out of range, or a tensor does not fit the rest.
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError, torch.OutOfMemoryError: as in :func:`qconv2d`.
        RuntimeError: ``weight_scale`` or ``bias`` requires grad.
        ImportError: the library did not load.
    """
    _library.require()
    op = "mixed_gemm::qconv2d_int8"
    check_int8_scalars(
        op,
        {"input_scale": input_scale, "output_scale": output_scale},
        {
            "input_zero_point": input_zero_point,
            "output_zero_point": output_zero_point,
            "clamp_min": clamp_min,
            "clamp_max": clamp_max,
        },
    )
    geometry = ConvGeometry(
        (1, 1),  # the kernel is that of weight
        pair(op, "stride", stride),
        pair(op, "padding", padding),
        pair(op, "dilation", dilation),
    )
    geometry.check(op)
    out: Tensor = torch.ops.mixed_gemm.qconv2d_int8(
        input,
        weight,
        weight_scale,
        bias,
        input_scale=input_scale,
        input_zero_point=input_zero_point,
        output_scale=output_scale,
        output_zero_point=output_zero_point,
        clamp_min=clamp_min,
        clamp_max=clamp_max,
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
    )
    return out


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


OPS = (
    Op(
        "pack_conv_weights",
        "the integers [Co, Ci, Kh, Kw] of a filter in the packed layout",
        derivatives=Derivatives(INTEGERS),
    ),
    Op(
        "qconv2d",
        "activation(conv2d(input, w) + bias), w packed in 4 or 8 bits",
        derivatives=Derivatives(
            ADAPTER,
            Rule("input", "bias", through_op("input", "bias"), _backward, channel=-3),
        ),
    ),
    Op(
        "qconv2d_int8",
        "an int8 convolution with an int8 result",
        derivatives=Derivatives(
            f"rounding to int8 has no gradient. {DETACH}, or qconv2d, which has one"
        ),
    ),
    *(
        Op(
            name,
            "a convolution with a kernel configuration by name, or those names",
            derivatives=Derivatives(FORCED),
        )
        for name in (
            "_qconv2d_config",
            "_qconv2d_configs",
            "_qconv2d_int8_config",
            "_qconv2d_int8_configs",
        )
    ),
)
