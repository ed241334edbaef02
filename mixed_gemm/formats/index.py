"""Where the tensors of a checkpoint lie: names, shapes and dtypes from the headers, values when
asked for. Sharded and single safetensors, and torch files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol

import torch
from torch import Tensor

from .adapter import TENSORS, without_model
from .dense_experts import Stack, shown_apart
from .errors import CheckpointError
from .gguf_file import begins_as_gguf
from .gguf_tensors import GgufFile
from .gpt_oss_files import OneByOne, one_by_one
from .json_file import MAX_INDEX_BYTES, read_json
from .no_model import is_aside, why_no_model
from .safetensors_file import SafetensorsFile
from .target import refuse_incomplete
from .torch_file import TorchFile

_SHARD = re.compile(r".+-(?P<number>\d{1,6})-of-(?P<count>\d{1,6})\.\w+", re.ASCII)


class TensorFile(Protocol):
    path: Path

    def names(self) -> Iterable[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype | str: ...
    def load(self, name: str) -> Tensor: ...


def _open(path: Path) -> TensorFile:
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    return GgufFile(path) if path.suffix == ".gguf" or begins_as_gguf(path) else TorchFile(path)


class Tensors(Protocol):
    """Tensors by name: of files, or of a model that others have read the files into."""

    def __contains__(self, name: object) -> bool: ...
    def file(self, name: str) -> Path: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype | str: ...
    def load(self, name: str) -> Tensor: ...


class TensorIndex:
    """Every tensor of a checkpoint by name. Files open once, on construction, and stay open.

    Args:
        path: a folder, or one file.
        files: the ones to open, when others have chosen them.

    Attributes:
        config: config.json, where the files say what is in it; else empty.
    """

    def __init__(self, path: Path, files: Sequence[Path] = ()) -> None:
        self.path = path
        self.config: dict[str, Any] = {}
        self._owner: dict[str, TensorFile] = {}
        if not files:
            refuse_incomplete(path)
        if not files and path.is_file() and path.name.startswith(TENSORS):
            raise CheckpointError(path, "", without_model(path.parent))
        if files or not path.is_dir():
            for file in files or (path,):
                self._add(_open(file))
        elif indexes := [x for x in sorted(path.glob("*.index.json")) if not is_aside(x)]:
            # With both kinds present, the safetensors one is the one in use.
            chosen = [x for x in indexes if "safetensors" in x.name] or indexes
            self._add_sharded(chosen[0])
        else:
            self._add_folder()
        self._owner = one_by_one(self._owner)
        self.files: tuple[Path, ...] = tuple(dict.fromkeys(f.path for f in self._owner.values()))
        if not self._owner:
            raise CheckpointError(path, "", "holds no tensors")

    def _add(self, file: TensorFile) -> None:
        if isinstance(file, GgufFile):
            self.config = file.config
        for name in file.names():
            if name in self._owner:
                other = self._owner[name].path.name
                raise CheckpointError(file.path, name, f"is in {other} as well")
            self._owner[name] = file

    def _add_sharded(self, index: Path) -> None:
        weight_map = read_json(index, MAX_INDEX_BYTES).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(index, "", "must have a non-empty object 'weight_map'")
        files: dict[str, TensorFile] = {}
        expected: dict[str, list[str]] = {}
        for name, shard in weight_map.items():
            if not isinstance(shard, str) or not shard or PurePath(shard).name != shard:
                raise CheckpointError(index, name, f"must be in a file beside it, got {shard!r}")
            if shard not in files:
                if not (index.parent / shard).exists():
                    raise CheckpointError(
                        index.parent / shard,
                        name,
                        f"the shard is missing: {index.name} names it. Hint: finish the download",
                    )
                files[shard] = _open(index.parent / shard)
            expected.setdefault(shard, []).append(name)
        for shard, file in files.items():
            present = set(file.names())
            lacking = [name for name in expected[shard] if name not in present]
            if lacking:
                raise CheckpointError(
                    file.path, lacking[0], f"is missing: {index.name} says it is in this shard"
                )
            self._add(file)

    def _add_folder(self) -> None:
        for pattern in ("*.safetensors", "*.bin", "*.pt"):
            found = [file for file in sorted(self.path.glob(pattern)) if not is_aside(file)]
            if found:
                self._refuse_missing_shards(found)
                for file in found:
                    self._add(_open(file))
                return
        raise CheckpointError(self.path, "", why_no_model(self.path))

    def _refuse_missing_shards(self, found: Sequence[Path]) -> None:
        """Without an index, their names still say how many there should be."""
        names = {file.name for file in found}
        for match in filter(None, map(_SHARD.fullmatch, sorted(names))):
            number, count = match["number"], int(match["count"])
            for other in range(1, count + 1):
                start, end = match.span("number")
                name = f"{match[0][:start]}{other:0{len(number)}}{match[0][end:]}"
                if name not in names:
                    raise CheckpointError(
                        self.path / name,
                        "",
                        f"the shard is missing: {match[0]} is one of {count}. Hint: finish the "
                        "download",
                    )

    def __contains__(self, name: object) -> bool:
        return name in self._owner

    def names(self) -> tuple[str, ...]:
        return tuple(self._owner)

    def is_part(self, name: str) -> bool:
        """Whether a tensor is a part of one of the file's, which is shown apart from the rest."""
        owner = self._owner[name]
        return isinstance(owner, OneByOne) or (isinstance(owner, GgufFile) and owner.is_part(name))

    def take_apart(self, stacks: Iterable[Stack]) -> None:
        """Show dense experts that files have in one tensor as linears, in its place.

        Args:
            stacks: where they are.
        """
        self._owner = dict(shown_apart(self._owner, stacks))

    def reads_slices(self, name: str) -> bool:
        """Whether :meth:`load_slice` of a tensor reads no other bytes."""
        return isinstance(self._owner.get(name), SafetensorsFile)

    def file(self, name: str) -> Path:
        """The file that holds ``name``; the checkpoint itself when none does."""
        return self._owner[name].path if name in self._owner else self.path

    def shape(self, name: str) -> tuple[int, ...]:
        return self._owner[name].shape(name)

    def dtype(self, name: str) -> torch.dtype | str:
        return self._owner[name].dtype(name)

    @property
    def bytes_read(self) -> int:
        """Bytes read of all safetensors files so far, their headers included."""
        files = {id(x): x for x in self._owner.values() if isinstance(x, SafetensorsFile)}
        return sum(x.bytes_read for x in files.values())

    def load(self, name: str) -> Tensor:
        """The tensor, on the CPU."""
        return self._read(name, lambda file: file.load(name))

    def load_slice(self, name: str, dim: int, start: int, stop: int) -> Tensor:
        """``load(name).narrow(dim, start, stop - start)``, on the CPU; of a safetensors file no
        other bytes are read, of a torch file those from its first element to its last."""

        def read(file: TensorFile) -> Tensor:
            if isinstance(file, SafetensorsFile | TorchFile):
                return file.load_slice(name, dim, start, stop)
            return file.load(name).narrow(dim, start, stop - start).contiguous()

        return self._read(name, read)

    def _read(self, name: str, read: Callable[[TensorFile], Tensor]) -> Tensor:
        if name not in self._owner:
            raise CheckpointError(self.path, name, "is missing")
        try:
            return read(self._owner[name])
        except CheckpointError:
            raise
        except (RuntimeError, MemoryError) as error:  # memory for it
            raise CheckpointError(self.file(name), name, f"cannot be read ({error})") from error
