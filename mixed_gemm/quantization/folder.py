"""A dense checkpoint whose layers are calibrated while it is read, a block at a time: the model is
never whole in memory, and blocks that are done are kept on the disk, so that a run that was killed
goes on where it was. ``save_checkpoint`` writes the result.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._progress import Progress
from ..formats.errors import CheckpointError
from ..ops.errors import ArgumentValueError
from ..weights.exchange import QuantizedWeight
from .block import CalibrationBlock
from .block_sequence import find_blocks
from .experts import take_apart
from .foreign import TokenRuns, naming
from .heads import refuse_fewer_bits
from .methods.base import BlockMethod, goes_by_blocks
from .methods.fits import refuse_unfit
from .methods.names import FEWER_BITS, IN_MEMORY, named
from .methods.sequential import Sequential
from .names import EXPERTS, skipped_by
from .own import Own
from .plain import why_no_product
from .select import Target
from .state import Runs
from .stream import DenseCheckpoint

RUN = "recipe.json"  # the file in the folder of finished blocks that tells which run they are of
_PARTS = ("q", "scales", "zeros", "global_scale")


def _synced(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(path.suffix + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _digest(batches: Sequence[Tensor]) -> str:
    found = hashlib.sha256()
    for batch in batches:
        found.update(f"{tuple(batch.shape)}{batch.dtype}".encode())
        found.update(batch.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


class CalibratedCheckpoint(DenseCheckpoint):
    """Linear layers of a dense folder of transformers, quantized by a method that needs data.

    Memory: the largest block, its input statistics and the hidden states of the calibration data,
    twice where the method looks at the dense model too. Disk: the quantized layers, in ``work``.
    Files: each block is read once for every batch while it is proven how blocks are called, and
    once more to quantize it; the system's cache holds what fits into memory.

    Args:
        path: a folder as save_pretrained writes it.
        scheme: a name or a ``Scheme``, of packed codes whose activations are left alone.
        method: a name of ``METHODS`` that needs data, or an object of ``quantization.methods``.
        calibration: int64 ``[batch, length]`` token ids each: ``text_batches``.
        work: a folder for blocks that are done; made when missing. A run with the same arguments
            goes on from there.
        device: where blocks run. progress: see ``quantize_``.
        options: of the scheme, as of ``DenseCheckpoint``; bits may be 3 or 2 too.

    Raises:
        ValueError: ``work`` is of a run with other arguments, or calibration is empty or does not
            reach a layer. CheckpointError: the folder is no model of transformers whose modules
            are called as its tensors, or one that does not run on token ids alone. ImportError:
            transformers or accelerate is missing.
    """

    def __init__(
        self,
        path: str | Path,
        scheme: Any = "w4a16",
        *,
        method: str | BlockMethod,
        calibration: Sequence[Tensor],
        work: str | Path,
        device: torch.device | str = "cpu",
        progress: Progress = True,
        **options: Any,
    ) -> None:
        chosen = named(method, options.get("bits"))
        if options.get("bits") in FEWER_BITS:
            options["bits"] = 4
        super().__init__(path, scheme, **options)
        if isinstance(chosen, IN_MEMORY):
            raise ArgumentValueError(
                f"quantize: {method!r} needs the whole model in memory. Hint: load it and call "
                "mixed_gemm.quantize_, or take another method"
            )
        if not goes_by_blocks(chosen):
            raise ArgumentValueError(
                f"quantize: {method!r} needs no calibration. Hint: leave calibration out"
            )
        refuse_fewer_bits("quantize", self._heads, chosen)
        for name, found in ((x, self.schemes[x]) for x in self.linears):
            if not found.is_packed:
                raise ArgumentValueError(
                    f"quantize: {method!r} by blocks is for packed codes whose activations are "
                    f"left alone, got {found}. Hint: leave calibration out, or load the model and "
                    "call mixed_gemm.quantize_"
                )
            refuse_unfit("quantize", chosen, name, found)
        self._work, self._method = Path(work), chosen
        self._device = torch.device(device)
        self._part: tuple[int, dict[str, Tensor]] | None = None
        self.recipe = {
            "method": repr(chosen),
            "scheme": str(self.scheme),
            "calibration_sha256": _digest(calibration),
        }
        self._run = {
            **self.recipe,
            "layers": {name: str(x) for name, x in self.schemes.items()},
            "files": {file.name: file.stat().st_size for file in map(Path, self.files)},
        }
        walk = _Walk(self, chosen, progress)
        model = self._empty_model()
        targets = self._targets(model)
        self._start()
        self._load(model, lambda name: not walk.in_blocks(name, model, targets))
        walk.prepare(model, targets, [batch.to(self._device) for batch in calibration])
        self._numbers = walk.numbers
        self._changed = walk.changed

    def _start(self) -> None:
        self._work.mkdir(parents=True, exist_ok=True)
        if not (self._work / RUN).exists() and any(self._work.iterdir()):
            raise ArgumentValueError(
                f"quantize: work must be a new or empty folder, or one of a run before, got "
                f"{self._work}, which has other files"
            )
        kept, text = self._work / RUN, json.dumps(self._run, sort_keys=True, indent=1)
        if not kept.exists():
            _synced(kept, text.encode())
        elif kept.read_text() != text:
            before = json.loads(kept.read_text())
            names = [x for x in self._run if before.get(x) != self._run[x]]
            raise ArgumentValueError(
                f"quantize: {self._work} has blocks of a run with another {', '.join(names)}. "
                "Hint: remove that folder, or run with what was given then"
            )

    def _empty_model(self) -> Any:
        """Build the model of transformers without weights, but with the buffers that no file
        has."""
        import accelerate
        import transformers

        dtype = self._index.dtype(self.linears[0] + ".weight")
        unread = naming(self.path, "transformers makes no model of its config.json")
        with unread, accelerate.init_empty_weights(include_buffers=False):
            config = transformers.AutoConfig.from_pretrained(self.path)
            kinds = [getattr(transformers, x, None) for x in self.config.get("architectures") or ()]
            kind: Any = next((x for x in kinds if x is not None), None)
            if kind is None:
                model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
            else:
                model = kind._from_config(config, dtype=dtype)
        if any(skipped_by(name, EXPERTS) for name in self._index.names()):
            # Experts that the files have in one tensor stay in one.
            take_apart(model).put_back(self._index.names())
        return model.eval()

    def _targets(self, model: nn.Module) -> dict[str, Target]:
        modules = dict(model.named_modules())
        found = {}
        for name in self.linears:
            module = modules.get(name)
            if not isinstance(module, nn.Linear) or why_no_product(module):
                raise CheckpointError(
                    self.path, name, "is no nn.Linear of the model as transformers builds it. "
                    "Hint: load the model and call mixed_gemm.quantize_"
                )  # fmt: skip
            parent, _, child = name.rpartition(".")
            place = (model.get_submodule(parent), child)
            found[name] = Target(module, self.schemes[name], module, [place])
        return found

    def _load(self, model: nn.Module, wanted: Any) -> None:
        """Put tensors of the files in the places of parameters and buffers."""
        for name, _ in [*model.named_parameters(), *model.named_buffers()]:
            if wanted(name) and name in self._index:
                set_tensor(model, name, self._index.load(name).to(self._device))
            elif wanted(name):
                module, _, part = name.rpartition(".")
                own = model.get_submodule(module)
                if part in own._buffers:
                    own._buffers[part] = own._buffers[part].to(self._device)  # type: ignore[union-attr]
        tie = getattr(model, "tie_weights", None)
        if tie is not None:
            tie()

    # --- blocks that are done ------------------------------------------------------------------

    def _file(self, number: int) -> Path:
        return self._work / f"{number:05d}.pt"

    def _keep(self, number: int, tensors: dict[str, Tensor]) -> None:
        """Write the tensors of one block; they are on the disk when this returns."""
        buffer = io.BytesIO()
        torch.save({name: x.cpu().contiguous() for name, x in tensors.items()}, buffer)
        _synced(self._file(number), buffer.getvalue())

    def _kept(self, number: int) -> dict[str, Tensor] | None:
        """Return the tensors that :meth:`_keep` wrote for a block; None where it is not done."""
        if self._part is None or self._part[0] != number:
            file = self._file(number)
            if not file.exists():
                return None
            self._part = (number, torch.load(file, weights_only=True))
        return self._part[1]

    def discard(self) -> None:
        """Remove the blocks from the disk, once they are written elsewhere, and ``work`` if nothing
        else is in it."""
        for file in (*self._work.glob("[0-9]*.pt"), *self._work.glob("*.part")):
            file.unlink()
        (self._work / RUN).unlink(missing_ok=True)
        if not any(self._work.iterdir()):
            self._work.rmdir()

    def layer(self, name: str) -> QuantizedWeight:
        """Read one quantized layer.

        Args:
            name: one of ``layers``.
        """
        if name in self.tables:
            return super().layer(name)
        tensors = self._kept(self._numbers[name])
        assert tensors is not None
        bias = tensors.get(f"{name}.bias")
        if bias is None and f"{name}.bias" in self._index:
            bias = self._index.load(f"{name}.bias")
        return weight_of(name, tensors, self.schemes[name]).with_fields(bias=bias)

    def plain(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every other tensor; those that factors were folded into with the factors in
        them."""
        for name, tensor in super().plain():
            if (number := self._changed.get(name)) is None:
                yield name, tensor
                continue
            tensors = self._kept(number)
            assert tensors is not None
            yield name, tensors[name]


def weight_of(name: str, tensors: dict[str, Tensor], scheme: Any) -> QuantizedWeight:
    """Make a layer from the tensors of its block."""
    parts: dict[str, Any] = {part: tensors.get(f"{name}.{part}") for part in _PARTS}
    return QuantizedWeight.stored_as(name, **parts, scheme=scheme)


def set_tensor(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Put another tensor in the place of a parameter or a buffer."""
    path, _, part = name.rpartition(".")
    module = model.get_submodule(path)
    if part in module._parameters:
        module._parameters[part] = nn.Parameter(tensor, requires_grad=False)
    else:
        module._buffers[part] = tensor


class _Walk(Sequential):
    """The calibration of a model whose blocks are read when they are needed."""

    def __init__(self, files: CalibratedCheckpoint, method: Any, progress: Progress) -> None:
        super().__init__(method, progress)
        self._files = files
        self.numbers: dict[str, int] = {}  # layer -> number of its block
        self.changed: dict[str, int] = {}  # other tensor that has changed -> number of its block
        self._blocks: list[str] = []
        self._found: dict[str, nn.Module] = {}
        self._loaded: set[str] = set()

    def in_blocks(self, name: str, model: nn.Module, targets: Any) -> bool:
        if not self._blocks:
            self._model = model
            self._found = find_blocks(model, targets)
            self._blocks = list(self._found) or ["\0"]
        return any(name.startswith(f"{block}.") for block in self._blocks)

    def _runs_of(self, model: nn.Module, targets: Mapping[str, Target]) -> Runs:
        return TokenRuns(self._files.path, model, self._found.values())

    def _own(self, runs: Runs, batches: list[Any]) -> Own:
        return Own(runs, batches, self._finished, self._found, self._block)

    @contextmanager
    def _block(self, name: str, dense: bool = True) -> Iterator[None]:
        if name in self._loaded or name not in self._found:
            yield
            return
        prefix = f"{name}."
        self._loaded.add(name)
        self._files._load(self._model, lambda x: x.startswith(prefix))
        try:
            if not dense:
                self._change(x for x in self.changed if x.startswith(prefix))
            yield
        finally:
            self._loaded.remove(name)
            for x, parameter in list(self._model.named_parameters()):
                if x.startswith(prefix):
                    set_tensor(self._model, x, torch.empty_like(parameter, device="meta"))
            self._undo.clear()  # the files are as they were

    def _change(self, names: Iterable[str]) -> None:
        """Put tensors that factors were folded into in their places."""
        for name in names:
            tensors = self._files._kept(self.changed[name])
            assert tensors is not None
            set_tensor(self._model, name, tensors[name].to(self._files._device))

    def _commit(self) -> None:
        """Do nothing: the files hold the results."""

    def _number(self, block: CalibrationBlock) -> int:
        if block.name in self._blocks:
            return self._blocks.index(block.name)
        others = [name for name in self.ways if name not in self._blocks]
        return len(self._blocks) + others.index(block.name)

    def _restored(self, name: str, block: CalibrationBlock) -> bool:
        number = self._number(block)
        self.numbers.update((layer.name, number) for layer in block.layers)
        tensors = self._files._kept(number)
        if tensors is None:
            return False
        for layer in block.layers:
            weight = weight_of(layer.name, tensors, layer.target.scheme)
            layer.finish(weight.to_linear(layer.dense.dtype).weight)
            if (bias := tensors.get(f"{layer.name}.bias")) is not None:
                layer.module.bias = nn.Parameter(bias.to(layer.dense.device), requires_grad=False)
        prefixes = tuple(f"{layer.name}." for layer in block.layers)
        others = [other for other in tensors if not other.startswith(prefixes)]
        self.changed.update(dict.fromkeys(others, number))
        self._change(others)
        self._forget(block, number)
        return True

    def _finished_block(self, name: str, block: CalibrationBlock) -> None:
        number = self._number(block)
        tensors: dict[str, Tensor] = {}
        for layer in block.layers:
            assert layer.result is not None
            weight = layer.result.unpacked(layer.name)
            found = {part: getattr(weight, part) for part in _PARTS}
            if layer.module.bias is not None and layer.bias_changed:
                found["bias"] = layer.module.bias.detach()
            tensors |= {f"{layer.name}.{x}": t for x, t in found.items() if t is not None}
        for path in block.changed:
            prefix = f"{name}.{path}".rstrip(".")
            for part, parameter in self._model.get_submodule(prefix)._parameters.items():
                if parameter is not None:
                    tensors[f"{prefix}.{part}"] = parameter.detach()
                    self.changed[f"{prefix}.{part}"] = number
        self._files._keep(number, tensors)
        self._forget(block, number)

    def _forget(self, block: CalibrationBlock, number: int) -> None:
        """Leave the results to the disk: those of all blocks would be as large as the model."""
        for layer in block.layers:
            layer.result = _OnDisk(self._files, number, layer.name, layer.target.scheme)  # type: ignore[assignment]


class _OnDisk:
    """The result of a layer, which is read when it is asked for."""

    def __init__(self, files: CalibratedCheckpoint, number: int, name: str, scheme: Any) -> None:
        self._files, self._number, self._name, self._scheme = files, number, name, scheme

    def dequantize(self, dtype: torch.dtype) -> Tensor:
        """Return the dense weight, ``[N, K]``."""
        tensors = self._files._kept(self._number)
        assert tensors is not None
        found = weight_of(self._name, tensors, self._scheme)
        dense: Tensor = found.to_linear(dtype).weight.dequantize(dtype)
        return dense.to(self._files._device)
