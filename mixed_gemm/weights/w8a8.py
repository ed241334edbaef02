"""W8A8: int8 weights with a scale for each output channel, activations rounded to int8 too."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_not_freed, check_storage
from ..ops.problem import MAX_AZP, MAX_INT8_K, MAX_TOKEN_STEPS
from ..ops.scaled import azp_adjustment
from . import question
from .exchange import QuantizedWeight
from .question import Question
from .rounding import quantize_weight
from .scheme import ACTIVATION_MODES, Scheme, Side
from .straight_through import eight_bit_product
from .tensor import Part, QuantizedTensor, narrows, part_problems, under_autocast
from .values import refuse_non_finite

INT8_STEPS = 255  # between -128 and 127
MIN_SCALE = 2.0**-126  # as problem/quantize.h
MAX_INT32 = 2**31 - 1
_FLOATS = ("weight_scale", "input_scale", "pre_scale")


def input_quantization(low: float, high: float, azp: bool, k: int = 1) -> tuple[float, int]:
    """(scale, zero point) for activations in low..high: the formula of ``quantize_per_token``.

    The zero point is folded into ``azp_adj``, where its product with the sum of any K int8 weights
    has to fit in int32: at most ``most`` steps of the scale lead from 0 to an end of the range, so
    that the zero point is at most most + 128, and (most + 128) * 128 * K fits. From K = 43,805 on
    that is less than the 255 steps of the range; there the range is widened to hold 0, which makes
    the zero point an int8, and -128 * -128 * K fits.

    Args:
        low, high: least and largest activation.
        azp: whether there is a zero point; else it is 0.
        k: elements of K that a product sums.
    """
    most = min(MAX_TOKEN_STEPS, MAX_INT32 // (128 * max(k, 1)) - 128)
    if most < INT8_STEPS:
        low, high = min(low, 0.0), max(high, 0.0)
        most = INT8_STEPS
    largest = max(-low, high)
    if not azp:
        return max(largest / 127, MIN_SCALE), 0
    scale = max(high / INT8_STEPS - low / INT8_STEPS, largest / most, MIN_SCALE)
    scale = torch.tensor(scale, dtype=torch.float32, device="cpu").item()  # as it is kept
    return scale, -128 - round(low / scale)


def _side(scheme: Scheme) -> Side:
    assert scheme.input_activations is not None
    return scheme.input_activations


class W8A8Weight(QuantizedTensor):
    """``x @ w.T = scale_x * scale_w * (q_x @ q_w.T)``: int8 on integer tensor cores, VNNI or AMX
    on a CPU. Gradients pass straight through the rounding of the activations.

    Parts:
        weight_int8: int8 ``[N, K]``, K at most 131071. weight_scale: float32 ``[N]``.
        azp_adj: int32 ``[N]`` where activations have a zero point, else None.
        input_scale: float32 ``[]`` and input_azp: int32 ``[]`` where they are static, else None.
        pre_scale: ``[K]`` in the dtype of the weight, or None (SmoothQuant that could not be folded
            into the layer before).
    """

    kind: ClassVar[str] = "w8a8"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("weight_int8", (torch.int8,), follows=False, finite=False, rows=0),
        Part("weight_scale", (torch.float32,), follows=False, rows=0),
        Part("azp_adj", (torch.int32,), follows=False, finite=False, rows=0),
        Part("input_scale", (torch.float32,), follows=False),
        Part("input_azp", (torch.int32,), follows=False, finite=False),
        Part("pre_scale"),
    )

    weight_int8: Tensor
    weight_scale: Tensor
    azp_adj: Tensor | None
    input_scale: Tensor | None
    input_azp: Tensor | None
    pre_scale: Tensor | None

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        rounded = scheme.input_activations in ACTIVATION_MODES.values()
        return dims == 2 and rounded and scheme.weights == Side()

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        if shape[1] > MAX_INT8_K:
            return (
                f"in_features must be at most {MAX_INT8_K}, so that int32 sums cannot wrap, got "
                f"{shape[1]}"
            )
        return ""

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        side = _side(scheme)
        names = {"weight_int8", "weight_scale"}
        if not side.symmetric:
            names.add("azp_adj")
        if not side.dynamic:
            names |= {"input_scale"} if side.symmetric else {"input_scale", "input_azp"}
        return names

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        n, k = shape
        return {
            "weight_int8": (n, k),
            "weight_scale": (n,),
            "azp_adj": (n,),
            "input_scale": (),
            "input_azp": (),
            "pre_scale": (k,),
        }

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        return {
            "scheme": "w8a8",
            "in_features": shape[1],
            "out_features": shape[0],
            "activations": scheme.activations,
        }

    @classmethod
    def from_float(
        cls,
        weight: Tensor,
        scheme: Scheme,
        *,
        dtype: torch.dtype | None = None,
        input_range: tuple[float, float] | None = None,
        smoothing: Tensor | None = None,
        folded: bool = False,
    ) -> W8A8Weight:
        """Round a weight to nearest, with a scale for each output channel.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]``.
            scheme: from ``Scheme.w8a8``.
            dtype: of the activations; that of ``weight`` when None.
            input_range: least and largest activation that is rounded, so after smoothing; needed
                when activations are static.
            smoothing: SmoothQuant's factors ``[K]``: column k of the weight is multiplied by
                smoothing[k] and the activation divided by it.
            folded: the layer before divides already, so that no pre_scale is kept.

        Raises:
            ValueError: static activations have no range, or the weight or the range holds NaN or
                Inf.
            TypeError: the weight has another dtype.
        """
        weight = weight.detach()
        dtype = dtype or weight.dtype
        if smoothing is not None:
            weight = weight.float() * smoothing
        q, scales, _ = quantize_weight(weight, 8, -1, scale_dtype=torch.float32)
        return cls.from_codes(
            q, scales[0], scheme,
            dtype=dtype, input_range=input_range, smoothing=smoothing, folded=folded,
        )  # fmt: skip

    @classmethod
    def from_codes(
        cls,
        codes: Tensor,
        scale: Tensor,
        scheme: Scheme,
        *,
        dtype: torch.dtype,
        input_range: tuple[float, float] | None = None,
        smoothing: Tensor | None = None,
        folded: bool = False,
    ) -> W8A8Weight:
        """Make a weight of the codes that a method found which rounds by itself.

        Args:
            codes: int8 ``[N, K]``, of the weight times ``smoothing``. scale: ``[N]``.
            scheme, dtype, input_range, smoothing, folded: see :meth:`from_float`.

        Raises:
            ValueError: as :meth:`from_float`.
        """
        return cls.from_quantized(
            codes, scale, None if smoothing is None or folded else smoothing.reciprocal().to(dtype),
            scheme=scheme, dtype=dtype, **cls._static_input(scheme, input_range, codes.shape[1]),
        )  # fmt: skip

    @classmethod
    def _static_input(
        cls, scheme: Scheme, input_range: tuple[float, float] | None, k: int
    ) -> dict[str, Any]:
        side, scale, azp = _side(scheme), None, 0
        if not side.dynamic:
            if input_range is None or not all(map(math.isfinite, input_range)):
                raise ArgumentValueError(
                    f"mixed_gemm.W8A8Weight: activations={scheme.activations!r} needs a finite "
                    f"input_range, got {input_range}. Hint: mixed_gemm.quantize_(model, "
                    "scheme='w8a8', calibration=batches) finds it"
                )
            scale, azp = input_quantization(*input_range, not side.symmetric, k)
        return {"input_scale": scale, "input_azp": azp}

    @classmethod
    def from_quantized(
        cls,
        weight: Tensor,
        weight_scale: Tensor,
        pre_scale: Tensor | None = None,
        *,
        scheme: Scheme,
        input_scale: float | Tensor | None = None,
        input_azp: int | Tensor = 0,
        dtype: torch.dtype | None = None,
        where: str = "mixed_gemm.W8A8Weight.from_quantized",
    ) -> W8A8Weight:
        """Take a weight that is int8 already, as a checkpoint has it.

        Args:
            weight: int8 ``[N, K]``.
            weight_scale: ``[N]`` or ``[N, 1]``, or one element; kept in float32.
            pre_scale: ``[K]`` or None.
            scheme: from ``Scheme.w8a8``.
            input_scale: of static activations, and only of those. input_azp: its zero point, an
                int32 of at most 2^22 in magnitude.
            dtype: of the activations; that of pre_scale, or torch's default, when None.
            where: what an error names.

        Raises:
            ValueError: a tensor does not fit the rest, has lost its storage or holds NaN or Inf, or
                input_scale is missing or too much, or input_azp too large.
            TypeError: ``weight`` is not int8.
        """
        if weight.dim() != 2 or weight.dtype != torch.int8:
            error = ArgumentTypeError if weight.dtype != torch.int8 else ArgumentValueError
            raise error(
                f"{where}: weight must be int8 [N, K], got {weight.dtype} {tuple(weight.shape)}"
            )
        check_storage(where, weight=weight, weight_scale=weight_scale, pre_scale=pre_scale)
        side, (n, k) = _side(scheme), weight.shape
        if side.dynamic != (input_scale is None):
            raise ArgumentValueError(
                f"{where}: activations={scheme.activations!r} needs "
                f"{'no input_scale' if side.dynamic else 'input_scale'}, got {input_scale}"
            )
        if reason := cls.why_not(scheme, (n, k)):
            raise ArgumentValueError(f"{where}: {reason}")
        if weight_scale.numel() in (1, n):
            weight_scale = weight_scale.detach().float().reshape(-1).expand(n).contiguous()
        options: dict[str, Any] = {"device": weight.device}
        tensors: dict[str, Tensor | None] = {
            "weight_int8": weight.detach().contiguous(),
            "weight_scale": weight_scale,
            "pre_scale": None if pre_scale is None else pre_scale.detach().contiguous(),
        }
        if input_scale is not None:
            scale = torch.as_tensor(input_scale, dtype=torch.float32, **options)
            tensors["input_scale"] = scale.reshape(())
        if not side.symmetric:
            if input_scale is not None:
                point = torch.as_tensor(input_azp, dtype=torch.int32, **options).reshape(())
                tensors["input_azp"] = point
            folded = None if side.dynamic else int(input_azp)
            if folded is not None and abs(folded) > MAX_AZP:
                raise ArgumentValueError(
                    f"{where}: input_azp must be in -2^22..2^22 = {MAX_AZP}, where fp32 tells the "
                    f"steps of an int8 apart, got {folded}. Hint: a larger input_scale"
                )
            tensors["azp_adj"] = azp_adjustment(weight, folded)
        shape = (n, k)
        if problems := part_problems(cls, shape, scheme, tensors):
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(tensors, where, _FLOATS)
        if dtype is None:
            dtype = torch.get_default_dtype() if pre_scale is None else pre_scale.dtype
        return cls(tensors, scheme, shape, dtype)

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> W8A8Weight:
        if weight.permutation is not None:
            raise ArgumentValueError(
                f"mixed_gemm.Linear: {weight.name} has permuted columns (act-order), which weights "
                "whose activations are rounded do not take"
            )
        pre_scale = weight.pre_scale
        return cls.from_quantized(
            weight.q,
            weight.scales[0],
            None if pre_scale is None else pre_scale.to(dtype),
            scheme=weight.scheme,
            input_scale=weight.input_scale,
            input_azp=0 if weight.input_azp is None else weight.input_azp,
            dtype=dtype,
            where=f"mixed_gemm.Linear: {weight.name}",
        )

    def question(self, m: int, out: str, where: str) -> Question:
        n, k = self.shape
        return question.scaled(m, n, k, "int8", out, where)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if narrows(x, self.dtype):
            return self.product(x.to(self.dtype), bias).to(torch.float32)
        pre_scale = self.pre_scale
        read_by_torch = {} if pre_scale is None else {"input": x, "pre_scale": pre_scale}
        check_not_freed("mixed_gemm.Linear", weight_int8=self.weight_int8, **read_by_torch)
        x, bias, pre_scale = under_autocast(x, bias, pre_scale)
        return eight_bit_product(
            x if pre_scale is None else x * pre_scale,
            self.weight_int8,
            self.weight_scale,
            bias,
            self.azp_adj,
            self.input_scale,
            self.input_azp,
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        check_storage(
            "QuantizedTensor",
            weight_int8=self.weight_int8,
            weight_scale=self.weight_scale,
            pre_scale=self.pre_scale,
        )
        weight = self.weight_int8.float() * self.weight_scale[:, None]
        if self.pre_scale is not None:
            weight = weight * self.pre_scale.float()
        return weight.to(dtype or self.dtype)

    def requantized(self, dense: Tensor) -> W8A8Weight:
        weight = dense.float()
        if self.pre_scale is not None:
            weight = weight / self.pre_scale.float()
        q, scales, _ = quantize_weight(weight, 8, -1, scale_dtype=torch.float32)
        return self._like(q, scales[0], self.pre_scale)

    def _like(self, q: Tensor, scale: Tensor, pre_scale: Tensor | None) -> W8A8Weight:
        """Other integers with the same quantization of activations."""
        tensors = {**self.tensors(), "weight_int8": q, "weight_scale": scale}
        if pre_scale is not None:
            tensors["pre_scale"] = pre_scale
        if self.azp_adj is not None:
            point = None if self.input_azp is None else self.input_azp
            tensors["azp_adj"] = azp_adjustment(q, point)
        return type(self)(tensors, self.scheme, tuple(q.shape), self.dtype)

    def cut(self, dim: int, start: int, stop: int) -> W8A8Weight:
        part = slice(start, stop)
        if dim == 0:
            q = self.weight_int8[part].clone()
            return self._like(q, self.weight_scale[part].clone(), self.pre_scale)
        q = self.weight_int8[:, part].clone(memory_format=torch.contiguous_format)
        pre_scale = None if self.pre_scale is None else self.pre_scale[part].clone()
        return self._like(q, self.weight_scale.clone(), pre_scale)

    @classmethod
    def join_columns(cls, weights: list[W8A8Weight], group_size: int | None = None) -> W8A8Weight:
        """The inverse of :meth:`cut` along dim 1.

        Args:
            weights: of one number of rows, the columns of the first in front.
            group_size: nothing, since a row has one scale.
        """
        first, pre_scales = weights[0], [w.pre_scale for w in weights if w.pre_scale is not None]
        q = torch.cat([w.weight_int8 for w in weights], 1)
        return first._like(q, first.weight_scale, torch.cat(pre_scales) if pre_scales else None)

    @classmethod
    def join(cls, weights: list[W8A8Weight]) -> W8A8Weight:
        first = weights[0]
        q = torch.cat([w.weight_int8 for w in weights])
        return first._like(q, torch.cat([w.weight_scale for w in weights]), first.pre_scale)

    def unpacked(self, name: str = "") -> QuantizedWeight:
        return QuantizedWeight.stored_as(
            name,
            self.weight_int8,
            self.weight_scale[None],
            scheme=self.scheme,
            pre_scale=self.pre_scale,
            input_scale=self.input_scale,
            input_azp=self.input_azp,
        )
