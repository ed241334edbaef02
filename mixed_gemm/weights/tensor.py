"""``QuantizedTensor``: a weight in 4 or 8 bits that torch sees as the dense tensor it stands for.

It has the shape and the dtype of the dense weight and holds the packed parts. ``mixed_gemm.Linear``
asks it for the product straight; everybody else (tensor parallelism, FSDP2, adapters) goes through
torch's operators, which ``dispatch`` answers. A kind of weight is a subclass: ``integer``,
``w8a8``, ``w8a8_block``, ``fp8``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .._after_import import after_import
from ..ops.errors import dtype_name, shape_text, wrong_type, wrong_value
from ..ops.problem import DTYPES
from .dependents import fill, tell_views
from .fsdp2 import gather_from, gathered
from .memory import Storageless
from .plain import plain_kind
from .question import Question
from .rebuilding import as_parameter, copied, reduced
from .rules import answer
from .scheme import Scheme
from .writing import rounded_like, spliced

if TYPE_CHECKING:
    from .exchange import QuantizedWeight

Self = TypeVar("Self", bound="QuantizedTensor")


PART_NAMES: set[str] = set()  # the names of all parts of all kinds of weights


@dataclass(frozen=True)
class Part:
    """One plain tensor inside a quantized weight.

    name: of the attribute, and in a state_dict.
    dtypes: that it may have.
    follows: whether a cast of the weight casts it too; all that follow share the weight's dtype.
    finite: whether NaN and infinity are refused when it is loaded.
    rows: its dimension that runs along the output channels, in blocks of ``PAD_N`` where it is the
        packed weight; None where it has none.
    derived: whether it follows from the other parts (``QuantizedTensor.derive``). It is in no
        state_dict: loading one works it out again, so that it always belongs to the rest. A weight
        that was pickled before there was such a part does without: the class has None for it.
    """

    name: str
    dtypes: tuple[torch.dtype, ...] = DTYPES
    follows: bool = True
    finite: bool = True
    rows: int | None = None
    derived: bool = False

    def __post_init__(self) -> None:
        PART_NAMES.add(self.name)


def _autocasts(x: Tensor) -> bool:
    """torch refuses the question for meta tensors."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def narrows(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether activations are float32 and a weight of ``dtype`` is not, outside of autocast. They
    are rounded on the way in then, and the product is float32 again: where adapters train, norms
    and what flows between layers are float32.

    A function and no method: torch.compile takes a method of a tensor for an op, which returns
    tensors.

    Args:
        x: the activations, of any shape.
        dtype: of the weight.
    """
    return x.dtype == torch.float32 and dtype != torch.float32 and not _autocasts(x)


def check_columns(x: Tensor, k: int) -> None:
    """Refuse activations of another K. An op of packed weights knows K up to its padding only.

    Args:
        x: the activations. k: of the weight.
    """
    if x.dim() == 0 or x.shape[-1] != k:
        wrong_value("mixed_gemm.Linear", "input", f"be [..., K={k}]", shape_text(x.shape))


def under_autocast(x: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """``x`` and what goes with it, in the dtype of autocast where that is on.

    Args:
        x: the activations, of any shape; float64 stays.
        others: of any dtype, or None, which stays.
    """
    if not _autocasts(x) or x.dtype == torch.float64:
        return x, *others
    dtype = torch.get_autocast_dtype(x.device.type)
    return tuple(None if tensor is None else tensor.to(dtype) for tensor in (x, *others))


def _is_view_of_usual(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator returns a view of tensors that were made outside of inference mode, which
    is then a tensor like them."""
    made_there = any(isinstance(x, Tensor) and x.is_inference() for x in args)
    return getattr(func, "is_view", False) and not made_there


class Dispatched(Storageless):
    """A tensor whose operators are those of ``rules``; it has no numbers of its own."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if torch.is_inference_mode_enabled() and _is_view_of_usual(func, args):
            with torch.inference_mode(False), torch.no_grad():
                return answer(func, args, kwargs or {})
        return answer(func, args, kwargs or {})


def _keep_dynamo_out() -> None:
    """Where a graph of torch.compile breaks, dynamo compiles what runs in between. The answer to an
    operator is nothing that it can look into: it would drop what is written."""
    answer: Any = Dispatched.__torch_dispatch__
    disabled: Any = torch.compiler.disable(answer.__func__)  # type: ignore[no-untyped-call]
    Dispatched.__torch_dispatch__ = classmethod(disabled)  # type: ignore[assignment,method-assign]


after_import("torch._dynamo", _keep_dynamo_out)  # which takes seconds, for those who compile


class QuantizedTensor(Dispatched):
    """A quantized weight: of a linear ``[N, K]`` or a convolution ``[Co, Ci, Kh, Kw]``.

    ``shape``, ``dtype`` and ``device`` are those of the dense weight, ``dequantize()`` is its
    value. It takes part in torch's operators: products run on the packed weight, slices of it stay
    quantized, and everything else sees the dense value; what is written, through views and slices
    too, is rounded to its scheme again. It never requires grad: packed weights do not train.

    Attributes:
        scheme: how the numbers are stored.
        parts: of the class: the plain tensors inside, in the order of a state_dict. Each is an
            attribute by its name, and None where the scheme has no such part.

    Args:
        tensors: part -> plain tensor; or a quantized weight of any shape, which becomes a parameter
            that shares its parts: other libraries rebuild parameters so.
        scheme, shape, dtype: of the weight, where ``tensors`` are its parts.
        others: ``requires_grad``, which is False, and attributes of a parameter that is rebuilt.

    Made by ``from_float``, ``from_quantized`` and ``empty`` of its kinds, ``mixed_gemm.weights.
    IntegerWeight``, ``W8A8Weight``, ``W8A8BlockWeight``, ``Fp8Weight``, ``Fp8WeightOnly``,
    ``ConvWeight``, ``Int8ConvWeight`` and ``RowsWeight``.
    """

    kind: ClassVar[str]
    parts: ClassVar[tuple[Part, ...]]
    fuses: ClassVar[tuple[str, ...]] = ()  # activations that its kernel runs, too
    module: ClassVar[str] = "linear"  # the name in ``modules`` of the class that holds it
    scheme: Scheme

    @staticmethod
    def __new__(
        cls: type[Self],
        tensors: Mapping[str, Tensor | None] | Tensor,
        scheme: Scheme | None = None,
        shape: tuple[int, ...] | torch.Size = (),
        dtype: torch.dtype | None = None,
        **others: Any,
    ) -> Self:
        if isinstance(tensors, Tensor):  # a parameter that somebody rebuilds with its class
            return as_parameter(cls, QuantizedTensor, tensors, **others)
        first = tensors[cls.parts[0].name]
        assert first is not None and dtype is not None
        made: Self = cls._wrap(shape, dtype, first.device)
        return made

    def __init__(
        self,
        tensors: Mapping[str, Tensor | None] | Tensor,
        scheme: Scheme | None = None,
        shape: tuple[int, ...] | torch.Size = (),
        dtype: torch.dtype | None = None,
        **others: Any,
    ) -> None:
        if isinstance(tensors, Tensor):
            return
        assert scheme is not None
        self.scheme = scheme
        # As torch has them, which exchanges these after attributes where two tensors are swapped.
        self.dense_form = (tuple(shape), dtype)
        # (weight, dimension, first index) where this is a slice of another, of rows (0) or columns
        # (1): writing goes through to that.
        self.piece_of: tuple[QuantizedTensor, int, int] | None = None
        if any(part.derived and tensors.get(part.name) is None for part in self.parts):
            assert dtype is not None
            tensors = {**self.derive(tensors, scheme, tuple(shape), dtype), **_there(tensors)}
        for part in self.parts:
            setattr(self, part.name, tensors.get(part.name))

    # --- what a kind of weight says ------------------------------------------------------------

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        """Whether weights of ``dims`` dimensions are of this kind when stored by this scheme."""
        raise NotImplementedError

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        """Why a weight of this shape cannot be stored by a scheme of this kind; empty when it
        can."""
        raise NotImplementedError

    @classmethod
    def empty(
        cls: type[Self],
        shape: tuple[int, ...],
        scheme: Scheme,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **extras: bool,
    ) -> Self:
        """A weight of zeros, to be filled by ``load_state_dict``.

        Args:
            shape: of the dense weight. scheme: how to store it.
            device: of all parts. dtype: of the dense weight; torch's default when None.
            extras: which optional parts it has, such as ``pre_scale=True``.
        """
        dtype = dtype or torch.get_default_dtype()
        shapes = cls.shapes(shape, scheme)
        wanted = cls.present(scheme) | {name for name, asked in extras.items() if asked}
        tensors = {
            part.name: torch.zeros(
                shapes[part.name], dtype=dtype if part.follows else part.dtypes[0], device=device
            )
            for part in cls.parts
            if part.name in wanted
        }
        return cls(cls.neutral(tensors), scheme, shape, dtype)

    @classmethod
    def neutral(cls, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The parts of an empty weight with neutral values where zero is none.

        Args:
            tensors: part -> tensor in the shape that :meth:`shapes` says; changed in place.
        """
        if "pre_scale" in tensors:
            tensors["pre_scale"].fill_(1)
        if "permutation" in tensors:
            order = tensors["permutation"]
            tensors["permutation"] = torch.arange(order.numel(), device=order.device)
        return tensors

    @classmethod
    def derive(
        cls,
        tensors: Mapping[str, Tensor | None],
        scheme: Scheme,
        shape: tuple[int, ...] = (),
        dtype: torch.dtype | None = None,
    ) -> dict[str, Tensor]:
        """The derived parts, worked out from the others. A weight that is made without them has
        them from here.

        Args:
            tensors: part -> tensor, or None. scheme: of the weight.
            shape, dtype: of the weight, which kinds need whose derived parts depend on them.
        """
        return {}

    @classmethod
    def renamed(cls, tensors: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """The entries of a state_dict as this kind has them, where it has the same numbers in other
        parts: those of an older version, or of a kind that stores the same schemes.

        Args:
            tensors: name -> what the state_dict has. shape: of the dense weight.
        """
        return dict(tensors)

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        """Names of the parts that every weight of this scheme has."""
        raise NotImplementedError

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        """Part -> its shape.

        Args:
            shape: of the dense weight. scheme: that stores it.
        """
        raise NotImplementedError

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        """The tag of a weight in a checkpoint, as JSON: all but its tensors.

        Args:
            shape: of the dense weight. scheme: that stores it.
            permuted: whether it has a permutation of its columns.
        """
        raise NotImplementedError

    @classmethod
    def from_float(cls: type[Self], weight: Tensor, scheme: Scheme) -> Self:
        """Round a dense weight to nearest.

        Args:
            weight: float16, bfloat16 or float32 ``[N, K]`` (a filter ``[Co, Ci, Kh, Kw]``).
            scheme: that this kind stores.
        """
        raise NotImplementedError

    @classmethod
    def store(cls: type[Self], weight: QuantizedWeight, dtype: torch.dtype) -> Self:
        """Take a weight that is quantized already, as a checkpoint has it.

        Args:
            weight: of a scheme that this kind stores. dtype: of the activations.

        Raises:
            ValueError: a tensor of it does not fit the rest, or holds a value it must not.
        """
        raise NotImplementedError

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ w.T + bias`` (a convolution has its own way): the only call of the op. Kinds that
        fuse activations take the name of one as well.

        Args:
            x: ``[..., K]``. bias: ``[N]`` or None.

        Returns:
            ``[..., N]`` in the dtype of ``x`` (or of autocast).

        Raises:
            What the op raises.
        """
        raise NotImplementedError

    def question(self, m: int, out: str, where: str) -> Question | None:
        """The product, as ``plan`` asks for its kernel; None where it is that of ``fpA_intB_gemm``
        with the numbers of the scheme.

        Args:
            m: rows of the activations. out: the dtype of the result.
            where: the device, as the library knows it.
        """
        return None

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The dense weight in ``dtype`` (its own when None), such that ``x @ w.T`` is the product:
        a pre_scale is multiplied in and columns are in the order of the activations.

        Raises:
            ValueError: a part has lost its storage.
        """
        raise NotImplementedError

    def requantized(self: Self, dense: Tensor) -> Self:
        """A dense weight rounded to nearest as this one is stored, with its pre_scale and order.

        Args:
            dense: of the shape of this weight, any float dtype.
        """
        raise NotImplementedError

    def keeping(self: Self, old: Self, same: Tensor) -> Self:
        """This weight with some of the rows of another, to the bit.

        Args:
            old: of this kind and scheme, of any number of rows.
            same: bool ``[N]``: the rows that become those of ``old``, which has them. A scale that
                several rows share is taken from ``old`` where it has all of these.
        """
        parts = self.tensors()
        for part in self.parts:
            if part.rows is not None and part.name in parts:
                before = getattr(old, part.name)
                parts[part.name] = spliced(parts[part.name], before, same, part.rows)
        return type(self)(parts, self.scheme, self.shape, self.dtype)

    def cut(self: Self, dim: int, start: int, stop: int) -> Self:
        """Rows (dim 0) or columns (dim 1) ``start`` to ``stop``, with storage of their own.

        Raises:
            ValueError: a group of columns that share a scale would be cut in two, or the columns
                are permuted.
        """
        raise NotImplementedError

    @classmethod
    def join(cls: type[Self], weights: list[Self]) -> Self:
        """The inverse of :meth:`cut` along dim 0.

        Args:
            weights: of one scheme, the rows of the first in front.
        """
        raise NotImplementedError

    @classmethod
    def join_columns(cls: type[Self], weights: list[Self], group_size: int | None = None) -> Self:
        """The inverse of :meth:`cut` along dim 1.

        Args:
            weights: of one number of rows, the columns of the first in front.
            group_size: columns that share a scale in the result, where the kind has groups; the
                largest that the shards allow when None.

        Raises:
            ValueError: the shards are not stored alike.
        """
        raise NotImplementedError

    def scheme_of_rows(self, count: int) -> Scheme:
        """The scheme of one of the shards of ``count`` rows which :meth:`cut` makes of this weight,
        all of them of that size.

        Args:
            count: of rows, at least one.
        """
        return self.scheme

    def unpacked(self, name: str = "") -> QuantizedWeight:
        """Plain codes, scales and zero points, as checkpoint formats take them.

        Args:
            name: of the layer, for errors.

        Raises:
            ValueError: this kind of weight has no such form.
        """
        raise NotImplementedError

    # --- parts ---------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Name -> plain tensor, of the parts that are there."""
        return _there({part.name: getattr(self, part.name) for part in self.parts})

    def stored(self) -> dict[str, Tensor]:
        """Name -> plain tensor, of the parts that a state_dict has: all but the derived ones."""
        derived = {part.name for part in self.parts if part.derived}
        return {name: tensor for name, tensor in self.tensors().items() if name not in derived}

    def derive_again(self) -> None:
        """Bring the derived parts in line, in place, after others were written into, and views."""
        form = tuple(self.shape), self.dtype
        for name, tensor in self.derive(self.tensors(), self.scheme, *form).items():
            if (mine := getattr(self, name)) is not None:
                mine.copy_(tensor)
        tell_views(self)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def with_parts(
        self: Self,
        change: Callable[[Tensor], Tensor],
        *,
        shape: tuple[int, ...] | torch.Size | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """The same weight with every part changed.

        Args:
            change: part, of any shape -> what takes its place.
            shape, dtype: of the weight then; as now when None.
        """
        parts = {name: change(tensor) for name, tensor in self.tensors().items()}
        return type(self)(parts, self.scheme, shape or self.shape, dtype or self.dtype)

    def cast(self: Self, dtype: torch.dtype) -> Self:
        """The same weight in another dtype, by its parts: torch's ``to`` asks for an operator,
        which is the wrong thing inside one."""
        if dtype == self.dtype:
            return self
        fitted = self.fitted(dtype)
        parts = {
            part.name: tensor.to(dtype) if part.follows else tensor
            for part in self.parts
            if (tensor := getattr(fitted, part.name)) is not None
            and not (part.derived and part.follows)
        }
        return type(self)(parts, self.scheme, self.shape, dtype)

    def fitted(self: Self, dtype: torch.dtype) -> Self:
        """The same weight, in its own dtype still, by scales that a cast to ``dtype`` does not
        lose; itself where it has no others."""
        return self

    def weight_written(self) -> None:
        """Take the rows or columns of the weight that this is a slice of, which was written."""
        assert self.piece_of is not None
        whole, dim, start = self.piece_of
        fill(self, whole.cut(dim, start, start + self.shape[dim]))

    def adopt(self: Self, other: Self) -> None:
        """Hold the parts of ``other`` from now on, which may have another number of rows."""
        self.dense_form = other.dense_form
        for part in self.parts:
            setattr(self, part.name, getattr(other, part.name))
        plain = self.__dict__.get("_plain")
        if plain is not None:
            plain.hold(self)
            plain.tell()

    # --- the plain parts that modules multiply by ------------------------------------------------

    def plain(self) -> Any:
        """The parts of this weight as an object that is no tensor, with the methods of its kind:
        the same :class:`mixed_gemm.weights.plain.PlainWeight` at every call."""
        found = self.__dict__.get("_plain")
        if found is None:
            found = plain_kind(type(self), Dispatched)()
            found.hold(self)
            self._plain = found
        return found

    def written(self) -> None:
        """Tell the modules that multiply by this weight that its parts have other values now: what
        they worked out of them is stale."""
        plain = self.__dict__.get("_plain")
        if plain is not None:
            plain.tell()

    def __setattr__(self, name: str, value: Any) -> None:
        """Also brings the plain parts in line, where there are some."""
        if name == "__dict__":  # torch.utils.swap_tensors, which exchanges two tensors
            before, after = self.__dict__.get("_plain"), value.get("_plain")
            super().__setattr__(name, value)
            for plain in (before, after):
                if plain is not None:
                    plain.tell()
            return
        super().__setattr__(name, value)
        plain = self.__dict__.get("_plain")
        if plain is not None and name in plain.__dict__:
            setattr(plain, name, value)
            plain.part_replaced()

    def refuse_parts(self, tensors: Mapping[str, Tensor | None]) -> list[str]:
        """Every shape and dtype in ``tensors`` (by the names of parts, and "bias") that does not
        fit this weight."""
        return part_problems(type(self), tuple(self.shape), self.scheme, tensors)

    def tag(self) -> dict[str, Any]:
        """The tag of this weight in a checkpoint: all but its tensors."""
        permuted = getattr(self, "permutation", None) is not None
        shape = tuple(self.shape)
        return self.tag_of(shape, self.scheme, permuted)

    def stored_alike(self, other: Tensor) -> bool:
        """Whether ``other`` is stored as this weight is, so that it can take its place.

        Args:
            other: any tensor, of any shape.
        """
        return (
            type(other) is type(self)
            and other.scheme == self.scheme
            and other.tensors().keys() == self.tensors().keys()
        )

    def converted(self: Self, value: Tensor) -> Self:
        """``value`` as a weight that can take the place of this one.

        Args:
            value: of the shape of this weight, or of another number of rows.

        Raises:
            ValueError: its rows have another shape. TypeError: it is no float tensor.
        """
        rows = tuple(self.shape[1:])
        if value.dim() != self.dim() or tuple(value.shape[1:]) != rows or not value.shape[0]:
            wrong_value(
                "QuantizedTensor.data",
                "what is assigned",
                f"have the shape {shape_text(self.shape)}, or another number of rows",
                shape_text(value.shape),
                hint="replace the parameter of the module to change the shape of its rows",
            )
        if self.stored_alike(value):  # in this dtype: the scheme of a weight includes it
            return value.cast(self.dtype)  # type: ignore[attr-defined,no-any-return]
        if value.dtype not in DTYPES:
            wrong_type(
                "QuantizedTensor.data",
                "what is assigned",
                "be float16, bfloat16 or float32",
                dtype_name(value.dtype),
            )
        dense = value.dequantize() if isinstance(value, QuantizedTensor) else value
        return rounded_like(self, dense)

    # --- as torch sees it ----------------------------------------------------------------------

    @property
    def data(self: Self) -> Self:
        """The same weight; assigning a dense tensor rounds it to the scheme of this one."""
        return self.detach()  # type: ignore[return-value]

    @data.setter
    def data(self, value: Tensor) -> None:
        new = self.converted(value.detach())
        torch.Tensor.data.__set__(self, new)  # type: ignore[attr-defined]
        self.adopt(new)

    @property
    def requires_grad(self) -> bool:
        """False; True is refused, since packed weights do not train."""
        return False

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Does nothing for False: packed weights do not train.

        Args:
            requires_grad: as torch has it.

        Raises:
            RuntimeError: it is True.
        """
        if requires_grad:
            raise RuntimeError(
                "QuantizedTensor: quantized weights do not train. Hint: train an adapter (LoRA) or "
                "the bias, and unfreeze parameters by name instead of model.requires_grad_(); a "
                "layer that is to train whole (peft's modules_to_save) stays dense with "
                "quantize_(skip=[...])"
            )
        return self

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return (
            f"{type(self).__name__}({shape_text(self.shape)}, {self.scheme}, "
            f"{dtype_name(self.dtype)}, device='{self.device}')"
        )

    def _stored(self) -> list[Tensor]:
        return list(self.tensors().values())

    def _value(self) -> Tensor:
        return self.dequantize().contiguous()

    def _assign(self, value: Tensor) -> None:
        self.copy_(value)

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        return copied(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduced(self)

    def __getstate__(self) -> dict[str, Any]:
        """Without the plain parts, which are made again for whoever asks."""
        return {name: x for name, x in self.__dict__.items() if name != "_plain"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dense_form = (tuple(self.shape), self.dtype)  # older files do not have it

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Scheme, torch.dtype]]:
        return list(self.tensors()), (self.scheme, self.dtype)

    @classmethod
    def __tensor_unflatten__(
        cls: type[Self],
        tensors: dict[str, Tensor],
        context: tuple[Scheme, torch.dtype],
        outer_size: torch.Size,
        outer_stride: tuple[int, ...],
    ) -> Self:
        scheme, dtype = context
        return cls(tensors, scheme, outer_size, dtype)

    def _stable_hash_for_caching(self) -> str:
        """The text by which torch.compile's cache knows a graph with this weight."""
        parts = {name: (tuple(x.shape), x.dtype) for name, x in self.tensors().items()}
        # repr: the short form of a scheme leaves out what shares a scale of the activations.
        return f"{type(self).__qualname__} {self.scheme!r} {tuple(self.shape)} {self.dtype} {parts}"

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: torch.Size, outer_stride: Any, module: Any, mp_policy: Any
    ) -> tuple[tuple[Tensor, ...], Any]:
        """FSDP2: the tensors that each rank gives, output channels in front.

        Args:
            mesh: of the ranks. outer_size, outer_stride: of the whole weight.
            module: that owns it. mp_policy: its precision. Neither is looked at.
        """
        return gather_from(self, mesh, outer_size)

    def fsdp_post_all_gather(
        self, outputs: tuple[Tensor, ...], metadata: Any, dtype: Any, *, out: Any = None
    ) -> Any:
        """FSDP2: the whole weight from those of all ranks.

        Args:
            outputs: the tensors of :meth:`fsdp_pre_all_gather`, each ``[ranks * rows, ...]``.
            metadata: the second result of it. dtype: of the weight.
            out: a weight from an earlier call, to write into, or None.
        """
        return gathered(self, outputs, metadata, out)


def _there(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def part_problems(
    cls: type[QuantizedTensor],
    shape: tuple[int, ...],
    scheme: Scheme,
    tensors: Mapping[str, Tensor | None],
) -> list[str]:
    """Every shape and dtype in ``tensors`` that does not fit a weight of this kind, and its
    bias."""
    problems: list[str] = []
    shared: dict[str, torch.dtype] = {}
    shapes = {**cls.shapes(shape, scheme), "bias": (shape[0],)}
    for part in (*cls.parts, Part("bias")):
        tensor = tensors.get(part.name)
        if tensor is None:
            continue
        wanted = shapes[part.name]
        if tuple(tensor.shape) != wanted:
            problems.append(f"{part.name} must be {wanted}, got {tuple(tensor.shape)}")
        if tensor.dtype not in part.dtypes:
            allowed = " or ".join(map(str, part.dtypes))
            problems.append(f"{part.name} must be {allowed}, got {tensor.dtype}")
        if part.follows:
            shared[part.name] = tensor.dtype
    if len(set(shared.values())) > 1:
        named = ", ".join(f"{name} {dtype}" for name, dtype in shared.items())
        names = [part.name for part in (*cls.parts, Part("bias")) if part.follows]
        together = f"{', '.join(names[:-1])} and {names[-1]}"
        problems.append(f"{together} must share one dtype, got {named}")
    return problems
