"""``mixed_gemm.Conv2d``: ``nn.Conv2d`` with its filters in 4 or 8 bits.

A subclass of ``nn.Conv2d``, so code that looks for convolutions finds it. As in ``Linear``, there
is no ``weight`` to train: the property is an empty tensor that only tells dtype and device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .. import ops
from ..ops.conv_problem import (
    ConvGeometry,
    IntOrPair,
    Pair,
    check_block_size,
    conv_packed_shape,
    is_channels_last,
    num_blocks,
)
from ..ops.dense import dense_filter
from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_not_freed, check_storage
from ..ops.problem import check_bits
from ..weights.rounding_conv import quantize_conv_weight
from ..weights.scheme import QuantScheme
from ..weights.state import refuse_non_finite, refuse_out_of_range
from ..weights.state_conv import FLOATS, QuantizedConv
from .base import CheckedState

DEFAULT_BLOCK = 128
# What a convolution is beside its weights; nn.Conv2d's constructor works them out.
_SETTINGS = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
    "padding_mode",
    "_reversed_padding_repeated_twice",
)


def default_block_size(in_channels: int) -> int:
    """128, or one block where there are no more channels than that."""
    return DEFAULT_BLOCK if in_channels > DEFAULT_BLOCK else -1


def why_not_conv2d(conv: nn.Conv2d) -> str:
    """Why a convolution cannot become a ``mixed_gemm.Conv2d``; empty when it can."""
    if conv.groups == 1:
        return ""
    kind = "depthwise" if conv.groups == conv.in_channels else "grouped"
    return (
        f"is a {kind} convolution (groups={conv.groups}): its K = Ci / groups * Kh * Kw is too "
        "short to gain anything, so only groups=1 is supported"
    )


class Conv2d(CheckedState, nn.Conv2d):
    """conv2d(x, w) + bias, w = q * scale (+ offset) stored in 4 or 8 bits.

    The constructor makes a module that computes w = 0, to be filled by ``load_state_dict``; use
    :meth:`from_float`, :meth:`from_quantized` or ``mixed_gemm.quantize_`` to get a useful one.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, bias, padding_mode: as in
            ``nn.Conv2d``; ``groups`` must be 1.
        bits: 4 or 8.
        block_size: input channels that share a scale with all taps of a filter: -1 (all), a
            multiple of 16, or None: 128, or -1 where there are no more channels.
        offsets: whether w = q * scale + offset.
        device, dtype: of scales, offsets and bias, and so of the images.

    Buffers:
        weight_packed: uint8, from ``pack_conv_weights``; no dtype cast touches it.
        scales: ``[ceil(Ci / block_size), Co]``. offsets: the same or None.

    Raises:
        ValueError: ``groups`` is not 1, or ``bits`` or ``block_size`` is out of range.
    """

    weight_packed: Tensor
    scales: Tensor
    offsets: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair = 1,
        padding: str | IntOrPair = 0,
        dilation: IntOrPair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        bits: int = 4,
        block_size: int | None = None,
        offsets: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Module.__init__(self)  # nn.Conv2d's would allocate the dense weight
        template = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,  # type: ignore[arg-type]
            stride,  # type: ignore[arg-type]
            padding,  # type: ignore[arg-type]
            dilation,  # type: ignore[arg-type]
            groups,
            bias=False,
            padding_mode=padding_mode,  # type: ignore[arg-type]
            device="meta",
        )
        if reason := why_not_conv2d(template):
            raise ValueError(f"mixed_gemm.Conv2d {reason}")
        for name in _SETTINGS:
            setattr(self, name, getattr(template, name))
        self.bits = bits
        self.block_size = default_block_size(in_channels) if block_size is None else block_size
        check_bits("mixed_gemm.Conv2d", bits)
        check_block_size("mixed_gemm.Conv2d", self.block_size, in_channels)
        self._geometry, self._pads_itself = self._work_out_padding()

        options: dict[str, Any] = {"device": device, "dtype": dtype or torch.get_default_dtype()}
        blocks = (num_blocks(in_channels, self.block_size), out_channels)
        shape = conv_packed_shape(out_channels, in_channels, self._kernel(), bits)
        packed = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.register_buffer("weight_packed", packed)
        self.register_buffer("scales", torch.zeros(blocks, **options))
        self.register_buffer("offsets", torch.zeros(blocks, **options) if offsets else None)
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(out_channels, **options)) if bias else None
        )

    def _kernel(self) -> Pair:
        return self.kernel_size[0], self.kernel_size[1]

    def _work_out_padding(self) -> tuple[ConvGeometry, bool]:
        """The geometry for the op, and whether ``forward`` pads the image first: for other values
        than zeros, and where padding="same" is not the same on both sides."""
        left, right, top, bottom = self._reversed_padding_repeated_twice
        before = self.padding_mode != "zeros" or (left, top) != (right, bottom)
        padding = (0, 0) if before else (top, left)
        kernel, stride, dilation = (
            (x[0], x[1]) for x in (self.kernel_size, self.stride, self.dilation)
        )
        return ConvGeometry(kernel, stride, padding, dilation), before

    @property
    def scheme(self) -> QuantScheme:
        """Bits, block size as group_size, and "add" where there are offsets."""
        return QuantScheme(self.bits, self.block_size, "none" if self.offsets is None else "add")

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """An empty tensor with the dtype and device of the images this module takes. The values are
        in ``weight_packed``; :meth:`dequantize`."""
        return self.scales.new_empty(0)

    def forward(self, input: Tensor) -> Tensor:
        """``[N, Ci, H, W]`` or ``[Ci, H, W]`` -> ``[N, Co, Ho, Wo]`` or ``[Co, Ho, Wo]``, in the
        dtype of the scales (or of autocast) and the memory format of ``input``."""
        images = input.unsqueeze(0) if input.dim() == 3 else input
        if self._pads_itself:
            check_not_freed("mixed_gemm.Conv2d", input=input)
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            padded = nn.functional.pad(images, self._reversed_padding_repeated_twice, mode)
            # Some modes return NCHW whatever comes in; the output follows the input.
            keep = torch.channels_last if is_channels_last(images) else torch.contiguous_format
            images = padded.contiguous(memory_format=keep)
        out = ops.unchecked_qconv2d(
            images,
            self.weight_packed,
            self.scales,
            self.offsets,
            self.bias,
            bits=self.bits,
            block_size=self.block_size,
            geometry=self._geometry,
        )
        return out.squeeze(0) if input.dim() == 3 else out

    @classmethod
    def from_float(
        cls,
        conv: nn.Conv2d,
        bits: int = 4,
        block_size: int | None = None,
        symmetric: bool = True,
    ) -> Conv2d:
        """Quantize an ``nn.Conv2d`` by rounding to nearest.

        Args:
            conv: with groups=1 and a float16, bfloat16 or float32 weight on any device, meta
                included. Its bias is shared with the result, not copied.
            bits: 4 or 8.
            block_size: -1, a multiple of 16 that is at most in_channels, or None: 128, or -1 where
                there are no more channels.
            symmetric: no offsets.

        Raises:
            ValueError: a scalar is out of range, ``conv`` has groups, or a weight is NaN or Inf.
            TypeError: the weight has another dtype.
        """
        if reason := why_not_conv2d(conv):
            raise ValueError(
                f"mixed_gemm.Conv2d.from_float: {conv} {reason}. Hint: leave it dense (quantize_ "
                "does)"
            )
        if block_size is None:
            block_size = default_block_size(conv.in_channels)
        q, scales, offsets = quantize_conv_weight(conv.weight, bits, block_size, symmetric)
        result = cls.from_quantized(
            q,
            scales,
            offsets,
            bits=bits,
            block_size=block_size,
            stride=conv.stride,
            padding=conv.padding,
            dilation=conv.dilation,
            padding_mode=conv.padding_mode,
        )
        result.bias = conv.bias
        return result.train(conv.training)

    @classmethod
    def from_quantized(
        cls,
        q: Tensor,
        scales: Tensor,
        offsets: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        bits: int,
        block_size: int = -1,
        stride: IntOrPair = 1,
        padding: str | IntOrPair = 0,
        dilation: IntOrPair = 1,
        padding_mode: str = "zeros",
    ) -> Conv2d:
        """Take a filter that is quantized already.

        Args:
            q: int8 ``[Co, Ci, Kh, Kw]``, values in the range of ``bits``.
            scales: ``[ceil(Ci / block_size), Co]``; its dtype is the module's.
            offsets: the same or None. bias: ``[Co]`` or None.

        Raises:
            ValueError: a scalar is out of range, or a tensor does not fit the rest, has lost its
                storage or holds a value it must not.
            TypeError: ``q`` is not int8.
        """
        where = "mixed_gemm.Conv2d.from_quantized"
        check_bits(where, bits)
        if q.dim() != 4 or q.dtype != torch.int8:
            error = ArgumentTypeError if q.dtype != torch.int8 else ArgumentValueError
            raise error(f"{where}: q must be int8 [Co, Ci, Kh, Kw], got {q.dtype} {tuple(q.shape)}")
        floats = {"scales": scales, "offsets": offsets, "bias": bias}
        check_storage(where, q=q, **floats)
        refuse_out_of_range(q, bits, where)
        out_c, in_c, kernel_h, kernel_w = q.shape
        module = cls(
            in_c,
            out_c,
            (kernel_h, kernel_w),
            stride,
            padding,
            dilation,
            bias=bias is not None,
            padding_mode=padding_mode,
            bits=bits,
            block_size=block_size,
            offsets=offsets is not None,
            device="meta",
            dtype=scales.dtype,
        )
        if problems := module._layer().tensor_problems(floats):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(floats, where, FLOATS)
        module.weight_packed = ops.pack_conv_weights(q, bits)
        module.scales = scales.detach().contiguous()
        if offsets is not None:
            module.offsets = offsets.detach().contiguous()
        if bias is not None:
            module.bias = bias if isinstance(bias, nn.Parameter) else nn.Parameter(bias.detach())
        return module

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[Co, Ci, Kh, Kw]`` filter in ``dtype`` (of the scales when None)."""
        check_storage(
            "mixed_gemm.Conv2d",
            weight_packed=self.weight_packed,
            scales=self.scales,
            offsets=self.offsets,
        )
        return dense_filter(
            self.weight_packed,
            self.scales,
            self.offsets,
            bits=self.bits,
            block_size=self.block_size,
            in_c=self.in_channels,
            kernel_size=self.kernel_size,
            dtype=self.scales.dtype if dtype is None else dtype,
        )

    def to_float(self) -> nn.Conv2d:
        """A dense ``nn.Conv2d`` with the dequantized filter. The bias is shared."""
        settings: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        }
        conv = nn.Conv2d(self.in_channels, self.out_channels, bias=False, device="meta", **settings)
        conv.weight = nn.Parameter(self.dequantize())
        conv.bias = self.bias
        return conv.train(self.training)

    def reset_parameters(self) -> None:
        """Refused: integers cannot be drawn at random into something useful."""
        raise RuntimeError(
            "mixed_gemm.Conv2d: a quantized weight cannot be re-initialised. Hint: initialise an "
            "nn.Conv2d, then Conv2d.from_float"
        )

    def extra_repr(self) -> str:
        offsets = "symmetric" if self.offsets is None else "offsets=True"
        settings = super().extra_repr()  # type: ignore[no-untyped-call]
        return (
            f"{settings}, bits={self.bits}, block_size={self.block_size}, {offsets}, "
            f"dtype={str(self.scales.dtype).removeprefix('torch.')}"
        )

    # --- state: buffers, plus a tag that says how to read weight_packed ------------------------

    def _layer(self) -> QuantizedConv:
        return QuantizedConv(
            self.in_channels, self.out_channels, self.scheme, kernel_size=self._kernel()
        )

    def _refuse_values(self, tensors: dict[str, Any], prefix: str) -> None:
        floats = {role: tensors.get(role) for role in FLOATS}
        refuse_non_finite(floats, f"{prefix}mixed_gemm.Conv2d", FLOATS)
