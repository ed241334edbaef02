"""``mixed_gemm.Linear``: ``nn.Linear`` whose weight is a ``QuantizedTensor``.

A subclass of ``nn.Linear``, so code that looks for linears (peft, tensor-parallel plans) finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.errors import ArgumentValueError
from ..weights import shards
from ..weights.integer import IntegerWeight
from ..weights.kinds import kind_of, storing
from ..weights.modules import holds
from ..weights.scheme import Scheme, refined
from ..weights.tensor import QuantizedTensor, part_problems
from ..weights.values import refuse_non_finite
from .base import QuantizedModule
from .joined import JoinedLayer
from .tracing import is_traced_through, typed

if TYPE_CHECKING:
    from ..weights.exchange import QuantizedWeight


@holds("linear")
class Linear(JoinedLayer, QuantizedModule, nn.Linear):
    """y = x @ w.T + bias, w stored in 4 or 8 bits.

    The constructor makes a module that computes w = 0, to be filled by ``load_state_dict``; use
    :meth:`from_float`, :meth:`from_weight` or ``mixed_gemm.quantize_`` to get a useful one. Without
    an argument on how to quantize it makes a dense ``nn.Linear``, as code expects that calls
    ``type(layer)(in_features, out_features)``.

    Args:
        in_features: K.
        out_features: N.
        bias: whether to have one; it is an ``nn.Parameter`` and may train.
        scheme: a name ("w4a16", "w8a16", "w8a8", "fp8", ...) or a :class:`mixed_gemm.Scheme`.
        bits, group_size, zero_mode, activations: what of it is another way; see ``Scheme``.
        pre_scale: whether activations are multiplied by a ``[K]`` vector first (AWQ, SmoothQuant).
        permutation: whether activations are reordered along K before that (GPTQ act-order).
        device: of everything. dtype: of the scales, bias and pre_scale, and so of the activations.

    Attributes:
        is_conv1d: it stands for a ``Conv1D`` of transformers, which other readers of its files
            would fill with a weight ``[K, N]``.
        weight: a frozen parameter, a :class:`mixed_gemm.QuantizedTensor`. Its parts (b_packed,
            scales, ...) are plain tensors in a state_dict, beside a tag with the layout version.

    Raises:
        ValueError: an argument is out of range, or the scheme does not fit the shape.
    """

    title: ClassVar[str] = "mixed_gemm.Linear"
    dense_class: ClassVar[type[nn.Module]] = nn.Linear
    weight: QuantizedTensor
    is_conv1d: bool = False
    can_be_stacked: ClassVar[bool] = True  # whether its forward is the product and nothing else
    is_spread: bool = False  # whether ranks hold shards of it, which they may gather for a call

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        scheme: str | Scheme = "w4a16",
        bits: int | None = None,
        group_size: int | None = None,
        zero_mode: str | None = None,
        activations: str | None = None,
        pre_scale: bool = False,
        permutation: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Module.__init__(self)  # nn.Linear's would allocate the dense weight
        found = refined(
            self.title, scheme, bits=bits, group_size=group_size, zero_mode=zero_mode,
            activations=activations,
        )  # fmt: skip
        self.in_features = in_features
        self.out_features = out_features
        dtype = dtype or torch.get_default_dtype()
        shape = (out_features, in_features)
        self.set_weight(
            kind_of(self.title, found, shape).empty(
                shape,
                found,
                device=device,
                dtype=dtype,
                pre_scale=pre_scale,
                permutation=permutation,
            )
        )
        self.make_bias(out_features if bias else None, dtype, device)

    @typed
    def forward(self, input: Tensor) -> Tensor:
        """``[..., K]`` -> ``[..., N]``, in the dtype of ``input`` (or of autocast).

        Args:
            input: in the dtype of the weight, or float32, which a 16-bit weight rounds on the way
                in; any strides; no rows are fine.

        Raises:
            What the op of the kind of weight raises, ``fpA_intB_gemm`` or ``scaled_mm``.
        """
        if is_traced_through(input):  # the weight stays a parameter of the graph
            return nn.functional.linear(input, self.weight, self.bias)
        plain = self.plain_weight
        if plain is not None:
            found = None if self.piece is None else self.joined_product(input, plain)
            return plain.product(input, self.plain_bias) if found is None else found
        if self._sharded() is not None:
            return shards.linear(input, self.weight, self.bias)
        return nn.functional.linear(input, self.weight, self.bias)  # dense again

    def _plain_of(self, weight: Any) -> Any:
        """The plain parts that ``forward`` multiplies by; of a sharded weight those of this
        rank."""
        if isinstance(getattr(weight, "_local_tensor", None), QuantizedTensor):
            self.__dict__["is_spread"] = True
            return shards.plain_shard(weight)
        return super()._plain_of(weight)

    @property
    def own_weight(self) -> Any:
        """The weight that calls on this rank multiply by."""
        return self._parameters.get("weight")

    @property
    def own_bias(self) -> Any:
        """The bias that calls on this rank add, or None."""
        return self._parameters.get("bias")

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """:meth:`forward` and an activation in one kernel, for weights that fuse it.

        Args:
            input: ``[..., K]``. activation: of ``mixed_gemm.fpA_intB_gemm``.
        """
        out: Tensor = self.plain_weight.product(input, self.plain_bias, activation)
        return out

    @classmethod
    def from_weight(cls, weight: QuantizedTensor, bias: Tensor | None = None) -> Linear:
        """A module around a quantized weight, which is shared.

        Args:
            weight: ``[N, K]``.
            bias: ``[N]`` in the dtype of the weight, or None; a parameter is shared.

        Raises:
            ValueError: the bias does not fit the weight, or holds NaN or Inf.
        """
        module: Linear = cls.__new__(cls)
        nn.Module.__init__(module)
        module.out_features, module.in_features = weight.shape
        if bias is not None and bias.dtype != weight.dtype:
            raise ArgumentValueError(
                f"{cls.title}: bias must be {weight.dtype} as the weight, got {bias.dtype}"
            )
        tensors = {**weight.tensors(), "bias": bias}
        if problems := part_problems(type(weight), tuple(weight.shape), weight.scheme, tensors):
            raise ArgumentValueError(f"{cls.title}: " + "; ".join(problems))
        if bias is not None and not isinstance(bias, nn.Parameter):
            bias = nn.Parameter(bias.detach())
        module.set_weight(weight)
        module.register_parameter("bias", bias)
        return module

    @classmethod
    def of_shard(cls, weight: Any, bias: Any, scheme: Scheme) -> Linear:
        """A module around a weight that is sharded over ranks.

        Args:
            weight: a DTensor ``[N, K]`` of quantized shards. bias: a DTensor ``[N]``, or None.
            scheme: of the whole weight, whose groups the shards may have made smaller.
        """
        module: Linear = cls.__new__(cls)
        nn.Module.__init__(module)
        module.out_features, module.in_features = weight.shape
        module.weight = nn.Parameter(weight, requires_grad=False)  # type: ignore[assignment]
        module._scheme = scheme
        if bias is not None and not isinstance(bias, nn.Parameter):
            bias = nn.Parameter(bias)
        module.register_parameter("bias", bias)
        return module

    @classmethod
    def of_share(cls, weight: Any, bias: Any, scheme: Scheme) -> Linear:
        """:meth:`of_shard` by the name it had.

        Args:
            weight, bias, scheme: see there.
        """
        return cls.of_shard(weight, bias, scheme)

    @classmethod
    def from_float(
        cls,
        linear: nn.Linear,
        scheme: str | Scheme = "w4a16",
        *,
        bits: int | None = None,
        group_size: int | None = None,
        symmetric: bool | None = None,
        zero_mode: str | None = None,
        activations: str | None = None,
        **statistics: Any,
    ) -> Linear:
        """Quantize an ``nn.Linear`` by rounding to nearest.

        Args:
            linear: with a float16, bfloat16 or float32 weight on any device, meta included. Its
                bias is shared with the result, not copied.
            scheme: a name or a :class:`mixed_gemm.Scheme`.
            bits, group_size, symmetric, zero_mode, activations: what of it is another way. Where
                not symmetric, zero_mode "sub" stores zero points as exact integers, "add" as
                -zero * scale, rounded to the dtype.
            statistics: what calibration found, where the kind of weight takes it: ``input_range``,
                ``smoothing`` and ``folded`` of ``W8A8Weight.from_float``.

        Raises:
            ValueError: a scalar is out of range (``group_size`` above K, say), or a weight is NaN
                or Inf.
            TypeError: the weight has another dtype.
        """
        found = refined(
            f"{cls.title}.from_float", scheme, bits=bits, group_size=group_size,
            symmetric=symmetric, zero_mode=zero_mode, activations=activations,
        )  # fmt: skip
        shape = (linear.out_features, linear.in_features)
        kind: Any = kind_of(f"{cls.title}.from_float", found, shape)
        return cls.around(kind.from_float(linear.weight, found, **statistics), linear)

    @classmethod
    def around(cls, weight: QuantizedTensor, linear: nn.Linear) -> Linear:
        """A module that takes the place of ``linear``, whose bias it shares.

        Args:
            weight: ``[N, K]``, shared too.
            linear: gives the module its bias and mode (training or not).
        """
        return cls.from_weight(weight)._in_place_of(linear)

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
        """Take an integer weight that is quantized already, as a checkpoint loader has it.

        Args:
            q: int8 ``[N, K]``, values in the range of ``bits``.
            scales: ``[G, N]``; its dtype is the module's.
            zeros: ``[G, N]`` or None (symmetric; ``zero_mode`` is then ignored).
            bits: 4 or 8.
            group_size: elements of K that share a scale: -1 (all) or a multiple of 16.
            zero_mode: "sub" is w = (q - zero) * scale, "add" is w = q * scale + zero.
            bias: ``[N]`` or None. pre_scale: ``[K]`` or None.
            permutation: int64 ``[K]`` or None: column j of q (and pre_scale[j]) belongs to
                activation permutation[j].

        Raises:
            ValueError: a scalar is out of range, or a tensor does not fit the rest, has lost its
                storage or holds a value it must not.
            TypeError: ``q`` is not int8.
        """
        where = f"{cls.title}.from_quantized"
        weight = IntegerWeight.from_quantized(
            q,
            scales,
            zeros,
            pre_scale,
            permutation,
            bits=bits,
            group_size=group_size,
            zero_mode=zero_mode,
            where=where,
        )
        refuse_non_finite({"bias": bias}, where, ("bias",))
        return cls.from_weight(weight, bias)

    @classmethod
    def from_quantized_weight(
        cls, weight: QuantizedWeight, dtype: torch.dtype | None = None
    ) -> Linear:
        """Take one layer of ``mixed_gemm.open_checkpoint``.

        Args:
            weight: of any kind.
            dtype: of the activations: float16, bfloat16 or float32; that of scales when None.

        Raises:
            ValueError: group_size of integers is not a multiple of 16 (or -1).
        """
        dtype = weight.scales.dtype if dtype is None else dtype
        if storing(weight.scheme, 2) is None:
            weight = weight.weight_only()
        kind = kind_of(f"{cls.title}: {weight.name}", weight.scheme, weight.shape)
        bias = None if weight.bias is None else weight.bias.to(dtype)
        module = cls.from_weight(kind.store(weight, dtype), bias)
        module.is_conv1d = weight.is_conv1d
        return module

    def to_quantized_weight(self, name: str = "") -> QuantizedWeight:
        """The inverse of :meth:`from_quantized_weight`: integers unpacked, the rest shared.

        Args:
            name: of the layer in a checkpoint.

        Raises:
            ValueError: this kind of weight has no such form, or the weight is dense now.
        """
        self._refuse_dense("to_quantized_weight")
        weight, bias = self.whole()
        module = "conv1d" if self.is_conv1d else "linear"
        return weight.unpacked(name).with_fields(bias=bias, module=module)

    def whole(self) -> tuple[QuantizedTensor, Tensor | None]:
        """The quantized weight ``[N, K]`` and the bias ``[N]``, of all ranks together where they
        are sharded over several; every rank has to call it then.

        Raises:
            ValueError: the weight is sharded otherwise than by ``Shard`` and ``Replicate``.
        """
        bias: Any = None if self.bias is None else self.bias.detach()
        if hasattr(bias, "full_tensor"):
            bias = bias.full_tensor()
        sharded = self._sharded()
        if sharded is None:
            return self.weight, bias
        return shards.whole(sharded, self.scheme), bias

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[N, K]`` weight in ``dtype`` (of the weight when None), such that the module
        computes x @ w.T + bias: a pre_scale is multiplied in, and K is in the order of the
        activations."""
        weight: Any = self.whole()[0] if self.is_quantized else None
        return self._dense_value(dtype) if weight is None else weight.dequantize(dtype)

    def to_float(self) -> nn.Linear:
        """A dense ``nn.Linear`` with the dequantized weight. The bias is shared."""
        dtype = self.weight.dtype
        linear = nn.Linear(
            self.in_features, self.out_features, bias=False, device="meta", dtype=dtype
        )
        return self._like(linear)

    def extra_repr(self) -> str:
        text = (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
        weight, sharded = self._quantized(), self._sharded()
        if sharded is not None:
            return f"{text}, scheme=({self.scheme}), spread over ranks by {sharded.placements}"
        if weight is None:
            return text
        extras = [x for x in ("pre_scale", "permutation") if x in weight.tensors()]
        more = "".join(f", {name}=True" for name in extras)
        dtype = str(weight.dtype).removeprefix("torch.")
        return f"{text}, scheme=({weight.scheme}){more}, dtype={dtype}"

    # --- the parts of an integer weight, by name -------------------------------------------------

    @property
    def group_size(self) -> int:
        """Elements of K that share a scale; -1 is all of them."""
        return self.scheme.group_size

    @property
    def zero_mode(self) -> str:
        """ "none", "sub" or "add"."""
        return self.scheme.zero_mode

    @property
    def b_packed(self) -> Tensor:
        """uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]``."""
        return self._part("b_packed")

    @property
    def scales(self) -> Tensor:
        """``[G, N]``."""
        return self._part("scales")

    @property
    def zeros(self) -> Tensor | None:
        """``[G, N]`` or None."""
        return self.weight.tensors().get("zeros")

    @property
    def pre_scale(self) -> Tensor | None:
        """``[K]`` or None."""
        return self.weight.tensors().get("pre_scale")

    @property
    def permutation(self) -> Tensor | None:
        """int64 ``[K]`` or None."""
        return self.weight.tensors().get("permutation")

    def _part(self, name: str) -> Tensor:
        """Return a part that not every kind of weight has."""
        found: Tensor = getattr(self.weight, name)
        return found
