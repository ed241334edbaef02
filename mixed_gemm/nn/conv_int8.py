"""``mixed_gemm.Int8Conv2d``: ``nn.Conv2d`` that rounds images to int8, going in and coming out.

A subclass of ``nn.Conv2d``, so code that looks for convolutions finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake
from torch.compiler import is_dynamo_compiling
from torch.nn.grad import conv2d_input
from torch.utils._python_dispatch import _disable_current_modes

from ..ops.conv_int8 import qconv2d_int8
from ..ops.conv_problem import IntOrPair, is_channels_last
from ..ops.errors import check_not_freed, wrong_value
from ..ops.rounding import quantize_per_tensor
from ..weights.conv_int8 import Int8ConvWeight
from ..weights.kinds import kind_of
from ..weights.modules import holds
from ..weights.scheme import Scheme, refined
from ..weights.tensor import QuantizedTensor, under_autocast
from .conv_base import QuantizedConv2d
from .tracing import is_traced_through, recorded


@holds("int8_conv2d")
class Int8Conv2d(QuantizedConv2d):
    """conv2d(x, w) + bias by ``qconv2d_int8``: floats in, floats out, int8 in between.

    Images are rounded to int8 with one scale that calibration found, and so is the result: a
    rounding that ``nn.Conv2d`` does not have, and that a ``Linear`` of the scheme "w8a8" does not
    have either. Its step is 1/255 of the range that calibration saw of the layer's output: an error
    of 1.0 % RMS where that range is nine standard deviations, and in proportion more where a few
    outputs are much larger than the others. What lies outside of either range is cut off. Gradients
    pass straight through both roundings, and where something is cut off.

    The constructor makes a module that computes w = 0, to be filled by ``load_state_dict``; use
    :meth:`from_float` or ``mixed_gemm.quantize_(model, "w8a8", activations="static",
    calibration=batches)`` to get a useful one. Without ``activations`` it makes a dense
    ``nn.Conv2d``, as code expects that calls ``type(layer)(in_channels, out_channels,
    kernel_size)``.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, bias, padding_mode: as in
            ``nn.Conv2d``.
        groups: 1.
        activations: "static" or "static_azp", where images have a zero point.
        device, dtype: of the bias; dtype is that of the dense weight too. Images may have any.

    Attributes:
        weight: a frozen parameter, a :class:`mixed_gemm.QuantizedTensor`. Its parts (weight_int8,
            weight_scale, input_scale, input_azp, output_scale, output_azp) are plain tensors in a
            state_dict, beside a tag.

    Raises:
        ValueError: ``groups`` is not 1, ``activations`` is neither, or the filter is too large.
    """

    title: ClassVar[str] = "mixed_gemm.Int8Conv2d"
    dense_class: ClassVar[type[nn.Module]] = nn.Conv2d
    weight: Int8ConvWeight
    _numbers: tuple[float, int, float, int] = (1.0, 0, 1.0, 0)  # scale, zero point: in, out

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
        activations: str = "static",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._set_geometry(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode
        )
        scheme = _static(self.title, activations)
        shape = (out_channels, in_channels, *self._kernel())
        kind = kind_of(self.title, scheme, shape)
        self.set_weight(kind.empty(shape, scheme, device=device, dtype=dtype))
        self.make_bias(out_channels if bias else None, self.weight.dtype, device)

    def follow_weight(self) -> None:
        super().follow_weight()
        if not is_dynamo_compiling() and self.plain_weight is not None:
            self._read_numbers(self.plain_weight)

    def _read_numbers(self, weight: Any) -> None:
        """The scalars as Python has them: the op takes numbers, and reading a tensor for each call
        would stop torch.compile, and wait for a GPU. Tensors that have no values, as torch.export
        traces with, leave them as they are."""
        names = ("input_scale", "input_azp", "output_scale", "output_azp")
        if weight.input_scale.is_meta or is_fake(weight.input_scale):
            return
        with _disable_current_modes():  # torch.export puts the parameters back under them
            in_scale, in_azp, out_scale, out_azp = (getattr(weight, x).item() for x in names)
        self._numbers = (float(in_scale), int(in_azp), float(out_scale), int(out_azp))

    def _take_parts(
        self,
        weight: QuantizedTensor,
        given: dict[str, Any],
        local_metadata: dict[str, Any],
        prefix: str,
    ) -> None:
        _check_scalars(given, f"{prefix}{self.title}")
        super()._take_parts(weight, given, local_metadata, prefix)
        self.follow_weight()

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """:meth:`forward` and an activation: the same bits as one after the other.

        Args:
            input: ``[N, Ci, H, W]`` or ``[Ci, H, W]``. activation: "identity" or "relu".

        Raises:
            What ``mixed_gemm.qconv2d_int8`` raises.
        """
        if activation not in ("identity", "relu"):
            wrong_value(self.title, "activation", "be identity or relu", repr(activation))
        weight, bias = self._factors()
        trains = input.requires_grad or (bias is not None and bias.requires_grad)
        if activation == "relu" and trains and torch.is_grad_enabled():
            return torch.relu(self.activated(input, "identity"))  # whose gradient is not straight
        geometry = self._geometry
        check_not_freed(self.title, input=input, bias=bias)
        out_dtype = under_autocast(input.new_empty(0))[0].dtype
        product: Any = _StraightThrough.apply if trains and torch.is_grad_enabled() else _product
        out: Tensor = product(
            self._images(input), weight.weight_int8, weight.weight_scale, bias, weight.weight_sums,
            weight.input_scale, weight.input_azp, out_dtype, activation == "relu", *self._numbers,
            *geometry.stride, *geometry.padding, *geometry.dilation,
        )  # fmt: skip
        return out.squeeze(0) if input.dim() == 3 else out

    def _applied(self) -> Any:
        return convolved_in_int8

    @classmethod
    def _options_of(cls, weight: Int8ConvWeight) -> dict[str, Any]:
        return {"activations": weight.scheme.activations}

    @classmethod
    def from_float(
        cls,
        conv: nn.Conv2d,
        activations: str = "static",
        *,
        input_range: tuple[float, float],
        output_range: tuple[float, float],
    ) -> Int8Conv2d:
        """Quantize an ``nn.Conv2d`` by rounding to nearest.

        Args:
            conv: with groups=1 and a float16, bfloat16 or float32 weight. Its bias is shared with
                the result, not copied.
            activations: "static" or "static_azp".
            input_range, output_range: least and largest element of the images, and of what ``conv``
                makes of them.

        Raises:
            ValueError: ``activations`` is neither, a range is not finite, ``conv`` has groups, or a
                weight is NaN or Inf.
            TypeError: the weight has another dtype.
        """
        where = f"{cls.title}.from_float"
        scheme = _static(where, activations)
        kind: Any = kind_of(where, scheme, tuple(conv.weight.shape))
        weight = kind.from_float(
            conv.weight, scheme, input_range=input_range, output_range=output_range
        )
        return cls.around(weight, conv)

    def extra_repr(self) -> str:
        settings = super().extra_repr()  # type: ignore[no-untyped-call]
        in_scale, in_azp, out_scale, out_azp = self._numbers
        return (
            f"{settings}, input={in_scale:.3g} * (q - {in_azp}), "
            f"output={out_scale:.3g} * (q - {out_azp})"
        )


def convolved_in_int8(input: Tensor, *rest: Any) -> Tensor:
    """Run an :class:`Int8Conv2d` as one node of a graph of torch.fx.

    Args:
        input, rest: the arguments of ``Int8Conv2d.applied``.
    """
    if is_traced_through(input):
        return recorded(convolved_in_int8, input, *rest)  # type: ignore[no-any-return]
    return Int8Conv2d.applied(input, *rest)


def _static(where: str, activations: str) -> Scheme:
    if activations not in ("static", "static_azp"):
        expected = "be 'static' or 'static_azp'"
        wrong_value(where, "activations", expected, repr(activations))
    return refined(where, "w8a8", activations=activations)


def _check_scalars(given: Mapping[str, Any], where: str) -> None:
    """Refuse what would raise in the first call only."""
    for name in ("input", "output"):
        scale, azp = given.get(f"{name}_scale"), given.get(f"{name}_azp")
        if isinstance(scale, Tensor) and not scale.is_meta and not bool(scale > 0):
            raise ValueError(f"{where}: {name}_scale must be positive, got {scale.item():g}")
        if isinstance(azp, Tensor) and not azp.is_meta and not -128 <= int(azp) <= 127:
            raise ValueError(f"{where}: {name}_azp must be in -128..127, got {int(azp)}")


def _product(
    x: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    weight_sums: Tensor | None,
    input_scale: Tensor,
    input_azp: Tensor,
    out_dtype: torch.dtype,
    relu: bool,
    in_scale: float,
    in_azp: int,
    out_scale: float,
    out_azp: int,
    *geometry: int,
) -> Tensor:
    if is_channels_last(x):  # the rounding op returns contiguous memory
        q = quantize_per_tensor(x.permute(0, 2, 3, 1), input_scale, input_azp).permute(0, 3, 1, 2)
    else:
        q = quantize_per_tensor(x, input_scale, input_azp)
    out = qconv2d_int8(
        q,
        weight.permute(0, 3, 1, 2),
        weight_scale,
        None if bias is None else bias.float(),
        input_scale=in_scale,
        input_zero_point=in_azp,
        output_scale=out_scale,
        output_zero_point=out_azp,
        clamp_min=out_azp if relu else -128,
        stride=geometry[:2],
        padding=geometry[2:4],
        dilation=geometry[4:],
        weight_sums=weight_sums,
    )
    return ((out.float() - out_azp) * out_scale).to(out_dtype)


class _StraightThrough(torch.autograd.Function):
    """The product, differentiated as if nothing had been rounded or cut off. Arguments as of
    ``_product``."""

    generate_vmap_rule = True
    forward = staticmethod(_product)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:3])
        ctx.image, ctx.geometry, ctx.count = inputs[0].shape, inputs[13:], len(inputs)
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            q, scale = ctx.saved_tensors
            dense = (q.permute(0, 3, 1, 2) * scale[:, None, None, None]).to(grad.dtype)
            stride, padding, dilation = (ctx.geometry[i : i + 2] for i in (0, 2, 4))
            of_input: Any = conv2d_input
            grad_x = of_input(ctx.image, dense, grad, stride, padding, dilation).to(ctx.dtype)
        if ctx.needs_input_grad[3]:
            grad_bias = grad.sum((0, 2, 3))
        return grad_x, None, None, grad_bias, *([None] * (ctx.count - 4))
