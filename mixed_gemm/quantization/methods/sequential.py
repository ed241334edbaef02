"""Methods that need data, block by block: each is calibrated on what the quantized blocks before
it make of the data, so errors do not add up unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from ..._progress import Progress, track
from ...ops.errors import ArgumentValueError
from ...weights.tensor import QuantizedTensor
from ..block import CalibrationBlock
from ..block_layer import BlockLayer
from ..block_sequence import Unit, Way
from ..own import Finished, Own, Segment
from ..proof import units_of
from ..select import Target, shared_parameters
from ..state import Runs, evaluating
from ..streams import Stream
from .base import BlockMethod, Defaults
from .rounding import RoundToNearest


class Sequential(Defaults):
    """A :class:`BlockMethod` over a model that is in memory.

    Args:
        method: what is done with a block. progress: see ``quantize_``.
    """

    def __init__(self, method: BlockMethod, progress: Progress = True) -> None:
        self.method, self.progress = method, progress
        self._layers: dict[str, BlockLayer] = {}
        # Functions that take back changes of layers that stay.
        self._undo: list[Callable[[], None]] = []
        self._finished = Finished()
        self.ways: dict[str, tuple[Way, str]] = {}  # unit -> how it was calibrated, and why so

    reads_calibration = True

    def __repr__(self) -> str:
        return repr(self.method)

    def prepare(
        self, model: nn.Module, targets: Mapping[str, Target], calibration: Iterable[Any] | None
    ) -> None:
        """Quantize every layer, and leave the model as it was but for layers that factors were
        folded into: :meth:`weight` hands the layers out.

        Args:
            model: that holds the layers. targets: name -> layer, of those to quantize.
            calibration: batches.

        Raises:
            ValueError: calibration is None or empty, does not reach a layer, or brings NaN or Inf;
                the model is as it was then.
        """
        if calibration is None:
            raise ArgumentValueError(
                f"quantize_: the method {type(self.method).__name__} needs calibration, an "
                "iterable of batches. Hint: mixed_gemm.quantization.text_batches(tokenizer, files)"
            )
        linears = {name: t for name, t in targets.items() if isinstance(t.layer, nn.Linear)}
        batches = list(calibration)
        try:
            entered = self._runs_of(model, linears)
            with torch.no_grad(), evaluating(model), entered as runs:
                self._walk(model, batches, runs, linears)
            self._finished.close()
            self._commit()
        except BaseException:
            self._finished.close()
            self.take_back()
            raise

    def take_back(self) -> None:
        """Make layers that factors were folded into what they were: the results are not used."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _walk(
        self, model: nn.Module, batches: list[Any], runs: Runs, targets: Mapping[str, Target]
    ) -> None:
        layers = {name: target.module for name, target in targets.items()}
        units = units_of(model, layers, batches, runs, self._block)
        self.ways = {unit.name: (unit.way, unit.reason) for unit in units}
        self._finished.replaced = self._undo
        own = self._own(runs, batches)
        rounded = Stream(own, units, dense=False)
        reference = Stream(own, units, dense=True) if self.method.needs_reference else None
        for unit in track(units, "calibrate", self.progress):
            with self._block(unit.name):
                self._quantize(model, unit, targets, own, rounded, reference, unit is units[-1])

    def _quantize(
        self,
        model: nn.Module,
        unit: Unit,
        targets: Mapping[str, Target],
        own: Own,
        rounded: Stream,
        reference: Stream | None,
        is_last: bool,
    ) -> None:
        layers = [BlockLayer(name, targets[name]) for name in unit.layers]
        module = Segment(own, layers, is_last) if unit.way is Way.WHOLE else unit.block
        assert module is not None
        calls = rounded.given(unit)
        wanted = None if reference is None else reference.given(unit)
        block = CalibrationBlock(
            unit.name,
            module,
            layers,
            [x for _, x in calls],
            None if wanted is None else [x for _, x in wanted],
            [{} if call is None else call.runs for call, _ in calls],
            self._finished,
        )
        block.undo, block.shared = self._undo, shared_parameters(model)
        with block.stand_ins():
            if reference is not None and wanted is not None:
                with block.dense():
                    block.wanted = reference.after(block, wanted, self.method.needs_outputs)
            if not self._restored(unit.name, block):
                self.method.quantize(block)
                for layer in block.layers:
                    layer.note = "; ".join(filter(None, (layer.note, block.experts.note(layer))))
                self._finished_block(unit.name, block)
            rounded.after(block, calls, False)
        self._finished.add(layers)
        self._layers.update((layer.name, layer) for layer in layers)
        for layer in layers:
            layer.release()

    # A walk over a model that is read from files replaces the functions below: folder.py.

    def _commit(self) -> None:
        """Let layers that stay take what factors were folded into, once the walk is over."""
        for layer in self._layers.values():
            self._undo += layer.commit()

    def _runs_of(self, model: nn.Module, targets: Mapping[str, Target]) -> Runs:
        return Runs(model)

    def _own(self, runs: Runs, batches: list[Any]) -> Own:
        return Own(runs, batches, self._finished)

    def _block(self, name: str) -> AbstractContextManager[None]:
        """Within this the block has its weights."""
        return nullcontext()

    def _restored(self, name: str, block: CalibrationBlock) -> bool:
        """Tell whether the results of a block were there already; the layers have them then."""
        return False

    def _finished_block(self, name: str, block: CalibrationBlock) -> None:
        """Do what follows once the layers of a block have their results."""

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """Return the weight that :meth:`prepare` found; a filter is rounded to nearest.

        Args:
            name: of the layer. target: the layer and its scheme.

        Raises:
            ValueError: the weight of a filter holds NaN or Inf.
        """
        if name not in self._layers:
            return RoundToNearest().weight(name, target)
        result = self._layers[name].result
        assert result is not None
        return result

    @property
    def calibrated(self) -> dict[str, str]:
        """Unit -> how its inputs were found, and why not in a faster way."""
        return {
            name: f"{way.value} ({reason})" if reason else way.value
            for name, (way, reason) in self.ways.items()
        }

    def output_error(self, name: str) -> float | None:
        """Return the relative error of the output of the layer ``name`` on calibration data."""
        return self._layers[name].output_error if name in self._layers else None

    def note(self, name: str) -> str:
        """Tell what was done for the layer ``name`` beyond rounding it."""
        return self._layers[name].note if name in self._layers else ""
