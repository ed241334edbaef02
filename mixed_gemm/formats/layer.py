"""The tensors of one quantized module, and what can be said of it without reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.problem import DTYPES, ceil_div, integer_weight
from ..weights.exchange_rules import group_columns, whole_strategy
from ..weights.read_off import read_off
from ..weights.scheme import FLOAT8, Scheme, Side
from .errors import CheckpointError
from .experts import is_expert, refusal
from .index import TensorIndex, Tensors

# Elements of K that share a scale in most files: what tensors may mean that do not say it.
_USUAL_GROUPS = (16, 32, 64, 128, 256, 512, 1024)


def _kind(scheme: Scheme) -> str:
    if scheme.weight_type == FLOAT8:
        return "fp8"
    return "int" if scheme.weights.type == "int" else scheme.weight_type


@read_off(
    in_features=lambda info: info.shape[1],
    out_features=lambda info: info.shape[0],
    bits=lambda info: info.stored_bits,
    group_size=lambda info: group_columns(info.scheme, info.shape[1]),
    kind=lambda info: _kind(info.scheme),
    has_zeros=lambda info: info.scheme.has_zeros,
    strategy=lambda info: whole_strategy(info.scheme),
    input_activations=lambda info: info.scheme.input_activations,
    block=lambda info: info.scheme.weights.block,
)
@dataclass(frozen=True, init=False)
class LayerInfo:
    """One quantized layer, from shapes and dtypes alone. What is held is ``name``, ``shape``,
    ``scheme``, ``nbytes`` and ``stored_bits``; the rest is read off these.

    Attributes:
        name: of the module.
        in_features: K.
        out_features: N.
        bits: of the values in the file: 2, 3, 4 or 8.
        group_size: elements of K that share a scale, -1 is all of them.
        kind: "int" or "fp8"; of other packed codes the name of their weight type.
        has_zeros: the file holds zero points (they may all turn out to be the neutral one).
        nbytes: of its tensors in the file.
        strategy: "tensor" where one scale serves the whole weight; else empty.
        input_activations: how the file wants activations rounded; None leaves them as they are.
        block: (rows, columns) of float8 weights that share a scale; None where they share none.
        shape: (N, K).
        scheme: how the weight is stored once it is read, with the zero points of the file.
        stored_bits: the same as ``bits``; the scheme has at least 4.
    """

    name: str
    in_features: int
    out_features: int
    bits: int
    group_size: int
    kind: str
    has_zeros: bool
    nbytes: int
    strategy: str
    input_activations: Side | None
    block: tuple[int, int] | None
    # Not among the fields, which ``dataclasses.replace`` gives to the constructor.
    _shape: ClassVar[tuple[int, int]]
    _scheme: ClassVar[Scheme]
    _stored_bits: ClassVar[int]

    def __init__(
        self,
        name: str,
        in_features: int,
        out_features: int,
        bits: int,
        group_size: int,
        kind: str,
        has_zeros: bool,
        nbytes: int,
        strategy: str = "",
        input_activations: Side | None = None,
        block: tuple[int, int] | None = None,
    ) -> None:
        scheme = Scheme.of_file(
            FLOAT8 if kind == "fp8" else integer_weight(max(bits, 4)),
            group_size,
            "sub" if has_zeros else "none",
            strategy=strategy,
            block=block,
            input_activations=input_activations,
        )
        self._hold(name, (out_features, in_features), scheme, nbytes, bits)

    @classmethod
    def stored_as(
        cls, scheme: Scheme, name: str, shape: tuple[int, int], nbytes: int, stored_bits: int
    ) -> LayerInfo:
        """A layer by its scheme; arguments as of the class.

        Args:
            scheme, name, shape, nbytes, stored_bits: see there.
        """
        made = object.__new__(cls)
        made._hold(name, shape, scheme, nbytes, stored_bits)
        return made

    def _hold(
        self, name: str, shape: tuple[int, int], scheme: Scheme, nbytes: int, stored_bits: int
    ) -> None:
        self.__dict__.update(
            name=name, _shape=shape, _scheme=scheme, nbytes=nbytes, _stored_bits=stored_bits
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self._shape

    @property
    def scheme(self) -> Scheme:
        """How the weight is stored once it is read, with the zero points of the file."""
        return self._scheme

    @property
    def stored_bits(self) -> int:
        """Bits of the values in the file: 2, 3, 4 or 8."""
        return self._stored_bits


def stored_integers(bits: int, group_size: int, zero_mode: str, **words: Any) -> Scheme:
    """How integers of a file are stored once they are read: those of fewer than 4 bits in 4.

    Args:
        bits: of a value in the file. group_size, zero_mode, words: as of ``Scheme.of_file``.
    """
    return Scheme.of_file(integer_weight(max(bits, 4)), group_size, zero_mode, **words)


class LayerTensors:
    """The tensors of one module by role ("qweight" of "model.x.qweight"). Everything that is read
    goes through here, so that a refusal names the file and the tensor.

    Args:
        index: where they lie. name: of the module.
        group: elements of K that share a scale, where that is known already: of a part of a layer.
    """

    float_dtypes = DTYPES

    def __init__(self, index: Tensors, name: str, group: int | None = None) -> None:
        self.name = name
        self._index = index
        self._group = group
        self._known: dict[str, bool] = {}  # which tensors there are, as a codec asks often

    @property
    def index(self) -> Tensors:
        """Where they lie."""
        return self._index

    @property
    def group(self) -> int | None:
        """Elements of K that share a scale, where that is known already."""
        return self._group

    def tensor_name(self, role: str) -> str:
        return f"{self.name}.{role}" if self.name else role

    def file(self, role: str) -> Path:
        return self._index.file(self.tensor_name(role))

    def has(self, role: str) -> bool:
        found = self._known.get(role)
        if found is None:
            found = self._known[role] = self.tensor_name(role) in self._index
        return found

    def error(self, role: str, reason: str) -> CheckpointError:
        name = self.tensor_name(role)
        return CheckpointError(self._index.file(name), name, reason)

    def _require(self, role: str) -> str:
        if not self.has(role):
            raise self.error(role, "is missing")
        return self.tensor_name(role)

    def shape(self, role: str) -> tuple[int, ...]:
        return self._index.shape(self._require(role))

    def dtype(self, role: str) -> torch.dtype | str:
        return self._index.dtype(self._require(role))

    def matrix(self, role: str, *dtypes: torch.dtype) -> tuple[int, int]:
        """The shape of a tensor that must be 2-D, not empty, and of one of ``dtypes``."""
        shape, dtype = self.shape(role), self.dtype(role)
        if len(shape) == 3 and is_expert(self.tensor_name(role)):
            raise self.error(role, refusal())
        if len(shape) != 2 or 0 in shape or dtype not in dtypes:
            allowed = " or ".join(str(x).removeprefix("torch.") for x in dtypes)
            raise self.error(role, f"must be {allowed}, 2-D and not empty, got {dtype} {shape}")
        return shape[0], shape[1]

    def expect(self, role: str, shape: Sequence[int], *dtypes: torch.dtype) -> None:
        """Refuse another shape or dtype."""
        found, dtype = self.shape(role), self.dtype(role)
        if found != tuple(shape) or dtype not in dtypes:
            allowed = " or ".join(str(x).removeprefix("torch.") for x in dtypes)
            raise self.error(role, f"must be {allowed} {tuple(shape)}, got {dtype} {found}")

    def load(self, role: str) -> Tensor:
        return self._index.load(self._require(role))

    def load_floats(self, role: str) -> Tensor:
        """A float tensor, refused when it holds NaN or Inf."""
        tensor = self.load(role)
        finite = tensor.isfinite()
        if not bool(finite.all()):
            at = tuple((~finite).nonzero()[0].tolist())
            raise self.error(role, f"must be finite, got {tensor[at].item()} at {at}")
        return tensor

    def bias(self, n: int) -> Tensor | None:
        if not self.has("bias"):
            return None
        self.expect("bias", (n,), *DTYPES)
        return self.load_floats("bias")

    def nbytes(self, roles: Sequence[str]) -> int:
        total = 0
        for role in filter(self.has, roles):
            dtype, count = self.dtype(role), 1
            for size in self.shape(role):
                count *= size
            total += count * (dtype.itemsize if isinstance(dtype, torch.dtype) else 0)
        return total

    def group_size(
        self, role: str, k: int, groups: int, stated: Sequence[int] = (), derive: bool = False
    ) -> int:
        """Elements of K to a group, -1 for one group.

        Args:
            role: the tensor that has ``groups`` of them.
            stated: sizes that the configuration names, the most direct first. The first that gives
                as many groups holds, the last one being as short as K makes it.
            derive: take the size that ``groups`` and ``k`` leave where no stated one does. Without
                a stated one that is done anyway.

        Raises:
            CheckpointError: no stated size gives as many groups; or none is to be derived, or
                several sizes that are in use would do.
        """
        if groups == 1:
            return -1
        if self._group is not None:
            stated = (self._group, *stated)
        for size in stated:
            if size > 0 and ceil_div(k, size) == groups:
                return size
        names = " or ".join(f"group_size={size}" for size in stated)
        wanted = names or "any size"
        if stated and not derive:
            raise self.error(role, f"has {groups} groups for K={k}, which {wanted} does not give")
        whole = k // groups if k % groups == 0 else 0
        others = [x for x in _USUAL_GROUPS if ceil_div(k, x) == groups and x != whole]
        if whole and not others:
            return whole
        if whole or others:
            wanted = "no stated size gives" if stated else "no size is stated for"
            sizes = sorted({*others, whole} - {0})
            raise self.error(
                role,
                f"has {groups} groups for K={k}, which {wanted}: groups of "
                f'{" or ".join(map(str, sizes))} would. Hint: state it as "group_size" in the '
                "quantization_config of config.json",
            )
        raise self.error(role, f"has {groups} groups for K={k}, which {wanted} does not give")


def modules_with(index: TensorIndex, role: str) -> list[str]:
    """Names of the modules that have a tensor of this role, in the order of the files."""
    suffix = f".{role}"
    return [name[: -len(suffix)] for name in index.names() if name.endswith(suffix)]


def in_layer(name: str, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Give (name in a file, tensor) of the tensors of a layer.

    Args:
        name: of the layer; empty where the model is the layer. tensors: role -> tensor.
    """
    for role, tensor in tensors.items():
        yield f"{name}.{role}" if name else role, tensor


Config = Mapping[str, object]


def int_option(config: Config, where: Path, *keys: str) -> int | None:
    """The first of ``keys`` that the configuration has, which must be an integer."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise CheckpointError(where, "", f"{key} must be an integer, got {value!r}")
        return value
    return None
