"""``mixed_gemm.Linear``: ``nn.Linear`` with its weight in 4 or 8 bits.

A subclass of ``nn.Linear``, so code that looks for linears (peft, tensor-parallel plans) finds it.
It has no ``weight`` to train or merge into: the property is an empty tensor that only tells dtype
and device to those who ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .. import ops
from ..ops.errors import ArgumentTypeError, ArgumentValueError, check_not_freed, check_storage
from ..ops.problem import check_bits, check_group_size, num_groups, packed_shape
from ..weights.rounding import quantize_weight
from ..weights.scheme import QuantScheme
from ..weights.state import (
    FLOATS,
    QuantizedLayer,
    refuse_bad_permutation,
    refuse_non_finite,
    refuse_out_of_range,
)
from .base import CheckedState

if TYPE_CHECKING:
    from ..weights.exchange import QuantizedWeight


class Linear(CheckedState, nn.Linear):
    """y = (x[..., permutation] * pre_scale) @ w.T + bias, w stored in 4 or 8 bits.

    The constructor makes a module that computes w = 0, to be filled by ``load_state_dict``; use
    :meth:`from_float`, :meth:`from_quantized` or ``mixed_gemm.quantize_`` to get a useful one.

    Args:
        in_features: K.
        out_features: N.
        bias: whether to have one; it is an ``nn.Parameter`` and may train.
        bits: 4 or 8.
        group_size: elements of K that share a scale, -1 is all of them.
        zero_mode: "none", "sub" or "add"; see :class:`mixed_gemm.QuantScheme`.
        pre_scale: whether activations are multiplied by a ``[K]`` vector first.
        permutation: whether activations are reordered along K before that (GPTQ act-order).
        device, dtype: of the scales, zeros, bias and pre_scale, and so of the activations.

    Buffers:
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]``; no dtype cast touches it.
        scales: ``[G, N]``. zeros: ``[G, N]`` or None. pre_scale: ``[K]`` or None.
        permutation: int64 ``[K]`` or None.

    Raises:
        ValueError: ``bits``, ``group_size`` or ``zero_mode`` is out of range.
    """

    b_packed: Tensor
    scales: Tensor
    zeros: Tensor | None
    pre_scale: Tensor | None
    permutation: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        bits: int = 4,
        group_size: int = 128,
        zero_mode: str = "none",
        pre_scale: bool = False,
        permutation: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Module.__init__(self)  # nn.Linear's would allocate the dense weight
        scheme = QuantScheme(bits, group_size, zero_mode)
        check_group_size("mixed_gemm.Linear", group_size, in_features)
        self.in_features = in_features
        self.out_features = out_features
        self.bits = bits
        self.group_size = group_size
        self.zero_mode = zero_mode
        self._op_zero_mode = scheme.op_zero_mode

        options: dict[str, Any] = {"device": device, "dtype": dtype or torch.get_default_dtype()}
        groups = (num_groups(in_features, group_size), out_features)
        packed = torch.zeros(
            packed_shape(out_features, in_features, bits), dtype=torch.uint8, device=device
        )
        self.register_buffer("b_packed", packed)
        self.register_buffer("scales", torch.zeros(groups, **options))
        self.register_buffer("zeros", torch.zeros(groups, **options) if scheme.has_zeros else None)
        self.register_buffer("pre_scale", torch.ones(in_features, **options) if pre_scale else None)
        order = torch.arange(in_features, device=device) if permutation else None
        self.register_buffer("permutation", order)
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(out_features, **options)) if bias else None
        )

    @property
    def scheme(self) -> QuantScheme:
        return QuantScheme(self.bits, self.group_size, self.zero_mode)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """An empty tensor with the dtype and device of the activations this module takes, for code
        that reads ``layer.weight.dtype``. The values are in ``b_packed``; :meth:`dequantize`."""
        return self.scales.new_empty(0)

    def forward(self, input: Tensor) -> Tensor:
        """``[..., K]`` -> ``[..., N]``, in the dtype of the scales (or of autocast)."""
        if self.permutation is not None:
            check_not_freed("mixed_gemm.Linear", input=input, permutation=self.permutation)
            input = input.index_select(-1, self.permutation)
        return ops.unchecked_gemm(
            input,
            self.b_packed,
            self.scales,
            self.zeros,
            self.bias,
            self.pre_scale,
            bits=self.bits,
            group_size=self.group_size,
            zero_mode=self._op_zero_mode,
        )

    @classmethod
    def from_float(
        cls,
        linear: nn.Linear,
        bits: int = 4,
        group_size: int = 128,
        symmetric: bool = True,
        zero_mode: str = "sub",
    ) -> Linear:
        """Quantize an ``nn.Linear`` by rounding to nearest.

        Args:
            linear: with a float16, bfloat16 or float32 weight on any device, meta included. Its
                bias is shared with the result, not copied.
            bits: 4 or 8.
            group_size: elements of K that share a scale, -1 is all of them.
            symmetric: no zero points; ``zero_mode`` is then ignored.
            zero_mode: how zero points are stored when not symmetric: "sub" as exact integers, "add"
                as -zero * scale, rounded to the dtype.

        Raises:
            ValueError: a scalar is out of range (``group_size`` above K, say), or a weight is NaN
                or Inf.
            TypeError: the weight has another dtype.
        """
        scheme = QuantScheme(bits, group_size, "none" if symmetric else zero_mode)
        q, scales, zeros = quantize_weight(linear.weight, bits, group_size, symmetric)
        if zeros is not None and scheme.zero_mode == "add":
            zeros = (-zeros.float() * scales.float()).to(scales.dtype)
        result = cls.from_quantized(
            q, scales, zeros, bits=bits, group_size=group_size, zero_mode=zero_mode
        )
        result.bias = linear.bias
        return result.train(linear.training)

    @classmethod
    def from_quantized(
        cls,
        q: Tensor,
        scales: Tensor,
        zeros: Tensor | None = None,
        bias: Tensor | None = None,
        pre_scale: Tensor | None = None,
        permutation: Tensor | None = None,
        *,
        bits: int,
        group_size: int = -1,
        zero_mode: str = "sub",
    ) -> Linear:
        """Take a weight that is quantized already, as a checkpoint loader has it.

        Args:
            q: int8 ``[N, K]``, values in the range of ``bits``.
            scales: ``[G, N]``; its dtype is the module's.
            zeros: ``[G, N]`` or None (symmetric; ``zero_mode`` is then ignored).
            bias: ``[N]`` or None. pre_scale: ``[K]`` or None.
            permutation: int64 ``[K]`` or None: column j of q (and pre_scale[j]) belongs to
                activation permutation[j].

        Raises:
            ValueError: a scalar is out of range, or a tensor does not fit the rest, has lost its
                storage or holds a value it must not.
            TypeError: ``q`` is not int8.
        """
        where = "mixed_gemm.Linear.from_quantized"
        check_bits(where, bits)
        if q.dim() != 2 or q.dtype != torch.int8:
            error = ArgumentTypeError if q.dtype != torch.int8 else ArgumentValueError
            raise error(f"{where}: q must be int8 [N, K], got {q.dtype} {tuple(q.shape)}")
        floats = {"scales": scales, "zeros": zeros, "pre_scale": pre_scale, "bias": bias}
        check_storage(where, q=q, permutation=permutation, **floats)
        refuse_out_of_range(q, bits, where)
        n, k = q.shape
        module = cls(
            k,
            n,
            bias=bias is not None,
            bits=bits,
            group_size=group_size,
            zero_mode="none" if zeros is None else zero_mode,
            pre_scale=pre_scale is not None,
            permutation=permutation is not None,
            device="meta",
            dtype=scales.dtype,
        )
        problems = module._layer().tensor_problems({**floats, "permutation": permutation})
        if problems:
            raise ArgumentValueError(f"{where}: " + "; ".join(problems))
        refuse_non_finite(floats, where)
        refuse_bad_permutation(permutation, where)
        module.b_packed = ops.pack_weights(q, bits)
        for name in FLOATS:
            if (tensor := floats[name]) is not None:
                setattr(module, name, tensor.detach().contiguous())
        if permutation is not None:
            module.permutation = permutation.contiguous()
        if bias is not None:
            module.bias = bias if isinstance(bias, nn.Parameter) else nn.Parameter(bias.detach())
        return module

    @classmethod
    def from_quantized_weight(
        cls, weight: QuantizedWeight, dtype: torch.dtype | None = None
    ) -> Linear:
        """Take one layer of ``mixed_gemm.open_checkpoint``.

        Args:
            weight: with int8 q.
            dtype: of the activations: float16, bfloat16 or float32; that of scales when None.

        Raises:
            ValueError: group_size is not a multiple of 16 (or -1), or q is float8.
        """
        if weight.is_fp8:
            raise ValueError(
                f"mixed_gemm.Linear: {weight.name} is float8_e4m3fn, and the weight of a Linear is "
                "integers. Hint: weight.requantize(), or weight.dequantize() for a dense layer"
            )
        weight = weight.to(weight.scales.dtype if dtype is None else dtype)
        return cls.from_quantized(
            weight.q,
            weight.scales,
            weight.zeros,
            weight.bias,
            weight.pre_scale,
            weight.permutation,
            bits=weight.bits,
            group_size=weight.group_size,
            zero_mode="sub" if weight.zeros is None else weight.zero_mode,
        )

    def to_quantized_weight(self, name: str = "") -> QuantizedWeight:
        """The inverse of :meth:`from_quantized_weight`: integers unpacked, the rest shared."""
        from ..weights.exchange import QuantizedWeight

        q = ops.unpack_weights(self.b_packed, self.bits, self.out_features, self.in_features)
        bias = None if self.bias is None else self.bias.detach()
        return QuantizedWeight(
            name=name,
            q=q,
            scales=self.scales,
            zeros=self.zeros,
            bits=self.bits,
            group_size=self.group_size,
            zero_mode=self.zero_mode,
            bias=bias,
            pre_scale=self.pre_scale,
            permutation=self.permutation,
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[N, K]`` weight in ``dtype`` (of the scales when None), with K in the order
        of the activations; without pre_scale."""
        weight = ops.dequantize_weights(
            self.b_packed,
            self.scales,
            self.zeros,
            bits=self.bits,
            group_size=self.group_size,
            zero_mode=self._op_zero_mode,
            n=self.out_features,
            k=self.in_features,
            dtype=dtype,
        )
        if self.permutation is None:
            return weight
        check_storage("mixed_gemm.Linear", permutation=self.permutation)
        return torch.empty_like(weight).index_copy_(1, self.permutation, weight)

    def to_float(self) -> nn.Linear:
        """A dense ``nn.Linear`` with the dequantized weight; pre_scale is folded into it. The bias
        is shared."""
        weight = self.dequantize(torch.float32)
        if self.pre_scale is not None:
            pre_scale = self.pre_scale.float()
            if self.permutation is not None:
                pre_scale = torch.empty_like(pre_scale).index_copy_(0, self.permutation, pre_scale)
            weight = weight * pre_scale
        linear = nn.Linear(
            self.in_features, self.out_features, bias=False, device="meta", dtype=self.scales.dtype
        )
        linear.weight = nn.Parameter(weight.to(self.scales.dtype))
        linear.bias = self.bias
        return linear.train(self.training)

    def reset_parameters(self) -> None:
        """Refused: integers cannot be drawn at random into something useful."""
        raise RuntimeError(
            "mixed_gemm.Linear: a quantized weight cannot be re-initialised. Hint: initialise an "
            "nn.Linear, then Linear.from_float"
        )

    def extra_repr(self) -> str:
        zero = "symmetric" if self.zeros is None else f"zero_mode={self.zero_mode}"
        extras = ", pre_scale=True" if self.pre_scale is not None else ""
        extras += ", permutation=True" if self.permutation is not None else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, bits={self.bits}, group_size={self.group_size}, "
            f"{zero}{extras}, dtype={str(self.scales.dtype).removeprefix('torch.')}"
        )

    # --- state: buffers, plus a tag that says how to read b_packed -----------------------------

    def _layer(self) -> QuantizedLayer:
        permuted = self.permutation is not None
        return QuantizedLayer(self.in_features, self.out_features, self.scheme, permuted)

    def _refuse_values(self, tensors: dict[str, Any], prefix: str) -> None:
        name = f"{prefix}mixed_gemm.Linear"
        refuse_non_finite({role: tensors.get(role) for role in FLOATS}, name)
        refuse_bad_permutation(tensors.get("permutation"), name)
