"""``mixed_gemm.Embedding``: ``nn.Embedding`` whose rows are stored in 4 or 8 bits.

A subclass of ``nn.Embedding``, so code that looks for embeddings finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops.errors import wrong_value
from ..weights.kinds import kind_of, storing
from ..weights.modules import holds
from ..weights.packed import PackedWeight
from ..weights.rows import ROWS, RowsWeight
from ..weights.scheme import Scheme, refined
from ..weights.tensor import QuantizedTensor
from .base import QuantizedModule
from .own_embedding import empty_like, own_class
from .tracing import is_traced_through, typed

if TYPE_CHECKING:
    from ..weights.exchange import QuantizedWeight


def why_not_embedding(module: nn.Embedding) -> str:
    """Why an embedding cannot become a ``mixed_gemm.Embedding``; empty when it can."""
    return "" if module.max_norm is None else "writes into its weight (max_norm)"


def rows_kind(
    where: str, scheme: Scheme | str | None, shape: tuple[int, ...]
) -> tuple[type[RowsWeight] | type[PackedWeight], Scheme]:
    """The kind of weight that rows of a scheme are looked up in, and the scheme.

    Args:
        where: what an error names. scheme: None is rows of int8. shape: (V, D).

    Raises:
        ValueError: it is no scheme of packed codes whose activations are left alone, or it does not
            fit the shape.
    """
    if scheme is None:
        return RowsWeight, ROWS
    found = refined(where, scheme)
    kind = storing(found, 2)
    if kind is None or not issubclass(kind, PackedWeight):
        wrong_value(
            where, "scheme", "be of packed codes whose activations are left alone", str(found),
            hint="'w8a16', 'w4a16', 'mxfp4', 'nvfp4' or 'nf4'",
        )  # fmt: skip
    kind_of(where, found, shape)  # refuses groups that do not fit
    return kind, found


@holds("embedding")
class Embedding(QuantizedModule, nn.Embedding):
    """Rows of an embedding, each int8 with a scale of its own: row = q * scale, rounded once. Or
    those of a packed weight, by which an output head that is tied to it multiplies, too.

    The constructor makes a module of zeros, to be filled by ``load_state_dict``; use
    :meth:`from_float` or ``mixed_gemm.quantize_(model, embeddings=True)`` to get a useful one.
    Without ``bits`` it makes a dense ``nn.Embedding``, as code expects that calls
    ``type(layer)(num_embeddings, embedding_dim)``.

    Args:
        num_embeddings: V. embedding_dim: D.
        padding_idx: as in ``nn.Embedding``; it looks up like the others.
        bits: 8.
        scheme: of a packed weight, such as "w8a16"; None is rows of int8.
        device: of everything. dtype: of the rows that are looked up.

    Attributes:
        weight: a frozen parameter, a :class:`mixed_gemm.QuantizedTensor` ``[V, D]``. Its parts
            (weight_int8, weight_scale; b_packed, scales, ...) are plain tensors in a state_dict,
            beside a tag.

    Raises:
        ValueError: ``bits`` is not 8, or the scheme is none of packed codes, or does not fit.
    """

    title: ClassVar[str] = "mixed_gemm.Embedding"
    dense_class: ClassVar[type[nn.Module]] = nn.Embedding
    parameter_names: ClassVar[tuple[str, ...]] = ("weight",)
    weight: RowsWeight | PackedWeight

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        bits: int = ROWS.bits,
        scheme: Scheme | str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if bits != ROWS.bits:
            wrong_value(self.title, "bits", f"be {ROWS.bits}", str(bits))
        nn.Module.__init__(self)  # nn.Embedding's would allocate the dense weight
        template = nn.Embedding(num_embeddings, embedding_dim, padding_idx, device="meta")
        for name in ("max_norm", "norm_type", "scale_grad_by_freq", "sparse", "padding_idx"):
            setattr(self, name, getattr(template, name))
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        shape = (num_embeddings, embedding_dim)
        kind, scheme = rows_kind(self.title, scheme, shape)
        self.set_weight(kind.empty(shape, scheme, device=device, dtype=dtype))

    @typed
    def forward(self, input: Tensor) -> Tensor:
        """int ``[...]`` -> ``[..., D]`` in the dtype of the weight.

        Args:
            input: int32 or int64, in 0..V - 1.

        Raises:
            What ``nn.Embedding`` raises for indices that are none.
        """
        plain = self.plain_weight
        if plain is not None and not is_traced_through(input):
            return plain.rows(input)  # type: ignore[no-any-return]
        return nn.functional.embedding(input, self.weight, self.padding_idx)  # sharded, or dense

    @classmethod
    def around(cls, weight: QuantizedTensor, embedding: nn.Embedding) -> Embedding:
        """A module that takes the place of ``embedding``. One of a class of its model, such as
        Gemma's, which scales rows, becomes a module of that class, too: its forward runs on
        quantized rows.

        Args:
            weight: ``[V, D]``, shared.
            embedding: gives the module its padding_idx and mode (training or not).
        """
        if own_class(embedding) is not nn.Embedding:
            made: Embedding = empty_like(embedding, Embedding)
            made.set_weight(weight)
            return made
        module = cls.of_rows(weight)
        module.padding_idx = embedding.padding_idx
        return module.train(embedding.training)

    @classmethod
    def from_float(cls, embedding: nn.Embedding, scheme: Scheme | str | None = None) -> Embedding:
        """Round the rows of an ``nn.Embedding`` to nearest.

        Args:
            embedding: with a float16, bfloat16 or float32 weight, and no ``max_norm``.
            scheme: as of the constructor.

        Raises:
            ValueError: it has a ``max_norm``, a weight is NaN or Inf, or the scheme is none of
                packed codes, or does not fit.
            TypeError: the weight has another dtype.
        """
        if reason := why_not_embedding(embedding):
            raise ValueError(f"{cls.title}.from_float: {embedding} {reason}")
        shape = tuple(embedding.weight.shape)
        kind, found = rows_kind(f"{cls.title}.from_float", scheme, shape)
        return cls.around(kind.from_float(embedding.weight, found), embedding)

    @classmethod
    def from_quantized_weight(
        cls, weight: QuantizedWeight, dtype: torch.dtype | None = None
    ) -> Embedding:
        """Take an embedding of ``mixed_gemm.open_checkpoint``.

        Args:
            weight: whose ``is_embedding`` holds. dtype: of the rows; that of scales when None.

        Raises:
            ValueError: it is stored otherwise than rows of int8 or packed codes.
        """
        asked = None if weight.scheme == ROWS else weight.scheme
        kind, _ = rows_kind(f"{cls.title}: {weight.name}", asked, weight.shape)
        return cls.of_rows(kind.store(weight, weight.scales.dtype if dtype is None else dtype))

    @classmethod
    def of_rows(cls, weight: QuantizedTensor) -> Embedding:
        """A module around rows that are quantized already, which are shared.

        Args:
            weight: ``[V, D]``.
        """
        rows, columns = weight.shape
        module = cls(rows, columns, bits=ROWS.bits, device="meta", dtype=weight.dtype)
        module.set_weight(weight)
        return module

    def to_quantized_weight(self, name: str = "") -> QuantizedWeight:
        """The inverse of :meth:`from_quantized_weight`.

        Args:
            name: of the module in a checkpoint.

        Raises:
            ValueError: the weight is dense now.
        """
        self._refuse_dense("to_quantized_weight")
        return self.weight.unpacked(name).with_fields(module="embedding")

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense ``[V, D]`` weight in ``dtype`` (of the weight when None)."""
        return self._dense_value(dtype)

    def to_float(self) -> nn.Embedding:
        """A dense ``nn.Embedding`` with the dequantized rows."""
        rows, columns = self.weight.shape
        dense = nn.Embedding(rows, columns, self.padding_idx, device="meta")
        dense.weight = nn.Parameter(self._dense_value())
        return dense.train(self.training)

    def extra_repr(self) -> str:
        text: Any = super().extra_repr()
        dtype = str(self.weight.dtype).removeprefix("torch.")
        return f"{text}, scheme=({self.scheme}), dtype={dtype}"
