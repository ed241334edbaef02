"""Where the tensors of a checkpoint lie: names, shapes and dtypes from the headers, values when
asked for. Sharded and single safetensors, and torch pickles (read with weights_only).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol

import torch
from torch import Tensor

from .errors import CheckpointError

# safetensors' names of dtypes -> torch's
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class TensorFile(Protocol):
    path: Path

    def names(self) -> Iterable[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype | str: ...
    def load(self, name: str) -> Tensor: ...


class SafetensorsFile:
    def __init__(self, path: Path) -> None:
        # here, not above: most who import mixed_gemm open no file
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            self._file: Any = safe_open(str(path), framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(path, "", f"not a whole safetensors file ({error})") from error

    def names(self) -> Iterable[str]:
        return list(self._file.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype | str:
        found = self._file.get_slice(name).get_dtype()
        return _DTYPES.get(found, str(found))

    def load(self, name: str) -> Tensor:
        from safetensors import SafetensorError

        try:
            tensor: Tensor = self._file.get_tensor(name)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        return tensor


class TorchFile:
    """A ``.pt`` or ``.bin``: memory-mapped where its format allows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (RuntimeError, pickle.UnpicklingError, OSError, EOFError, ValueError) as error:
            raise CheckpointError(path, "", f"not a whole torch file ({error})") from error
        if not isinstance(state, Mapping):
            raise CheckpointError(path, "", f"must hold a state dict, got {type(state).__name__}")
        state = state.get("state_dict", state)
        self._state: dict[str, Tensor] = {k: v for k, v in state.items() if isinstance(v, Tensor)}

    def names(self) -> Iterable[str]:
        return self._state

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._state[name].shape)

    def dtype(self, name: str) -> torch.dtype | str:
        return self._state[name].dtype

    def load(self, name: str) -> Tensor:
        return self._state[name]


def _open(path: Path) -> TensorFile:
    return SafetensorsFile(path) if path.suffix == ".safetensors" else TorchFile(path)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or CheckpointError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(path, "", f"not a readable JSON file ({error})") from error
    if not isinstance(found, dict):
        raise CheckpointError(path, "", f"must hold a JSON object, got {type(found).__name__}")
    return found


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
    """

    def __init__(self, path: Path, files: Sequence[Path] = ()) -> None:
        self.path = path
        self._owner: dict[str, TensorFile] = {}
        if files:
            for file in files:
                self._add(_open(file))
        elif path.is_file():
            self._add(_open(path))
        elif not path.is_dir():
            raise CheckpointError(path, "", "no such file or folder")
        elif indexes := sorted(path.glob("*.index.json")):
            # With both kinds present, the safetensors one is the one in use.
            chosen = [x for x in indexes if "safetensors" in x.name] or indexes
            self._add_sharded(chosen[0])
        else:
            self._add_folder()
        self.files: tuple[Path, ...] = tuple(dict.fromkeys(f.path for f in self._owner.values()))
        if not self._owner:
            raise CheckpointError(path, "", "holds no tensors")

    def _add(self, file: TensorFile) -> None:
        for name in file.names():
            if name in self._owner:
                other = self._owner[name].path.name
                raise CheckpointError(file.path, name, f"is in {other} as well")
            self._owner[name] = file

    def _add_sharded(self, index: Path) -> None:
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(index, "", "must have a non-empty object 'weight_map'")
        files: dict[str, TensorFile] = {}
        for name, shard in weight_map.items():
            if not isinstance(shard, str) or not shard or PurePath(shard).name != shard:
                raise CheckpointError(index, name, f"must be in a file beside it, got {shard!r}")
            if shard not in files:
                if not (index.parent / shard).is_file():
                    raise CheckpointError(
                        index.parent / shard,
                        name,
                        f"the shard is missing: {index.name} names it. Hint: finish the download",
                    )
                files[shard] = _open(index.parent / shard)
        for shard, file in files.items():
            present = set(file.names())
            lacking = [n for n, s in weight_map.items() if s == shard and n not in present]
            if lacking:
                raise CheckpointError(
                    file.path, lacking[0], f"is missing: {index.name} says it is in this shard"
                )
            self._add(file)

    def _add_folder(self) -> None:
        for pattern in ("*.safetensors", "*.bin", "*.pt"):
            # consolidated*.safetensors repeats all weights under other names
            found = [p for p in sorted(self.path.glob(pattern)) if "consolidated" not in p.name]
            found = [p for p in found if p.name != "training_args.bin"]
            if found:
                for file in found:
                    self._add(_open(file))
                return
        raise CheckpointError(self.path, "", "no .safetensors, .bin or .pt file in this folder")

    def __contains__(self, name: object) -> bool:
        return name in self._owner

    def names(self) -> tuple[str, ...]:
        return tuple(self._owner)

    def file(self, name: str) -> Path:
        """The file that holds ``name``; the checkpoint itself when none does."""
        return self._owner[name].path if name in self._owner else self.path

    def shape(self, name: str) -> tuple[int, ...]:
        return self._owner[name].shape(name)

    def dtype(self, name: str) -> torch.dtype | str:
        return self._owner[name].dtype(name)

    def load(self, name: str) -> Tensor:
        """The tensor, on the CPU."""
        if name not in self._owner:
            raise CheckpointError(self.path, name, "is missing")
        try:
            return self._owner[name].load(name)
        except (RuntimeError, OSError) as error:
            raise CheckpointError(self.file(name), name, f"cannot be read ({error})") from error
