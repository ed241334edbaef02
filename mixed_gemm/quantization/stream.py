"""A dense checkpoint whose linear weights are rounded to nearest while it is read: one layer in
memory at a time, no model code, no calibration. ``save_checkpoint`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..formats.config import model_config, quantization_config
from ..formats.errors import CheckpointError
from ..formats.index import TensorIndex
from ..ops.errors import ArgumentValueError
from ..ops.problem import DTYPES
from ..weights.exchange import QuantizedWeight
from ..weights.kinds import kind_of
from ..weights.scheme import Scheme, refined
from .select import DEFAULT_SKIP, NOT_LINEAR, skipped_by

# These store [in, out] (transformers' Conv1D), which the tensors alone do not tell.
TRANSPOSED = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_SUFFIX = ".weight"


class DenseCheckpoint:
    """Linear layers of a dense checkpoint, quantized as they are asked for.

    A linear layer is a 2-D floating tensor "<name>.weight" that ``skip`` does not name and whose
    name is not that of an embedding or a router.

    Args:
        path: a folder as save_pretrained writes it, or one .safetensors, .pt or .bin file.
        scheme: a name or a ``Scheme``, as of ``quantize_``; activations cannot be static, which
            needs calibration.
        bits, group_size, symmetric, zero_mode, activations: what of the scheme is another way.
        skip: glob patterns on whole components of names, as in ``quantize_``.

    Attributes:
        path: as given. scheme: what the arguments come to.
        config: config.json, empty when there is none.
        files: the files that hold tensors.
        layers: names of the layers that are quantized.
        ignore: names of the other matrices.
        nbytes: of the dense weights that are quantized.

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
    ) -> None:
        self.path = Path(path)
        self.scheme = refined(
            "quantize", scheme, bits=bits, group_size=group_size, symmetric=symmetric,
            zero_mode=zero_mode, activations=activations,
        )  # fmt: skip
        side = self.scheme.input_activations
        if side is not None and not side.dynamic:
            raise ArgumentValueError(
                f"quantize: activations must be dynamic, got {self.scheme.activations!r}, which "
                "needs calibration. Hint: load the model and call mixed_gemm.quantize_"
            )
        self._index = TensorIndex(self.path)
        self.files = self._index.files
        self.config: dict[str, Any] = self._index.config or model_config(self.path)
        self._refuse()
        names = [name for name in self._index.names() if self._is_matrix(name)]
        patterns = (*skip, *NOT_LINEAR)
        chosen = [x for x in names if not skipped_by(x[: -len(_SUFFIX)], patterns)]
        self.layers = tuple(name[: -len(_SUFFIX)] for name in chosen)
        self.ignore = tuple(name[: -len(_SUFFIX)] for name in names if name not in chosen)
        if not self.layers:
            raise CheckpointError(self.path, "", "no tensor is the weight of a linear layer")
        self.nbytes = sum(self._nbytes(name) for name in chosen)
        self._check_groups()

    def _refuse(self) -> None:
        found, where = quantization_config(self.path, self.config)
        if found:
            method = found.get("quant_method", "unnamed")
            raise CheckpointError(
                where, "", f"is quantized already ({method}). Hint: mixed-gemm convert"
            )
        kind = self.config.get("model_type")
        if kind in TRANSPOSED:
            raise CheckpointError(
                self.path,
                "",
                f"models of type {kind!r} store their weights transposed (Conv1D), which is not "
                "read. Hint: load the model and call mixed_gemm.quantize_",
            )

    def _is_matrix(self, name: str) -> bool:
        right = name.endswith(_SUFFIX) and self._index.dtype(name) in DTYPES
        return right and len(self._index.shape(name)) == 2 and 0 not in self._index.shape(name)

    def _nbytes(self, name: str) -> int:
        (n, k), dtype = self._index.shape(name), self._index.dtype(name)
        return n * k * (dtype.itemsize if isinstance(dtype, torch.dtype) else 0)

    def _check_groups(self) -> None:
        problems = []
        for name in self.layers:
            shape, size = self._index.shape(name + _SUFFIX), self.scheme.group_size
            try:
                kind_of(name, self.scheme, shape)
            except ValueError as error:
                problems.append(str(error))
                continue
            if size != -1 and shape[1] % size != 0:  # readers of the format need it
                problems.append(f"{name}: K={shape[1]} is not a multiple of group_size={size}")
        if problems:
            more = f"\n  and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise ValueError(
                "quantize: layers that do not fit:\n  " + "\n  ".join(problems[:3]) + more + "\n"
                "Hint: skip them, or choose another group size (-1 is one per channel)"
            )

    def layer(self, name: str) -> QuantizedWeight:
        """Read one weight and round it.

        Args:
            name: one of ``layers``.

        Raises:
            CheckpointError: it holds NaN or Inf, or the file is truncated.
        """
        weight = self._index.load(name + _SUFFIX)
        try:
            kind = kind_of(name, self.scheme, tuple(weight.shape))
            found = kind.from_float(weight, self.scheme).unpacked(name)
        except ValueError as error:
            where = self._index.file(name + _SUFFIX)
            raise CheckpointError(where, name + _SUFFIX, str(error)) from error
        bias = f"{name}.bias"
        return replace(found, bias=self._index.load(bias) if bias in self._index else None)

    def plain(self) -> Iterator[tuple[str, Tensor]]:
        """Every other tensor, as it is."""
        taken = {f"{name}{part}" for name in self.layers for part in (_SUFFIX, ".bias")}
        return ((x, self._index.load(x)) for x in self._index.names() if x not in taken)
