"""Filters of convolutions whose images are rounded to int8, going in and coming out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.conv_int8 import weight_sums
from ..ops.conv_problem import MAX_CONV_INT8_K
from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_storage
from .rounding import quantize_weight
from .scheme import Scheme, Side
from .tensor import Part, QuantizedTensor, part_problems
from .values import refuse_non_finite
from .w8a8 import input_quantization

Range = tuple[float, float]
_FLOATS = ("weight_scale", "input_scale", "output_scale")


def _image_quantization(limits: Range, azp: bool) -> tuple[float, int]:
    """(scale, zero point in -128..127) of a range with 0 in it: pixels outside of an image, and
    what relu cuts, are the zero point itself, which is an int8 like all pixels."""
    low, high = limits
    return input_quantization(min(low, 0.0), max(high, 0.0), azp)


class Int8ConvWeight(QuantizedTensor):
    """A filter ``[Co, Ci, Kh, Kw]``, w = q * scale, with what calibration found of the images: they
    are rounded to int8 with one scale and zero point, and so is the result.

    Parts:
        weight_int8: int8 ``[Co, Kh, Kw, Ci]``, as the op reads it; Ci * Kh * Kw at most 65793.
        weight_scale: float32 ``[Co]``.
        input_scale, output_scale: float32 ``[]``. input_azp, output_azp: int32 ``[]``, in
            -128..127; a real value is scale * (integer - azp).
        weight_sums: int32 ``[Co]``: ``ops.weight_sums`` of the filter, which no call has to compute
            then. Derived: in no state_dict.
    """

    module: ClassVar[str] = "int8_conv2d"
    kind: ClassVar[str] = "conv_int8"
    # The others would round where the layer and the activation round apart.
    fuses: ClassVar[tuple[str, ...]] = ("relu",)
    parts: ClassVar[tuple[Part, ...]] = (
        Part("weight_int8", (torch.int8,), follows=False, finite=False, rows=0),
        Part("weight_scale", (torch.float32,), follows=False, rows=0),
        Part("input_scale", (torch.float32,), follows=False),
        Part("input_azp", (torch.int32,), follows=False, finite=False),
        Part("output_scale", (torch.float32,), follows=False),
        Part("output_azp", (torch.int32,), follows=False, finite=False),
        Part("weight_sums", (torch.int32,), follows=False, finite=False, rows=0, derived=True),
    )

    weight_int8: Tensor
    weight_scale: Tensor
    input_scale: Tensor
    input_azp: Tensor
    output_scale: Tensor
    output_azp: Tensor
    weight_sums: Tensor | None = None

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        side = scheme.input_activations
        static = side in (Side(strategy="tensor"), Side(strategy="tensor", symmetric=False))
        return dims == 4 and static and scheme.weights == Side()

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        k = math.prod(shape[1:])
        if k <= MAX_CONV_INT8_K:
            return ""
        return (
            f"Ci * Kh * Kw must be at most {MAX_CONV_INT8_K}, so that int32 sums cannot wrap, got "
            f"{k}"
        )

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        return {part.name for part in cls.parts}

    @classmethod
    def derive(
        cls,
        tensors: Mapping[str, Tensor | None],
        scheme: Scheme,
        shape: tuple[int, ...] = (),
        dtype: torch.dtype | None = None,
    ) -> dict[str, Tensor]:
        weight = tensors["weight_int8"]
        assert weight is not None
        return {"weight_sums": weight_sums(weight)}

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        out_c, in_c, *kernel = shape
        one: dict[str, tuple[int, ...]] = {part.name: () for part in cls.parts}
        channels = dict.fromkeys(("weight_scale", "weight_sums"), (out_c,))
        return {**one, "weight_int8": (out_c, *kernel, in_c), **channels}

    @classmethod
    def neutral(cls, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        for name in ("input_scale", "output_scale"):
            tensors[name].fill_(1)
        return tensors

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        out_c, in_c, *kernel = shape
        return {
            "scheme": "w8a8",
            "in_channels": in_c,
            "out_channels": out_c,
            "kernel_size": kernel,
            "activations": scheme.activations,
        }

    @classmethod
    def from_float(
        cls,
        weight: Tensor,
        scheme: Scheme,
        *,
        input_range: Range | None = None,
        output_range: Range | None = None,
    ) -> Int8ConvWeight:
        """Round a filter to nearest, with a scale for each output channel.

        Args:
            weight: float16, bfloat16 or float32 ``[Co, Ci, Kh, Kw]``.
            scheme: from ``Scheme.w8a8``, static. With "static" the images have the zero point 0;
                the result always has one, which costs nothing.
            input_range, output_range: least and largest element of the images, and of what the
                convolution makes of them: what lies outside is cut off.

        Raises:
            ValueError: a range is missing or not finite, or the filter holds NaN or Inf.
            TypeError: the filter has another dtype.
        """
        for name, found in (("input_range", input_range), ("output_range", output_range)):
            if found is None or not all(map(math.isfinite, found)):
                raise ArgumentValueError(
                    f"mixed_gemm.Int8ConvWeight: activations={scheme.activations!r} needs a finite "
                    f"{name}, got {found}. Hint: mixed_gemm.quantize_(model, scheme='w8a8', "
                    "activations='static', calibration=batches) finds it"
                )
        assert input_range is not None and output_range is not None
        side = scheme.input_activations
        has_azp = side is not None and not side.symmetric
        q, scales, _ = quantize_weight(weight.detach().flatten(1), 8, -1, scale_dtype=torch.float32)
        return cls.from_quantized(
            q.view(weight.shape),
            scales[0],
            scheme=scheme,
            input=_image_quantization(input_range, has_azp),
            output=_image_quantization(output_range, True),
            dtype=weight.dtype,
        )

    @classmethod
    def from_quantized(
        cls,
        weight: Tensor,
        weight_scale: Tensor,
        *,
        scheme: Scheme,
        input: tuple[float, int],
        output: tuple[float, int],
        dtype: torch.dtype | None = None,
        where: str = "mixed_gemm.Int8ConvWeight.from_quantized",
    ) -> Int8ConvWeight:
        """Take a filter that is int8 already.

        Args:
            weight: int8 ``[Co, Ci, Kh, Kw]``.
            weight_scale: ``[Co]`` or one element; kept in float32.
            scheme: from ``Scheme.w8a8``, static.
            input, output: (scale, zero point) of the images and of the result.
            dtype: of the images; torch's default when None.
            where: what an error names.

        Raises:
            ValueError: a tensor does not fit the rest, has lost its storage or holds NaN or Inf, or
                a scale is not positive.
            TypeError: ``weight`` is not int8.
        """
        if weight.dim() != 4 or weight.dtype != torch.int8:
            error = ArgumentTypeError if weight.dtype != torch.int8 else ArgumentValueError
            raise error(
                f"{where}: weight must be int8 [Co, Ci, Kh, Kw], got {weight.dtype} "
                f"{tuple(weight.shape)}"
            )
        check_storage(where, weight=weight, weight_scale=weight_scale)
        shape, device = tuple(weight.shape), weight.device
        if reason := cls.why_not(scheme, shape):
            raise ArgumentValueError(f"{where}: {reason}")
        if weight_scale.numel() in (1, shape[0]):
            weight_scale = weight_scale.detach().float().reshape(-1).expand(shape[0]).contiguous()
        tensors: dict[str, Tensor] = {
            "weight_int8": weight.detach().permute(0, 2, 3, 1).contiguous(),
            "weight_scale": weight_scale,
        }
        for name, (scale, azp) in (("input", input), ("output", output)):
            if not (scale > 0 and math.isfinite(scale) and -128 <= azp <= 127):
                raise ArgumentValueError(
                    f"{where}: {name} must be a positive scale and a zero point in -128..127, got "
                    f"({scale}, {azp})"
                )
            tensors[f"{name}_scale"] = torch.tensor(scale, dtype=torch.float32, device=device)
            tensors[f"{name}_azp"] = torch.tensor(azp, dtype=torch.int32, device=device)
        if problems := part_problems(cls, shape, scheme, tensors):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(tensors, where, _FLOATS)
        return cls(tensors, scheme, shape, dtype or torch.get_default_dtype())

    def filters(self) -> Tensor:
        """int8 ``[Co, Ci, Kh, Kw]``, a view in channels-last."""
        return self.weight_int8.permute(0, 3, 1, 2)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        check_storage(
            "QuantizedTensor", weight_int8=self.weight_int8, weight_scale=self.weight_scale
        )
        dense = self.filters().float() * self.weight_scale[:, None, None, None]
        return dense.to(dtype or self.dtype).contiguous()

    def requantized(self, dense: Tensor) -> Int8ConvWeight:
        q, scales, _ = quantize_weight(dense.float().flatten(1), 8, -1, scale_dtype=torch.float32)
        q = q.view(dense.shape).permute(0, 2, 3, 1).contiguous()
        tensors = {**self.stored(), "weight_int8": q, "weight_scale": scales[0]}
        return type(self)(tensors, self.scheme, tuple(dense.shape), self.dtype)

    def cut(self, dim: int, start: int, stop: int) -> Int8ConvWeight:
        raise NotImplementedError(
            "QuantizedTensor: the filters of a convolution are not sharded. Hint: replicate this "
            "module, or dequantize() it first"
        )

    @classmethod
    def join(cls, weights: list[Int8ConvWeight]) -> Int8ConvWeight:
        raise NotImplementedError("QuantizedTensor: the filters of a convolution are not sharded")
