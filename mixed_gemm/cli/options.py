"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

import enum
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch


_DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,4})?")
_MOST = 2**31 - 1  # the largest size


class DType(str, enum.Enum):
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"

    @property
    def torch(self) -> torch.dtype:
        import torch

        dtype: torch.dtype = getattr(torch, self.value)
        return dtype


class ZeroMode(str, enum.Enum):
    none = "none"
    sub = "sub"
    add = "add"


def parse_rows(text: str) -> list[int]:
    """Turn "1,16,256" into [1, 16, 256]."""
    try:
        rows = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        rows = []
    if not rows or min(rows) < 1:
        raise typer.BadParameter(f"must be positive numbers with commas, as 1,16,256; got {text!r}")
    return rows


def shard_bytes(gigabytes: float) -> int:
    if not math.isfinite(gigabytes):
        raise typer.BadParameter(f"--shard-size must be a finite number, got {gigabytes}")
    return int(gigabytes * 1e9)


def device_text(text: str) -> str:
    """Return the name of a device, or ""; torch would take cuda:264 for cuda:8."""
    if text and not _DEVICE.fullmatch(text):
        raise typer.BadParameter(f"--device must be cpu, cuda or cuda:N, got {text!r}")
    return text


def parse_device(text: str) -> torch.device:
    """Return a device that is there; "" is the current CUDA device when there is one, else the
    CPU."""
    named = device_text(text)
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    name = named or ("cuda" if count else "cpu")
    if name != "cpu" and int(name.partition(":")[2] or 0) >= count:
        raise ValueError(f"there is no {name}: torch sees {count} CUDA devices")
    return torch.device(name)


def named_path(text: str) -> Path:
    """Return the path that an argument names. An empty one, as from a variable that is not set,
    would be the current folder."""
    if not text:
        raise typer.BadParameter("must name a file or a folder, got an empty text")
    return Path(text)


N = Annotated[int, typer.Argument(help="Output channels of the weight.", min=1, max=_MOST)]
K = Annotated[int, typer.Argument(help="Input channels of the weight.", min=1, max=_MOST)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Bits = Annotated[int, typer.Option("--bits", help="Width of the weights: 4 or 8.")]
GroupSize = Annotated[
    int,
    typer.Option("--group-size", help="Elements of K that share a scale; -1: one per channel."),
]
Zeros = Annotated[
    ZeroMode, typer.Option("--zero-mode", help="Zero points: none, (q - z) * s, or q * s + z.")
]
Dtype = Annotated[DType, typer.Option("--dtype", help="Of the activations.")]
Device = Annotated[
    str,
    typer.Option("--device", help="cpu, cuda or cuda:1.", show_default="cuda when there is one"),
]
Source = Annotated[
    Path,
    typer.Argument(
        help="A model folder (config.json and *.safetensors) or one file of it.",
        parser=named_path,
        metavar="SOURCE",
    ),
]
ShardSize = Annotated[
    float, typer.Option("--shard-size", help="Largest file to write, GB (10^9 bytes).", min=1e-6)
]
Target = Annotated[
    Path,
    typer.Argument(
        help="The folder to write; it must hold no checkpoint yet.",
        parser=named_path,
        metavar="TARGET",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace files that are there. Never the source.")
]
