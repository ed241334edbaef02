"""``QuantizedWeight``: the one type every loader returns and ``save_checkpoint`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError
from ..ops.problem import integer_weight
from .codes import nearest_codes, values_of
from .exchange_rules import Words, group_columns, problems_of, rounded_scheme, whole_strategy
from .modules import MODULES
from .read_off import read_off
from .rounding import nonzero_scale, quantize_weight, too_small
from .rounding_fp8 import FP8
from .scheme import FLOAT8, Scheme, Side
from .values import (
    refuse_bad_permutation,
    refuse_non_finite,
    refuse_non_positive,
    refuse_other_scales,
    refuse_out_of_range,
)

_OPTIONAL = ("bias", "pre_scale", "permutation", "input_scale", "input_azp", "global_scale")
# The fields that an instance holds besides its scheme.
_STORED = ("name", "q", "scales", "zeros", *_OPTIONAL, "module")


@read_off(
    group_size=lambda weight: group_columns(weight.scheme, weight.shape[1]),
    zero_mode=lambda weight: weight.scheme.zero_mode,
    strategy=lambda weight: whole_strategy(weight.scheme),
    input_activations=lambda weight: weight.scheme.input_activations,
    is_conv1d=lambda weight: weight.module == "conv1d",
    is_embedding=lambda weight: weight.module == "embedding",
    block=lambda weight: weight.scheme.weights.block,
    weight=lambda weight: weight.scheme.weight_type,
    scale_dtype=lambda weight: weight.scheme.weights.scale_dtype,
)
@dataclass(frozen=True, eq=False, init=False)
class QuantizedWeight:
    """One quantized linear layer: y = (x[..., permutation] * pre_scale) @ w.T + bias; or the rows
    of an embedding.

    How it is stored is one ``scheme``, which the words ``weight``, ``group_size``, ``zero_mode``,
    ``strategy``, ``block`` and ``input_activations`` say here, and are read off again. Who has the
    scheme calls :meth:`stored_as` or :meth:`of_codes`.

    Args:
        name: of the module in the checkpoint, "model.layers.0.mlp.up_proj".
        q: int8 ``[N, K]``, values in the range of ``weight``, or its codes where it is a row of
            ``ops.problem.WEIGHTS`` that is no integer; or float8_e4m3fn ``[N, K]``. Both of these
            have no zeros.
        scales: float16, bfloat16 or float32 ``[G, N]``, G = ceil(K / group_size). Of scales of a
            byte (``scale_dtype``) the numbers that these are, in whichever dtype has them.
        zeros: ``[G, N]`` in the dtype of scales, or None exactly when zero_mode is "none".
        bits: 4 or 8, another way to say ``weight``, of which this one holds where both are given;
            2- and 3-bit values are stored in 4.
        group_size: elements of K that share a scale, -1 (the default) is all of them. Files have
            any size; the kernels want multiples of 16.
        zero_mode: "none", the default, is w = q * scale, "sub" is w = (q - zero) * scale, "add" is
            w = q * scale + zero.
        bias: ``[N]`` or None, any float dtype.
        pre_scale: ``[K]`` or None, multiplies the (permuted) activations.
        permutation: int64 ``[K]`` or None. Column j of q belongs to activation permutation[j]: GPTQ
            act-order, sorted once so that groups are contiguous.
        strategy: what shares a scale, where ``group_size`` does not say it: "tensor" (all scales
            are equal then) or "tensor_group" (``global_scale`` is there beside those of groups);
            "", the default, is "channel" or "group".
        block: (rows, columns) of float8 weights that share a scale, so that ``group_size`` is
            columns, or -1 where K is no larger, and scales repeat along N; else None, the default.
        input_activations: how activations are rounded; None, the default, leaves them in their
            dtype.
        input_scale: float ``[]`` where activations are static, else None. input_azp: its zero
            point, int32 ``[]``, or None.
        is_conv1d: of a ``Conv1D`` of transformers, whose dense weight is ``[K, N]``; q is not.
        is_embedding: of an ``nn.Embedding`` of N rows.
        weight: what a code is: "int4", the default, "int8", "e2m1"; "e4m3" where ``q`` is float8.
        global_scale: float32 ``[N]`` of NVFP4, or None: w = value * scale / global_scale, as files
            of compressed-tensors have it for a whole weight.
        scale_dtype: "e8m0" or "e4m3" of "e2m1" codes with such scales, or None, the default.

    Attributes:
        scheme: how it is stored, and how its activations are rounded.
        module: what it is of: "linear", "conv1d" or "embedding".

    Raises:
        ValueError: a shape, dtype or value does not fit the rest, or a float is NaN or Inf.
    """

    name: str
    q: Tensor
    scales: Tensor
    zeros: Tensor | None
    group_size: int
    zero_mode: str
    bias: Tensor | None
    pre_scale: Tensor | None
    permutation: Tensor | None
    strategy: str
    input_activations: Side | None
    input_scale: Tensor | None
    input_azp: Tensor | None
    is_conv1d: bool
    is_embedding: bool
    block: tuple[int, int] | None
    weight: str
    global_scale: Tensor | None
    scale_dtype: str | None
    # Not among the fields, which ``dataclasses.replace`` gives to the constructor.
    _scheme: ClassVar[Scheme]
    _module: ClassVar[str]

    def __init__(
        self,
        name: str,
        q: Tensor,
        scales: Tensor,
        zeros: Tensor | None = None,
        bits: int | None = None,
        group_size: int = -1,
        zero_mode: str = "none",
        bias: Tensor | None = None,
        pre_scale: Tensor | None = None,
        permutation: Tensor | None = None,
        strategy: str = "",
        input_activations: Side | None = None,
        input_scale: Tensor | None = None,
        input_azp: Tensor | None = None,
        is_conv1d: bool = False,
        is_embedding: bool = False,
        block: tuple[int, int] | None = None,
        weight: str = "int4",
        global_scale: Tensor | None = None,
        scale_dtype: str | None = None,
    ) -> None:
        given = dict(locals())
        if bits is not None:
            weight = FLOAT8 if bits == 8 and q.dtype == FP8 else integer_weight(bits)
        words = Words(
            weight, group_size, zero_mode, strategy, block, input_activations, scale_dtype
        )
        module = "embedding" if is_embedding else "conv1d" if is_conv1d else "linear"
        self._fill({**given, "module": module}, words, None)
        self.check()

    @classmethod
    def stored_as(
        cls,
        name: str,
        q: Tensor,
        scales: Tensor,
        zeros: Tensor | None = None,
        *,
        scheme: Scheme,
        module: str = "linear",
        **tensors: Tensor | None,
    ) -> QuantizedWeight:
        """A weight by its scheme.

        Args:
            name, scheme, module: as of the class. q: ``[N, K]``. scales, zeros: ``[G, N]``.
            tensors: "bias" and "global_scale" ``[N]``, "pre_scale" and "permutation" ``[K]``,
                "input_scale" and "input_azp" ``[]``.

        Raises:
            ValueError: as of the class.
        """
        made = cls.of_codes(name, q, scales, zeros, scheme=scheme, module=module, **tensors)
        made.check()
        return made

    @classmethod
    def of_codes(
        cls,
        name: str,
        q: Tensor,
        scales: Tensor,
        zeros: Tensor | None = None,
        *,
        scheme: Scheme,
        module: str = "linear",
        **tensors: Tensor | None,
    ) -> QuantizedWeight:
        """A weight whose integers were unpacked from as many bits as they have, so that none can be
        out of range and nobody has to look.

        Args:
            name, scheme, module: as of :meth:`stored_as`. q: ``[N, K]``. scales, zeros: ``[G, N]``.
            tensors: "bias" ``[N]`` and the others of :meth:`stored_as`.

        Raises:
            ValueError: as of the class, but for codes out of range.
        """
        given = {"name": name, "q": q, "scales": scales, "zeros": zeros, "module": module}
        return cls._made({**dict.fromkeys(_OPTIONAL), **given, **tensors}, scheme)

    @classmethod
    def _made(cls, given: Mapping[str, Any], scheme: Scheme) -> QuantizedWeight:
        """A weight of tensors by name, whose codes are in range."""
        made = object.__new__(cls)
        made._fill(given, Words.of(scheme, given["q"].shape[-1]), scheme)
        made._check_floats()
        return made

    def _fill(self, given: Mapping[str, Any], words: Words, scheme: Scheme | None) -> None:
        """Take the tensors of ``given``, once they fit ``words``, which ``scheme`` says too."""
        for name in _STORED:
            object.__setattr__(self, "_module" if name == "module" else name, given[name])
        if problems := problems_of(self, words):
            raise ValueError(f"QuantizedWeight {self.name!r}: " + "; ".join(problems))
        object.__setattr__(self, "_scheme", words.scheme() if scheme is None else scheme)

    def check(self) -> None:
        """Look at all values.

        Raises:
            ValueError: a code is out of the range of ``weight``, a float is NaN or Inf, a scale is
                none of its ``scale_dtype``, or the permutation is none.
        """
        self._check_floats()
        where = f"QuantizedWeight {self.name!r}"
        refuse_other_scales(self.scales, self.scheme.weights.scale_dtype, where)
        if self.q.dtype == torch.int8:
            refuse_out_of_range(self.q, self.weight, where)

    def _check_floats(self) -> None:
        where = f"QuantizedWeight {self.name!r}"
        floats = {"scales": self.scales, "zeros": self.zeros, "pre_scale": self.pre_scale}
        floats |= {"bias": self.bias, "input_scale": self.input_scale}
        floats |= {"global_scale": self.global_scale}
        refuse_non_finite(floats, where, tuple(floats))
        refuse_non_positive(self.global_scale, "global_scale", where)
        refuse_bad_permutation(self.permutation, where)

    def with_fields(self, **changes: Any) -> QuantizedWeight:
        """The same weight with some fields changed. Unlike ``dataclasses.replace`` it does not look
        at the codes again, which were checked or made in range.

        Args:
            changes: name of a tensor, "name", "scheme" or "module" -> value.

        Raises:
            ValueError: as of the class, but for codes out of range.
        """
        given = {name: getattr(self, name) for name in _STORED} | changes
        return self._made(given, given.get("scheme", self.scheme))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Also what versions pickled that had the words of the scheme as attributes."""
        if "_scheme" in state:
            self.__dict__.update(state)
        else:
            self.__init__(**state)  # type: ignore[misc]

    @property
    def module(self) -> str:
        """The module that it is of: "linear", "conv1d" or "embedding"."""
        return self._module

    @property
    def scheme(self) -> Scheme:
        """How it is stored, and how its activations are rounded."""
        return self._scheme

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, K)."""
        return tuple(self.q.shape)

    @property
    def is_fp8(self) -> bool:
        """Whether ``q`` holds float8 numbers, and no integers."""
        return self.q.dtype == FP8

    @property
    def bits(self) -> int:
        """The bits of a code."""
        return self.scheme.bits

    def to(self, dtype: torch.dtype) -> QuantizedWeight:
        """The same with scales, zeros, bias and pre_scale in ``dtype``; scales of a ``scale_dtype``
        stay, since they are the same numbers in any. q is shared, unless a scale is too small for
        ``dtype`` to have it: codes of its group are then rounded to the smallest one that is no
        smaller."""

        def cast(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.to(dtype)

        has_own = self.scheme.weights.scale_dtype is not None
        cast_ones = (None if has_own else self.scales, self.zeros, self.bias, self.pre_scale)
        if all(x is None or x.dtype == dtype for x in cast_ones):
            return self
        q, scales = self.q, self.scales if has_own else self.scales.to(dtype)
        small = None if self.is_fp8 or has_own else too_small(self.scales, dtype)
        if small is not None:
            larger = nonzero_scale(self.scales, dtype)
            scales = torch.where(small, larger.to(dtype), scales)
            ratio = torch.where(small, self.scales.float() / larger, 1.0)
            zeros = self.zeros if self.zero_mode == "sub" else None
            center = torch.zeros_like(ratio) if zeros is None else zeros.float()
            moved = self._values() - self._spread(center)
            moved = moved * self._spread(ratio) + self._spread(center)
            q = torch.where(self._spread(small), nearest_codes(moved, self.weight), q)
        made = self.with_fields(
            q=q,
            scales=scales,
            zeros=cast(self.zeros),
            bias=cast(self.bias),
            pre_scale=cast(self.pre_scale),
        )
        if small is not None:  # codes move towards a zero point, which may be no code
            made.check()
        return made

    def _values(self) -> Tensor:
        """The numbers that the codes stand for, float32 ``[N, K]``."""
        return self.q.float() if self.is_fp8 else values_of(self.q, self.weight)

    def _spread(self, x: Tensor) -> Tensor:
        """``[G, N]`` -> ``[N, K]``, that of the group of each weight."""
        k = self.shape[1]
        size = k if self.group_size == -1 else self.group_size
        return x.t().repeat_interleave(size, dim=1)[:, :k]

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The dense ``[N, K]`` weight with K in the order of the activations: computed in float32
        (exact for the "sub" zeros of files: an 11-bit scale times a 9-bit integer), rounded once.
        pre_scale is not in it.

        Args:
            dtype: of the result.
        """
        w = self._values()
        if self.zero_mode == "sub" and self.zeros is not None:
            w -= self._spread(self.zeros.float())
        w *= self._spread(self.scales.float())
        if self.global_scale is not None:
            w *= (1 / self.global_scale)[:, None]
        if self.zero_mode == "add" and self.zeros is not None:
            w += self._spread(self.zeros.float())
        if self.permutation is not None:
            w = torch.empty_like(w).index_copy_(1, self.permutation, w)
        return w.to(dtype)

    def requantize(self, bits: int = 8, group_size: int = 128) -> QuantizedWeight:
        """The same weight rounded to symmetric integers, with activations in their dtype: for
        float8 on GPUs that do not multiply it, or of few rows at a time. 8 bits in groups of 128
        differ from it by 0.6 % RMS, where float8 itself is 2.65 % off (Gaussian weights; 2.72 %
        together).

        Args:
            bits: 4 or 8.
            group_size: -1 or a multiple of 16; -1 where K is smaller.
        """
        scheme, dtype = rounded_scheme(self.shape[1], bits, group_size), self.scales.dtype
        q, scales, _ = quantize_weight(
            self.dequantize(), bits, scheme.group_size, scale_dtype=dtype
        )
        return self.with_fields(
            q=q,
            scales=scales,
            zeros=None,
            scheme=scheme,
            permutation=None,
            input_scale=None,
            global_scale=None,
        )

    def weight_only(self) -> QuantizedWeight:
        """The same weight with activations left in their dtype; of integers with scales by channel
        or group."""
        scheme = replace(self.scheme, input_activations=None)
        if not self.is_fp8 and scheme.weights.scale_dtype is None:
            scheme = Scheme.of_file(self.weight, self.group_size, self.zero_mode)
        return self.with_fields(scheme=scheme, input_scale=None, input_azp=None)

    def to_linear(self, dtype: torch.dtype | None = None) -> Any:
        """A ``mixed_gemm.Linear`` on the device of q.

        Args:
            dtype: of the activations: float16, bfloat16 or float32; that of scales when None.

        Raises:
            ValueError: group_size of integers is not a multiple of 16; or it is an embedding.
        """
        if self.is_embedding:
            raise ArgumentValueError(f"{self.name} is an embedding. Hint: to_module()")
        return MODULES["linear"].from_quantized_weight(self, dtype)

    def to_module(self, dtype: torch.dtype | None = None) -> Any:
        """:meth:`to_linear`, or a ``mixed_gemm.Embedding`` where it is one.

        Args:
            dtype: of the activations, or of the rows; that of scales when None.

        Raises:
            ValueError: it is stored in a way that the module does not take.
        """
        if self.is_embedding:
            return MODULES["embedding"].from_quantized_weight(self, dtype)
        return self.to_linear(dtype)
