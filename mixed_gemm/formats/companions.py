"""The files beside the weights of a model that go along when it is saved elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from .adapter import FILES as ADAPTER_FILES
from .durable import write_new_file
from .errors import CheckpointWarning
from .regular_file import RegularFile, kind_of

_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken", *ADAPTER_FILES)
_WRITTEN_ANEW = ("config.json", "quantize_config.json", "quant_config.json")
_CHUNK = 1 << 20  # bytes


def _roots(folder: Path) -> tuple[Path, ...]:
    """Where links may lead: the folder itself, and the blobs of the cache of a hub, whose files are
    links from <model>/snapshots/<revision>/... to <model>/blobs/."""
    folder = folder.resolve()
    chain = (folder, *folder.parents)
    caches = [x.parent.parent for x in chain if x.parent.name == "snapshots"]
    return (folder, *(cache / "blobs" for cache in caches))


def _why_not(file: Path, roots: tuple[Path, ...]) -> str:
    try:
        kind = kind_of(file.stat().st_mode)
        real = file.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        return "a link to nothing" if file.is_symlink() else f"not readable ({error})"
    if kind:
        return kind
    if not any(real.is_relative_to(root) for root in roots):
        return f"a link to {real}, outside of the folder"
    return ""


def find_companions(source: Path) -> tuple[Path, ...]:
    """Tokenizer, generation config, chat template, code and adapter of the model in the folder
    ``source``; none when it is a file. Warns of those that are no regular files of this folder."""
    if not source.is_dir():
        return ()
    found = {file for pattern in _PATTERNS for file in source.glob(pattern)}
    roots, kept = _roots(source), []
    for file in sorted(found):
        if file.name in _WRITTEN_ANEW or file.name.endswith(".index.json"):
            continue
        if reason := _why_not(file, roots):
            warnings.warn(f"{file} is not copied: it is {reason}", CheckpointWarning, stacklevel=3)
        else:
            kept.append(file)
    return tuple(kept)


def copy_companion(source: Path, target: Path) -> None:
    """Raises OSError when it cannot be written, CheckpointError when it cannot be read."""
    file = RegularFile(source)

    def parts() -> Iterator[bytearray]:
        for begin in range(0, file.size, _CHUNK):
            yield file.read(begin, min(_CHUNK, file.size - begin))

    write_new_file(target, parts())
