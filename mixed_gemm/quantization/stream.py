"""A dense checkpoint whose linear weights are rounded to nearest while it is read: one layer in
memory at a time, no model code, no calibration. ``save_checkpoint`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..formats.config import model_config, quantization_config
from ..formats.errors import CheckpointError
from ..formats.index import TensorIndex
from ..ops.problem import DTYPES, check_bits, check_group_size
from ..weights.exchange import QuantizedWeight
from ..weights.rounding import quantize_weight
from .model import DEFAULT_SKIP, matches

# Matrices that are no linear layers, or (routers) too small and too sensitive to round.
NOT_LINEAR = ("*embed*", "wte", "wpe", "shared", "relative_attention_bias", "*router*", "gate")
# These store [in, out] (transformers' Conv1D), which the tensors alone do not tell.
TRANSPOSED = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
_SUFFIX = ".weight"


class DenseCheckpoint:
    """Linear layers of a dense checkpoint, quantized as they are asked for.

    A linear layer is a 2-D floating tensor "<name>.weight" that ``skip`` does not name and whose
    name is not that of an embedding or a router.

    Args:
        path: a folder as save_pretrained writes it, or one .safetensors, .pt or .bin file.
        bits: 4 or 8.
        group_size: -1 or a multiple of 16, at most the K of every layer.
        symmetric: no zero points; otherwise integer ones (zero_mode "sub").
        skip: glob patterns on whole components of names, as in ``quantize_``.

    Attributes:
        path: as given.
        config: config.json, empty when there is none.
        files: the files that hold tensors.
        layers: names of the layers that are quantized.
        ignore: names of the other matrices.
        nbytes: of the dense weights that are quantized.

    Raises:
        CheckpointError: the files cannot be read, are quantized already, or hold no linear layer.
        ValueError: ``bits`` or ``group_size`` is impossible, for some layer or at all.
    """

    def __init__(
        self,
        path: str | Path,
        bits: int = 4,
        group_size: int = 128,
        symmetric: bool = True,
        skip: Sequence[str] = DEFAULT_SKIP,
    ) -> None:
        check_bits("quantize", bits)
        self.path = Path(path)
        self.bits, self.group_size, self.symmetric = bits, group_size, symmetric
        self._index = TensorIndex(self.path)
        self.files = self._index.files
        self.config: dict[str, Any] = model_config(self.path)
        self._refuse()
        names = [name for name in self._index.names() if self._is_matrix(name)]
        patterns = (*skip, *NOT_LINEAR)
        chosen = [x for x in names if not any(matches(x[: -len(_SUFFIX)], p) for p in patterns)]
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
            k = self._index.shape(name + _SUFFIX)[1]
            try:
                check_group_size(name, self.group_size, k)
            except ValueError as error:
                problems.append(str(error))
                continue
            if self.group_size != -1 and k % self.group_size != 0:  # readers of the format need it
                problems.append(f"{name}: K={k} is not a multiple of group_size={self.group_size}")
        if problems:
            more = f"\n  and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise ValueError(
                "quantize: layers that do not fit:\n  " + "\n  ".join(problems[:3]) + more + "\n"
                "Hint: skip them, or choose another group size (-1 is one per channel)"
            )

    def layer(self, name: str) -> QuantizedWeight:
        """Read one weight and round it.

        Raises:
            CheckpointError: it holds NaN or Inf, or the file is truncated.
        """
        weight = self._index.load(name + _SUFFIX)
        try:
            q, scales, zeros = quantize_weight(weight, self.bits, self.group_size, self.symmetric)
        except ValueError as error:
            where = self._index.file(name + _SUFFIX)
            raise CheckpointError(where, name + _SUFFIX, str(error)) from error
        bias = f"{name}.bias"
        return QuantizedWeight(
            name,
            q,
            scales,
            zeros,
            self.bits,
            self.group_size,
            "none" if zeros is None else "sub",
            self._index.load(bias) if bias in self._index else None,
        )

    def plain(self) -> Iterator[tuple[str, Tensor]]:
        """Every other tensor, as it is."""
        taken = {f"{name}{part}" for name in self.layers for part in (_SUFFIX, ".bias")}
        return ((x, self._index.load(x)) for x in self._index.names() if x not in taken)
