"""A dense checkpoint whose linear weights are rounded to nearest while it is read: one layer in
memory at a time, no model code, no calibration. ``save_checkpoint`` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..formats.config import model_config, quantization_config
from ..formats.dense_experts import Stack
from ..formats.errors import CheckpointError
from ..formats.experts import BY_ITSELF, is_expert
from ..formats.index import TensorIndex
from ..formats.inside import is_inside
from ..formats.outline import Outline
from ..nn.expert_tensors import is_bias
from ..ops.errors import ArgumentValueError
from ..ops.problem import DTYPES
from ..weights.exchange import QuantizedWeight
from ..weights.kinds import kind_of
from ..weights.scheme import Scheme, refined
from . import conv1d
from .heads import NO_TENSOR, refuse_fewer_bits, refuse_no_head
from .methods.base import CompleteMethod, Method, goes_by_blocks
from .methods.fits import refuse_unfit
from .methods.names import FEWER_BITS, IN_MEMORY, WITHOUT_DATA, named
from .methods.rounding import RoundToNearest
from .names import DEFAULT_SKIP, is_head, named_as_no_linear, skipped_by, without_heads
from .options import rows_scheme
from .others import is_matrix, why_no_target
from .select import Target

_SUFFIX = ".weight"
Asked = Callable[[TensorIndex], Sequence[Stack]]  # where stacked experts are in files


def fitting_group(k: int, size: int) -> int:
    """Return the largest multiple of 16 that divides K and is not larger than ``size``; -1, one
    group, where there is none."""
    return next((x for x in range(min(k, size) // 16 * 16, 0, -16) if k % x == 0), -1)


def _holds_experts(name: str, index: TensorIndex) -> bool:
    """Whether a tensor of the files may have all experts of a layer, in floats."""
    return is_expert(name) and len(index.shape(name)) == 3 and index.dtype(name) in DTYPES


class DenseCheckpoint:
    """Linear layers of a dense checkpoint, quantized as they are asked for.

    A linear layer is a 2-D floating tensor "<name>.weight" that ``skip`` does not name and whose
    name is not that of an embedding.

    Args:
        path: a folder as save_pretrained writes it, or one .safetensors, .pt or .bin file.
        scheme: a name or a ``Scheme``, as of ``quantize_``; activations cannot be static, which
            needs calibration.
        bits, group_size, symmetric, zero_mode, activations: what of the scheme is another way.
        skip: glob patterns on whole components of names, as in ``quantize_``.
        ragged: where a K is no multiple of the group size: True leaves a smaller last group, which
            this library alone reads; False takes the largest multiple of 16 that divides K and is
            not larger, else one group.
        method: how weights are rounded: None, "rtn", "hqq" or an object of
            ``quantization.methods`` that needs no data, as of ``quantize_``.
        embeddings: a scheme of packed codes whose activations are left alone, by which the table of
            words (as many rows as the ``vocab_size`` of config.json) is packed, too, rounded to
            nearest, and an output head that is tied to it multiplies by the same tensor. None
            leaves it dense, and so does a model whose encoder and decoder share it.
        heads: whether output heads are quantized, as of ``Options``; one that is tied has no tensor
            in the files, and ``embeddings`` is for both.
        experts: tells where dense experts are that the files have in one tensor of a layer, which
            are quantized as linears then, read one at a time; asked where there are such tensors.
            None leaves them dense. ``integrations.transformers.stacked_files.experts_in`` asks the
            model of transformers.

    Attributes:
        path: as given. scheme: what the arguments come to.
        config: config.json, empty when there is none.
        files: the files that hold tensors.
        layers: names of the layers that are quantized. schemes: of each of them.
        tables: those of them that are embeddings.
        refit: layer -> its group size, where that is another one than was asked for.
        left: name -> reason, of what stays dense. ignore: those of them that have a ``weight``.
        nbytes: of the dense weights that are quantized. carried: empty, as a dense source has it.
        recipe: how they are quantized, which the config of what is written tells.

    Raises:
        CheckpointError: the files cannot be read, are quantized already, or hold no linear layer.
        ValueError: the scheme does not fit a layer, or at all.
    """

    def __init__(
        self,
        path: str | Path,
        scheme: str | Scheme = "w4a16",
        *,
        bits: int | None = None,
        group_size: int | None = None,
        symmetric: bool | None = None,
        zero_mode: str | None = None,
        activations: str | None = None,
        skip: Sequence[str] = DEFAULT_SKIP,
        ragged: bool = False,
        method: str | Method | None = None,
        embeddings: str | Scheme | None = None,
        heads: bool | str | Scheme = False,
        experts: Asked | None = None,
    ) -> None:
        found = RoundToNearest() if method is None else named(method, bits)
        if goes_by_blocks(found) or found.reads_calibration:
            raise ArgumentValueError(
                f"quantize: method must be one that needs no data ({', '.join(WITHOUT_DATA)}), got "
                f"{method!r}. Hint: "
                + (
                    "load the model and call mixed_gemm.quantize_"
                    if isinstance(found, IN_MEMORY)
                    else "mixed_gemm.quantization.CalibratedCheckpoint (--calibration)"
                )
            )
        self._rounding: CompleteMethod = found
        self.recipe: dict[str, Any] = {"method": repr(self._rounding)}
        if method is not None and bits in FEWER_BITS:
            bits = 4
        self.path = Path(path)
        self.carried: dict[str, Any] = {}
        self.own: dict[str, str] = {}
        self.scheme = refined(
            "quantize", scheme, bits=bits, group_size=group_size, symmetric=symmetric,
            zero_mode=zero_mode, activations=activations,
        )  # fmt: skip
        self.recipe["scheme"] = str(self.scheme)
        self._heads = heads if isinstance(heads, bool) else refined("quantize", heads)
        for x in (self.scheme, self._heads):
            side = x.input_activations if isinstance(x, Scheme) else None
            if isinstance(x, Scheme) and side is not None and not side.dynamic:
                raise ArgumentValueError(
                    f"quantize: activations must be dynamic, got {x.activations!r}, which "
                    "needs calibration. Hint: load the model and call mixed_gemm.quantize_"
                )
        refuse_fewer_bits("quantize", self._heads, found)
        self._index = TensorIndex(self.path)
        self.files = self._index.files
        self.config: dict[str, Any] = self._index.config or model_config(self.path)
        self._refuse()
        self.schemes: dict[str, Scheme] = {}
        self.left: dict[str, str] = {}
        self.refit: dict[str, int] = {}
        self.tables: frozenset[str] = frozenset()
        stacks = self._take_apart(experts, skip)
        self._choose(skip, None if embeddings is None else rows_scheme("quantize", embeddings))
        if not self.linears:
            raise CheckpointError(self.path, "", "no tensor is the weight of a linear layer")
        self._fit_groups(ragged)
        for name in self.linears:
            refuse_unfit("quantize", found, name, self.schemes[name])
        self.layers = tuple(self.schemes)
        alone = {x.owner for x in stacks if x.in_one_tensor}
        self.own |= {name: BY_ITSELF for name in self.layers if is_inside(name, alone)}
        self.ignore = tuple(x for x in self.left if f"{x}{_SUFFIX}" in self._index)
        self.nbytes = sum(map(self._nbytes, self.layers))

    def _refuse(self) -> None:
        found, where = quantization_config(self.path, self.config)
        if found:
            method = found.get("quant_method", "unnamed")
            reason = f"is quantized already ({method}). Hint: mixed-gemm convert"
            raise CheckpointError(where, "", reason)

    @property
    def linears(self) -> tuple[str, ...]:
        """Names of the layers that are no embedding."""
        return tuple(name for name in self.schemes if name not in self.tables)

    def shape(self, layer: str) -> tuple[int, ...]:
        """Return (N, K) of a layer.

        Args:
            layer: one of ``layers``.
        """
        shape = self._index.shape(layer + _SUFFIX)
        return shape[::-1] if self._is_conv1d(layer) else shape

    def _is_conv1d(self, layer: str) -> bool:
        kind = self.config.get("model_type")
        return kind in conv1d.MODEL_TYPES and layer.rpartition(".")[2] in conv1d.NAMES

    def _nbytes(self, layer: str) -> int:
        (n, k), dtype = self.shape(layer), self._index.dtype(layer + _SUFFIX)
        return n * k * (dtype.itemsize if isinstance(dtype, torch.dtype) else 0)

    def _is_table(self, name: str, shape: tuple[int, ...]) -> bool:
        """Tell whether a matrix is the embedding of words, by its name and its rows."""
        inner = self.config.get("text_config")
        # A list: a file may say anything, also what has no hash.
        sizes = [x.get("vocab_size") for x in (self.config, inner) if isinstance(x, Mapping)]
        shared = self.config.get("is_encoder_decoder")
        return bool(named_as_no_linear(name)) and shape[0] in sizes and not shared

    def _take_apart(self, experts: Asked | None, skip: Sequence[str]) -> list[Stack]:
        """Show experts in one tensor as linears, where one of these is to be quantized, and return
        them. Where files of such models have experts one by one, all layers are alike: readers take
        those of all layers apart, or of none."""
        index = self._index
        if experts is None or not any(_holds_experts(x, index) for x in index.names()):
            return []
        reasons = {
            stack: {
                name: why_no_target(f"{name}{_SUFFIX}", shape, skip)
                for name, shape in stack.shown(index).items()
            }
            for stack in experts(index)
        }
        has_any = any("" in x.values() for x in reasons.values())
        apart = [
            stack
            for stack, found in reasons.items()
            if ("" in found.values() if stack.in_one_tensor else has_any)
        ]
        for stack in (x for x in reasons if x not in apart):
            why = next(iter(reasons[stack].values()))
            self.left |= {key: why for x, key in stack.keys.items() if not is_bias(x)}
        index.take_apart(apart)
        return apart

    def _choose(self, skip: Sequence[str], embeddings: Scheme | None) -> None:
        """Tell layers from other matrices, and note why those are not layers.

        Raises:
            ValueError: heads are asked for, and there is none.
        """
        skip = skip if self._heads is False else without_heads(skip)
        for tensor in self._index.names():
            shape = self._index.shape(tensor)
            if self._index.dtype(tensor) not in DTYPES or not is_matrix(tensor, shape):
                continue
            name = tensor.removesuffix(_SUFFIX)
            if name in self.left:
                continue  # experts that are skipped
            is_layer = len(shape) == 2 and tensor.endswith(_SUFFIX) and not skipped_by(name, skip)
            if embeddings is not None and is_layer and self._is_table(name, shape):
                self.schemes[name], self.tables = embeddings, self.tables | {name}
            elif reason := why_no_target(tensor, shape, skip):
                self.left[name] = reason
            else:
                heads = self._heads if is_head(name) else False
                self.schemes[name] = heads if isinstance(heads, Scheme) else self.scheme
        if self._heads is not False and not any(map(is_head, self.schemes)):
            why = "; ".join(f"{name}: {x}" for name, x in self.left.items() if is_head(name))
            refuse_no_head("quantize", self._heads, why or NO_TENSOR)

    def _fit_groups(self, ragged: bool) -> None:
        """Choose other groups where the size that was asked for does not fit a K.

        Raises:
            ValueError: a layer does not fit the scheme, whatever the groups.
        """
        problems = []
        for name in self.schemes:
            shape, size = self.shape(name), self.schemes[name].group_size
            if size != -1 and shape[1] % size and not (ragged and size < shape[1]):
                self.refit[name] = fitting_group(shape[1], size)
                found = refined("quantize", self.schemes[name], group_size=self.refit[name])
                self.schemes[name] = found
            try:
                kind_of(name, self.schemes[name], shape)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            more = f"\n  and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise ValueError(
                "quantize: layers that do not fit:\n  " + "\n  ".join(problems[:3]) + more + "\n"
                "Hint: skip them"
            )

    def outline(self, name: str) -> Outline | None:
        """Return what is known of a layer before it is read; None where a method of others makes
        its weight, which may have a ``pre_scale``.

        Args:
            name: one of ``layers``.
        """
        if not isinstance(self._rounding, RoundToNearest):
            return None
        kind = "conv1d" if self._is_conv1d(name) else "linear"
        kind = "embedding" if name in self.tables else kind
        dtype: Any = self._index.dtype(name + _SUFFIX)
        has_bias = f"{name}.bias" in self._index
        return Outline(self.schemes[name], self.shape(name), dtype, kind, has_bias=has_bias)

    def layer(self, name: str) -> QuantizedWeight:
        """Read one weight and round it.

        Args:
            name: one of ``layers``.

        Raises:
            CheckpointError: it holds NaN or Inf, or the file is truncated.
        """
        weight, scheme = self._index.load(name + _SUFFIX), self.schemes[name]
        is_conv1d = self._is_conv1d(name)
        try:
            dense = SimpleNamespace(weight=weight.t() if is_conv1d else weight, bias=None)
            target = Target(dense, scheme, dense)
            if name in self.tables:
                rows = kind_of(name, scheme, tuple(weight.shape)).from_float(weight, scheme)
                return rows.unpacked(name).with_fields(module="embedding")
            found = self._rounding.weight(name, target).unpacked(name)
        except ValueError as error:
            where = self._index.file(name + _SUFFIX)
            raise CheckpointError(where, name + _SUFFIX, str(error)) from error
        bias = f"{name}.bias"
        given = self._index.load(bias) if bias in self._index else None
        return found.with_fields(bias=given, module="conv1d" if is_conv1d else "linear")

    def plain(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every other tensor, as it is."""
        taken = {f"{name}{part}" for name in self.layers for part in (_SUFFIX, ".bias")}
        return ((x, self._index.load(x)) for x in self._index.names() if x not in taken)
