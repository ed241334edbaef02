"""The experts of gpt-oss: MXFP4, all experts of a layer in one tensor, seen as linears one by one.

    experts.gate_up_proj_blocks  uint8 [E, 2 I, H / 32, 16], the first of two codes in the low half
    experts.gate_up_proj_scales  uint8 [E, 2 I, H / 32], the powers of two 2^(byte - 127)
    experts.gate_up_proj_bias    [E, 2 I]; rows of the gate and of what it multiplies alternate
    experts.down_proj_blocks     uint8 [E, H, I / 32, 16], and so on

Each is shown as compressed-tensors stores MXFP4 (``experts.3.gate_proj.weight_packed``), whose
reader reads it. Only the bytes of one expert are read for it. Source: transformers 5.24,
integrations/mxfp4.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .errors import CheckpointError
from .safetensors_file import SafetensorsFile

if TYPE_CHECKING:
    from .index import TensorFile

_STACKED = re.compile(r"(?P<owner>.*experts)\.(?P<part>gate_up_proj|down_proj)_(?P<what>\w+)")
BLOCK = 32  # codes that share a scale, in bytes of two
ROLES = {"blocks": "weight_packed", "scales": "weight_scale", "bias": "bias"}
ROWS = {  # linear -> its rows of the tensor that holds it
    "gate_up_proj": {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2)},
    "down_proj": {"down_proj": slice(None)},
}


@dataclass(frozen=True)
class _Part:
    """Where the tensor of one linear is.

    Attributes:
        stacked: the tensor of the file. expert: its number. rows: of the linear.
    """

    stacked: str
    expert: int
    rows: slice


class OneByOne:
    """A file whose stacked tensors are shown as those of linears; a ``TensorFile``.

    Args:
        file: that holds them. parts: name of a tensor of a linear -> where it is.
    """

    def __init__(self, file: TensorFile, parts: Mapping[str, _Part]) -> None:
        self.path, self._file, self._parts = file.path, file, parts

    def names(self) -> Iterable[str]:
        return tuple(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        part = self._parts[name]
        n, *rest = self._file.shape(part.stacked)[1:]
        n = len(range(*part.rows.indices(n)))
        # The bytes of 32 codes are beside each other, as in a row of compressed-tensors.
        return (n, rest[0] * rest[1]) if len(rest) == 2 else (n, *rest)

    def dtype(self, name: str) -> torch.dtype | str:
        return self._file.dtype(self._parts[name].stacked)

    def load(self, name: str) -> Tensor:
        part = self._parts[name]
        if isinstance(self._file, SafetensorsFile):
            whole = self._file.load_slice(part.stacked, 0, part.expert, part.expert + 1)[0]
        else:
            whole = self._file.load(part.stacked)[part.expert]
        return whole[part.rows].reshape(self.shape(name)).contiguous()


def one_by_one(owners: dict[str, TensorFile]) -> dict[str, TensorFile]:
    """The files of a checkpoint by the names of their tensors, with those of gpt-oss's experts
    taken apart; the same where it has none.

    Args:
        owners: name of a tensor -> the file that holds it.

    Raises:
        CheckpointError: blocks or scales of an expert have another shape or dtype.
    """
    packed = {name.removesuffix("_blocks") for name in owners if _is_blocks(name)}
    if not packed:
        return owners
    found, parts = dict[str, Any](), dict[Any, dict[str, _Part]]()
    for name, file in owners.items():
        match = _STACKED.fullmatch(name)
        if match is None or name.rpartition("_")[0] not in packed or match["what"] not in ROLES:
            found[name] = file
            continue
        _check(name, match["what"], file)
        shown = parts.setdefault(file, {})
        for linear, rows in ROWS[match["part"]].items():
            for expert in range(file.shape(name)[0]):
                role = ROLES[match["what"]]
                whole = f"{match['owner']}.{expert}.{linear}.{role}"
                shown[whole] = _Part(name, expert, rows)
                found[whole] = file  # keeps its place in the order of the files
    for file, shown in parts.items():
        found |= dict.fromkeys(shown, OneByOne(file, shown))
    return found


def _is_blocks(name: str) -> bool:
    return name.endswith("_blocks") and _STACKED.fullmatch(name) is not None


def _check(name: str, what: str, file: TensorFile) -> None:
    """Refuse a shape or dtype that these tensors do not have; what belongs together is looked at by
    the reader of each linear."""
    shape, dtype = file.shape(name), file.dtype(name)
    dims = {"blocks": 4, "scales": 3, "bias": 2}[what]
    fits = len(shape) == dims and 0 not in shape and (what != "blocks" or shape[-1] == BLOCK // 2)
    if fits and (what == "bias" or dtype == torch.uint8):
        return
    wanted = {
        "blocks": "uint8 [E, N, K / 32, 16]", "scales": "uint8 [E, N, K / 32]", "bias": "[E, N]",
    }[what]  # fmt: skip
    raise CheckpointError(file.path, name, f"must be {wanted} and not empty, got {dtype} {shape}")
