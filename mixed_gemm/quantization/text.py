"""Calibration data from text files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..ops.errors import ArgumentValueError

SHORTEST = 16  # tokens: a shorter window says little


def text_batches(
    tokenizer: Any,
    files: str | Path | Iterable[str | Path],
    *,
    tokens: int = 32768,
    length: int = 512,
    batch: int = 8,
    seed: int = 0,
) -> list[Tensor]:
    """Cut windows from text files at random places, as many of each file: mix kinds of text, since
    what is calibrated on one kind alone costs on the others.

    Args:
        tokenizer: of transformers, or f(text) -> an object with ``input_ids``.
        files: one or more UTF-8 text files.
        tokens: in all, at most; a file that is shorter than its share gives all it has.
        length: of a window. batch: windows in a batch. seed: of the places.

    Returns:
        int64 ``[<= batch, length]`` each, for ``quantize_(calibration=...)``.

    Raises:
        ValueError: no file has ``length`` tokens (16 where that is more), one is not UTF-8, or a
            number is not positive. OSError: of reading a file.
    """
    if min(tokens, length, batch) < 1:
        raise ArgumentValueError(
            "text_batches: tokens, length and batch must be positive, got "
            f"{tokens}, {length} and {batch}"
        )
    paths = [Path(files)] if isinstance(files, (str, Path)) else [Path(x) for x in files]
    generator = torch.Generator().manual_seed(seed)
    texts = [_ids(tokenizer, path) for path in paths]
    longest = max((len(ids) for ids in texts), default=0)
    if longest < min(length, SHORTEST):
        raise ArgumentValueError(
            f"text_batches: a text must have {min(length, SHORTEST)} tokens, the longest of "
            f"{', '.join(map(str, paths)) or 'none'} has {longest}"
        )
    length = min(length, longest)
    usable = [ids for ids in texts if len(ids) >= length]
    share = max(1, tokens // length // len(usable))
    rows = [row for ids in usable for row in _windows(ids, length, share, generator)]
    order = torch.randperm(len(rows), generator=generator).tolist()
    mixed = torch.stack([rows[i] for i in order])
    return [mixed[i : i + batch] for i in range(0, len(mixed), batch)]


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        ValueError: it is not UTF-8. OSError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ArgumentValueError(
            f"{path} must be text in UTF-8, got byte {byte:#04x} at {error.start} "
            f"({error.reason}). Hint: iconv -f ENCODING -t UTF-8 writes it anew"
        ) from error


def _ids(tokenizer: Any, path: Path) -> Tensor:
    found = tokenizer(read_text(path)).input_ids
    return torch.as_tensor(found, dtype=torch.int64).reshape(-1)


def _windows(ids: Tensor, length: int, count: int, generator: torch.Generator) -> list[Tensor]:
    """Cut windows that do not overlap where there is room for that."""
    whole = len(ids) // length
    if whole >= count:
        picked = torch.randperm(whole, generator=generator)[:count]
        slack = len(ids) - whole * length
        offset = int(torch.randint(slack + 1, (1,), generator=generator))
        return [ids[offset + i * length :][:length] for i in picked.tolist()]
    return [ids[i * length :][:length] for i in range(whole)]
