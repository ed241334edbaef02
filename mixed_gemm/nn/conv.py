"""``mixed_gemm.Conv2d``: ``nn.Conv2d`` whose filters are a ``QuantizedTensor``.

A subclass of ``nn.Conv2d``, so code that looks for convolutions finds it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.conv import unchecked_qconv2d
from ..ops.conv_problem import IntOrPair, check_block_size
from ..ops.problem import check_bits
from ..weights.conv import ConvWeight
from ..weights.modules import holds
from ..weights.scheme import Scheme
from ..weights.tensor import narrows
from ..weights.values import refuse_non_finite
from .conv_base import QuantizedConv2d, why_not_conv2d
from .tracing import is_traced_through, recorded

DEFAULT_BLOCK = 128


def default_block_size(in_channels: int) -> int:
    """The block size where none is asked for: 128, or one block for at most that many channels."""
    return DEFAULT_BLOCK if in_channels > DEFAULT_BLOCK else -1


@holds("conv2d")
class Conv2d(QuantizedConv2d):
    """conv2d(x, w) + bias, w = q * scale (+ offset) stored in 4 or 8 bits.

    The constructor makes a module that computes w = 0, to be filled by ``load_state_dict``; use
    :meth:`from_float`, :meth:`from_quantized` or ``mixed_gemm.quantize_`` to get a useful one.
    Without ``bits``, ``block_size`` and ``offsets`` it makes a dense ``nn.Conv2d``, as code expects
    that calls ``type(layer)(in_channels, out_channels, kernel_size)``.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, bias, padding_mode: as in
            ``nn.Conv2d``.
        groups: 1.
        bits: 4 or 8.
        block_size: input channels that share a scale with all taps of a filter: -1 (all), a
            multiple of 16, or None: 128, or -1 where there are no more channels.
        offsets: whether w = q * scale + offset.
        device, dtype: of scales, offsets and bias, and so of the images.

    Attributes:
        weight: a frozen parameter, a :class:`mixed_gemm.QuantizedTensor`. Its parts (weight_packed,
            scales, offsets) are plain tensors in a state_dict, beside a tag with the layout
            version.

    Raises:
        ValueError: ``groups`` is not 1, or ``bits`` or ``block_size`` is out of range.
    """

    title: ClassVar[str] = "mixed_gemm.Conv2d"
    dense_class: ClassVar[type[nn.Module]] = nn.Conv2d
    weight: ConvWeight

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
        self._set_geometry(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode
        )
        if block_size is None:
            block_size = default_block_size(in_channels)
        check_bits(self.title, bits)
        check_block_size(self.title, block_size, in_channels)

        dtype = dtype or torch.get_default_dtype()
        scheme = Scheme.weight_only(bits, block_size, "add" if offsets else "none")
        shape = (out_channels, in_channels, *self._kernel())
        self.set_weight(ConvWeight.empty(shape, scheme, device=device, dtype=dtype))
        self.make_bias(out_channels if bias else None, dtype, device)

    @property
    def block_size(self) -> int:
        """Input channels that share a scale; -1 is all of them."""
        return self.weight.scheme.group_size

    @property
    def weight_packed(self) -> Tensor:
        """uint8, from ``pack_conv_weights``."""
        return self.weight.weight_packed

    @property
    def scales(self) -> Tensor:
        """``[ceil(Ci / block_size), Co]``."""
        return self.weight.scales

    @property
    def offsets(self) -> Tensor | None:
        """``[ceil(Ci / block_size), Co]`` or None."""
        return self.weight.offsets

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """:meth:`forward` and an activation in one kernel.

        Args:
            input: ``[N, Ci, H, W]`` or ``[Ci, H, W]``. activation: of ``mixed_gemm.qconv2d``.

        Raises:
            What ``mixed_gemm.qconv2d`` raises.
        """
        weight, bias = self._factors()
        if narrows(input, weight.dtype):
            narrow = input.to(weight.dtype)
            return self.activated(narrow, activation).to(torch.float32)
        scheme = weight.scheme
        out = unchecked_qconv2d(
            self._images(input), weight.weight_packed, weight.scales, weight.offsets, bias,
            self._geometry,
            {**scheme.conv_options, "activation": activation},
        )  # fmt: skip
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
        scheme = Scheme.weight_only(bits, block_size, "none" if symmetric else "add")
        check_block_size("mixed_gemm.Conv2d.from_float", block_size, conv.in_channels)
        return cls.around(ConvWeight.from_float(conv.weight, scheme), conv)

    def _applied(self) -> Any:
        return convolved

    @classmethod
    def _options_of(cls, weight: ConvWeight) -> dict[str, Any]:
        return {**weight.scheme.conv_options, "offsets": weight.offsets is not None}

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
        **settings: Any,
    ) -> Conv2d:
        """Take a filter that is quantized already.

        Args:
            q: int8 ``[Co, Ci, Kh, Kw]``, values in the range of ``bits``.
            scales: ``[ceil(Ci / block_size), Co]``; its dtype is the module's.
            offsets: the same or None. bias: ``[Co]`` or None.
            bits: 4 or 8.
            block_size: input channels that share a scale: -1 (all) or a multiple of 16.
            settings: ``stride``, ``padding``, ``dilation`` and ``padding_mode`` as in
                ``nn.Conv2d``.

        Raises:
            ValueError, TypeError: as ``ConvWeight.from_quantized``; or the bias does not fit, or
                holds NaN or Inf.
        """
        where = f"{cls.title}.from_quantized"
        weight = ConvWeight.from_quantized(
            q, scales, offsets, bits=bits, block_size=block_size, where=where
        )
        refuse_non_finite({"bias": bias}, where, ("bias",))
        return cls.from_weight(weight, bias, **settings)

    def extra_repr(self) -> str:
        offsets = "symmetric" if self.offsets is None else "offsets=True"
        settings = super().extra_repr()  # type: ignore[no-untyped-call]
        return (
            f"{settings}, bits={self.bits}, block_size={self.block_size}, {offsets}, "
            f"dtype={str(self.weight.dtype).removeprefix('torch.')}"
        )


def convolved(input: Tensor, *rest: Any) -> Tensor:
    """Run a :class:`Conv2d` as one node of a graph of torch.fx.

    Args:
        input, rest: the arguments of ``Conv2d.applied``.
    """
    if is_traced_through(input):
        return recorded(convolved, input, *rest)  # type: ignore[no-any-return]
    return Conv2d.applied(input, *rest)
