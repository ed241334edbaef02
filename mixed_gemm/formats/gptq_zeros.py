"""The zero points of GPTQ files: stored as they are ("v2") or less one ("v1"), and a flag that says
which, which some files get wrong (vllm#38966: a v1 flag over v2 zeros gives "!!!!").

So the tensors are asked first. Symmetric files have one zero point, 2^(b-1), and are read without
doubt. For others the sums of the weights tell: weights are centred, so the mean of (code - zero) is
near 0 in every group, and the wrong convention moves all of these means by exactly 1.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from .bitfields import unpack_dense
from .errors import CheckpointWarning
from .layer import Config, LayerInfo, LayerTensors

# GPTQModel takes one off the whole 32-bit word, so that a zero point of 0 borrows from its
# neighbour; adding it to the whole word is the inverse. Others take it off every field.
_ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}
# Limits beyond which the codes overrule the flag, in steps of the weight: the mean over the groups,
# their spread (zero points that follow their groups: a Gaussian weight in groups of 32 gives 0.45),
# and the standard error of the mean. |mean| / deviation of real weights is below 0.02, which is
# 0.05 steps in 4 bits but 0.9 in 8, so 8 bits are never overruled.
_NEAR, _FAR, _SPREAD, _STANDARD_ERROR = 0.3, 0.7, 1.0, 0.07
_ROWS = 1024  # output channels, enough to look at
Codes = Callable[[int], Tensor]


def _writer_borrows(config: Config) -> bool:
    """Whether GPTQModel >= 0.9 wrote it: meta.quantizer is "gptqmodel:7.7.0" or a list of such."""
    meta = config.get("meta")
    quantizer = meta.get("quantizer") if isinstance(meta, dict) else None
    names = quantizer if isinstance(quantizer, list) else [quantizer]
    for name in names:
        match = re.match(r"gptqmodel:(\d+)\.(\d+)", str(name).lower())
        if match and (int(match[1]), int(match[2])) >= (0, 9):
            return True
    return False


class ZeroPoints:
    """Reads the zero points of one checkpoint.

    Attributes:
        flag: "v1" or "v2", what the configuration says.
    """

    def __init__(self, config: Config, where: Path) -> None:
        stated = config.get("checkpoint_format") or config.get("format") or "gptq"
        self.flag = "v2" if str(stated).lower() == "gptq_v2" else "v1"
        self._symmetric = config.get("sym")
        self._borrows = _writer_borrows(config)
        self._where = where
        self._warned = False

    def read(self, layer: LayerTensors, info: LayerInfo, codes: Codes, g_idx: Tensor) -> Tensor:
        """uint8 ``[G, N]`` zero points, in the range of the codes.

        Args:
            codes: step -> uint8 ``[ceil(N / step), K]``, the codes of every step-th row of ``[N,
                K]``. They are asked for where zero points leave open how they are stored.
            g_idx: int64 ``[K]``, in 0..G-1.
        """
        words, n, bits = layer.load("qzeros"), info.out_features, info.bits
        fields = unpack_dense(words, bits, n)
        convention = self._stated_by(fields, bits)
        if convention is None and bits < 8:
            convention = self._suggested_by(fields, codes, g_idx)
        convention = convention or self.flag
        if convention != self.flag:
            self._warn(layer, convention)
        if convention == "v2":
            return fields
        if self._borrows and bits in _ONES:
            return unpack_dense(words + _ONES[bits], bits, n)
        return (fields + 1) & ((1 << bits) - 1)

    def _stated_by(self, fields: Tensor, bits: int) -> str | None:
        """Tell what a single neutral zero point says; None when there are others."""
        middle = 1 << (bits - 1)
        if self._symmetric is not False:
            for convention, neutral in (("v2", middle), ("v1", middle - 1)):
                if bool((fields == neutral).all()):
                    return convention
        return None

    def _suggested_by(self, fields: Tensor, codes: Codes, g_idx: Tensor) -> str | None:
        """The convention that the flag is not, when the means of the groups leave no doubt."""
        stride = max(1, fields.shape[1] // _ROWS)
        sample, zeros = codes(stride).float(), fields[:, ::stride].float().t()
        sums = torch.zeros_like(zeros).index_add_(1, g_idx, sample)
        means = sums / g_idx.bincount(minlength=zeros.shape[1]) - zeros
        offset, spread = float(means.mean()), float(means.std())
        if spread > _SPREAD or spread / math.sqrt(means.numel()) > _STANDARD_ERROR:
            return None
        mean_of = {"v2": 0.0, "v1": 1.0}
        other = "v1" if self.flag == "v2" else "v2"
        near, far = abs(offset - mean_of[other]) < _NEAR, abs(offset - mean_of[self.flag]) > _FAR
        return other if near and far else None

    def _warn(self, layer: LayerTensors, convention: str) -> None:
        if self._warned:
            return
        meaning = {"v1": "less one (gptq)", "v2": "as they are (gptq_v2)"}
        warnings.warn(
            f"{self._where}: the configuration says that zero points are stored "
            f"{meaning[self.flag]}, but those of {layer.name} are stored {meaning[convention]}. "
            "The tensors are believed, and the file refused with strict=True",
            CheckpointWarning,
            stacklevel=2,
        )
        self._warned = True  # not where the warning was made an error: the next layer raises too
