"""The base of quantized convolutions: the geometry of ``nn.Conv2d`` around a quantized filter, and
the padding that no op does.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..ops.conv_problem import ConvGeometry, IntOrPair, Pair, is_channels_last
from ..ops.errors import ArgumentValueError, check_not_freed, shape_text, wrong_value
from ..weights.tensor import QuantizedTensor
from .base import QuantizedModule
from .tracing import is_traced_through, recorded, typed

Self = TypeVar("Self", bound="QuantizedConv2d")

# The attributes of a convolution beside its weights; nn.Conv2d's constructor works them out.
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


def why_not_conv2d(conv: nn.Conv2d) -> str:
    """Why a convolution cannot become a ``mixed_gemm.Conv2d``; empty when it can."""
    if conv.groups == 1:
        return ""
    kind = "depthwise" if conv.groups == conv.in_channels else "grouped"
    return (
        f"is a {kind} convolution (groups={conv.groups}): its K = Ci / groups * Kh * Kw is too "
        "short to gain anything, so only groups=1 is supported"
    )


class QuantizedConv2d(QuantizedModule, nn.Conv2d):
    """conv2d(x, w) + bias with a quantized w; a base class."""

    weight: Any

    def _set_geometry(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrPair,
        stride: IntOrPair,
        padding: str | IntOrPair,
        dilation: IntOrPair,
        groups: int,
        padding_mode: str,
    ) -> None:
        """Set the attributes that ``nn.Conv2d`` works out of its arguments, without the dense
        weight that it would allocate.

        Raises:
            ValueError: ``groups`` is not 1, or an argument is out of range.
        """
        nn.Module.__init__(self)
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
            raise ValueError(f"{self.title} {reason}")
        for name in _SETTINGS:
            setattr(self, name, getattr(template, name))
        self._geometry, self._pads_itself = self._work_out_padding()

    def _kernel(self) -> Pair:
        return self.kernel_size[0], self.kernel_size[1]

    def _work_out_padding(self) -> tuple[ConvGeometry, bool]:
        """Set the geometry for the op, and whether ``forward`` pads the image first: it does where
        the padding is other values than zeros, and where padding="same" differs between two
        sides."""
        left, right, top, bottom = self._reversed_padding_repeated_twice
        before = self.padding_mode != "zeros" or (left, top) != (right, bottom)
        padding = (0, 0) if before else (top, left)
        kernel, stride, dilation = (
            (x[0], x[1]) for x in (self.kernel_size, self.stride, self.dilation)
        )
        return ConvGeometry(kernel, stride, padding, dilation), before

    def _images(self, input: Tensor) -> Tensor:
        """Return ``input`` as ``[N, Ci, H, W]``, padded where the op does not pad. Another Ci is
        refused here: the op knows it up to the padding of a packed filter."""
        images = input.unsqueeze(0) if input.dim() == 3 else input
        if images.dim() == 4 and images.shape[1] != self.in_channels:
            expected = f"be [N, Ci={self.in_channels}, H, W]"
            wrong_value(self.title, "input", expected, shape_text(input.shape))
        if not self._pads_itself:
            return images
        check_not_freed(self.title, input=input)
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        padded = nn.functional.pad(images, self._reversed_padding_repeated_twice, mode)
        # Some modes return NCHW whatever comes in; the output follows the input.
        keep = torch.channels_last if is_channels_last(images) else torch.contiguous_format
        return padded.contiguous(memory_format=keep)

    @typed
    def forward(self, input: Tensor) -> Tensor:
        """``[N, Ci, H, W]`` or ``[Ci, H, W]`` -> ``[N, Co, Ho, Wo]`` or ``[Co, Ho, Wo]``, in the
        dtype and the memory format of ``input`` (the dtype of autocast, where it is on).

        Args:
            input: float16, bfloat16 or float32.

        Raises:
            What the op raises: ``mixed_gemm.qconv2d``, ``mixed_gemm.qconv2d_int8``.
        """
        if is_traced_through(input) and self._quantized() is not None:
            settings = (self.stride, self.padding, self.dilation, self.padding_mode)
            node: Tensor = recorded(self._applied(), input, self.weight, self.bias, *settings)
            return node
        if self.plain_weight is None:
            weight = self.weight  # once: of a parametrized layer this computes it
            if not isinstance(weight, QuantizedTensor):
                dense: Tensor = self._conv_forward(input, weight, self.bias)
                return dense
        return self.activated(input, "identity")

    def _applied(self) -> Any:
        """:meth:`applied` by a name at the top of a module."""
        raise NotImplementedError

    @classmethod
    def applied(
        cls, input: Tensor, weight: QuantizedTensor, bias: Tensor | None, *settings: Any
    ) -> Tensor:
        """:meth:`forward` of a module that is made for this call, in a graph of torch.fx that has
        the weight and the bias for parameters.

        Args:
            input: as of :meth:`forward`. weight: ``[Co, Ci, Kh, Kw]``. bias: ``[Co]`` or None.
            settings: stride, padding, dilation and padding_mode.
        """
        names = ("stride", "padding", "dilation", "padding_mode")
        module = cls.from_weight(weight, **dict(zip(names, settings, strict=True)))
        module._parameters["bias"] = bias  # type: ignore[assignment]
        out: Tensor = module(input)
        return out

    def _factors(self) -> tuple[Any, Tensor | None]:
        """The parts of the filter, and the bias."""
        if self.plain_weight is not None:
            return self.plain_weight, self.plain_bias
        return self.weight, self.bias

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """The convolution and an activation in one kernel.

        Args:
            input: ``[N, Ci, H, W]`` or ``[Ci, H, W]``. activation: one that its weight fuses.
        """
        raise NotImplementedError

    @classmethod
    def _options_of(cls, weight: Any) -> dict[str, Any]:
        """The keyword arguments of the constructor that follow from a weight."""
        raise NotImplementedError

    @classmethod
    def around(cls: type[Self], weight: QuantizedTensor, conv: nn.Conv2d) -> Self:
        """A module that takes the place of ``conv``, whose bias it shares.

        Args:
            weight: ``[Co, Ci, Kh, Kw]``, shared too.
            conv: gives the module its geometry, bias and mode (training or not).
        """
        module = cls.from_weight(
            weight,
            stride=conv.stride,
            padding=conv.padding,
            dilation=conv.dilation,
            padding_mode=conv.padding_mode,
        )
        return module._in_place_of(conv)

    @classmethod
    def from_weight(
        cls: type[Self],
        weight: QuantizedTensor,
        bias: Tensor | None = None,
        *,
        stride: IntOrPair = 1,
        padding: str | IntOrPair = 0,
        dilation: IntOrPair = 1,
        padding_mode: str = "zeros",
    ) -> Self:
        """A module around a quantized filter, which is shared.

        Args:
            weight: ``[Co, Ci, Kh, Kw]``. bias: ``[Co]`` in its dtype, or None; a parameter is
                shared.
            stride, padding, dilation, padding_mode: as in ``nn.Conv2d``.

        Raises:
            ValueError: the bias does not fit the filter, or the settings do not fit each other.
        """
        out_c, in_c, *kernel = weight.shape
        make: Any = cls
        module: Self = make(
            in_c,
            out_c,
            tuple(kernel),
            stride,
            padding,
            dilation,
            bias=False,
            padding_mode=padding_mode,
            **cls._options_of(weight),
            device="meta",
            dtype=weight.dtype,
        )
        problems = weight.refuse_parts({**weight.tensors(), "bias": bias})
        if problems:
            raise ArgumentValueError(f"{cls.title}: " + "; ".join(problems))
        module.set_weight(weight)
        if bias is not None:
            module.bias = bias if isinstance(bias, nn.Parameter) else nn.Parameter(bias.detach())
        return module

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[Co, Ci, Kh, Kw]`` filter in ``dtype`` (of the weight when None)."""
        return self._dense_value(dtype)

    def to_float(self) -> nn.Conv2d:
        """A dense ``nn.Conv2d`` with the dequantized filter. The bias is shared."""
        settings: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        }
        conv = nn.Conv2d(self.in_channels, self.out_channels, bias=False, device="meta", **settings)
        return self._like(conv)
