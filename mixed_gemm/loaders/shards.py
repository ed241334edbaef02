"""Write tensors to safetensors, a new file whenever one is full, named as transformers expects."""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor


class ShardWriter:
    """``add`` tensors, then ``finish``: until then the folder has only files ending in ``.part``,
    which nobody takes for a checkpoint."""

    def __init__(self, folder: Path, max_shard_bytes: int) -> None:
        self._folder = folder
        self._limit = max_shard_bytes
        self._pending: dict[str, Tensor] = {}
        self._pending_bytes = 0
        self._total_bytes = 0
        self._shards: list[list[str]] = []

    def add(self, name: str, tensor: Tensor) -> None:
        """``tensor`` is copied to the CPU if it is elsewhere, or shares memory with others."""
        tensor = tensor.detach().cpu().contiguous()
        if tensor.untyped_storage().nbytes() != tensor.nbytes or self._shares_memory(tensor):
            tensor = tensor.clone()
        if self._pending and self._pending_bytes + tensor.nbytes > self._limit:
            self._flush()
        self._pending[name] = tensor
        self._pending_bytes += tensor.nbytes

    def _shares_memory(self, tensor: Tensor) -> bool:
        return any(tensor.data_ptr() == other.data_ptr() for other in self._pending.values())

    def _part(self, number: int) -> Path:
        return self._folder / f"model-{number:05d}.safetensors.part"

    def _flush(self) -> None:
        from safetensors.torch import save_file  # not at import: see loaders/index.py

        save_file(self._pending, self._part(len(self._shards) + 1), {"format": "pt"})
        self._shards.append(list(self._pending))
        self._total_bytes += self._pending_bytes
        self._pending, self._pending_bytes = {}, 0

    def finish(self) -> None:
        """Write what is left, give the files their names, and an index when there are several."""
        if self._pending or not self._shards:
            self._flush()
        count = len(self._shards)
        names = [f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]
        names = names if count > 1 else ["model.safetensors"]
        for number, name in enumerate(names, 1):
            self._part(number).rename(self._folder / name)
        if count == 1:
            return
        weight_map = {t: name for name, ts in zip(names, self._shards, strict=True) for t in ts}
        index = {"metadata": {"total_size": self._total_bytes}, "weight_map": weight_map}
        text = json.dumps(index, indent=2) + "\n"
        (self._folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
