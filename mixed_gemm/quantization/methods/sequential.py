"""Methods that need data, block by block: each is calibrated on what the quantized blocks before
it make of the data, so errors do not add up unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn

from ..._progress import Progress, track
from ...ops.errors import ArgumentValueError
from ...weights.tensor import QuantizedTensor
from ..chain import REST, Chain, chain_of
from ..select import Target, shared_parameters
from ..stage import Site, Stage
from ..state import evaluating, without_cache
from .rounding import RoundToNearest


class BlockMethod(Protocol):
    """How the layers of one block are quantized."""

    @property
    def needs_reference(self) -> bool:
        """Whether it looks at what the dense model computes."""

    def quantize(self, stage: Stage) -> None:
        """Give every site of the block its result (``Site.finish``).

        Args:
            stage: the block, with stand-ins in the places of its layers.

        Raises:
            ValueError: calibration does not reach a layer, or brings NaN or Inf.
        """


class Sequential:
    """A :class:`BlockMethod` over a model that is in memory.

    Args:
        method: what is done with a block. progress: see ``quantize_``.
    """

    def __init__(self, method: BlockMethod, progress: Progress = True) -> None:
        self.method, self.progress = method, progress
        self._sites: dict[str, Site] = {}
        self._undo: list[Callable[[], None]] = []  # what was changed of layers that stay

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
            with torch.no_grad(), evaluating(model), without_cache(model):
                self._walk(model, chain_of(model, linears, batches, self._block), linears)
            self._commit()
        except BaseException:
            self.take_back()
            raise

    def take_back(self) -> None:
        """Make layers that factors were folded into what they were: the results are not used."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _walk(self, model: nn.Module, chain: Chain, targets: Mapping[str, Target]) -> None:
        hidden = list(chain.first)
        reference = list(hidden) if self.method.needs_reference else None
        for name, block in track(list(chain.blocks.items()), "calibrate", self.progress):
            with self._block(name):
                sites = [Site(x, targets[x]) for x in chain.names_in(name, targets)]
                stage = Stage(name, block, sites, chain.calls[name], hidden, reference)
                stage.undo, stage.shared = self._undo, shared_parameters(model)
                with stage.stand_ins():
                    if reference is not None and name != REST:
                        stage.wanted = stage.outputs(reference)
                    if not self._restored(name, stage):
                        self.method.quantize(stage)
                        self._finished(name, stage)
                    reference = stage.wanted
                    hidden = hidden if name == REST else stage.outputs(hidden)
                self._sites.update((site.name, site) for site in sites)
                for site in sites:
                    site.release()

    # What a walk over a model that is read from files does besides: folder.py.

    def _commit(self) -> None:
        """The walk is over: layers that stay take what factors were folded into."""
        for site in self._sites.values():
            self._undo += site.commit()

    def _block(self, name: str) -> AbstractContextManager[None]:
        """The block has its weights."""
        return nullcontext()

    def _restored(self, name: str, stage: Stage) -> bool:
        """Whether the results of a block were there already; the sites have them then."""
        return False

    def _finished(self, name: str, stage: Stage) -> None:
        """The sites of a block have their results."""

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """What :meth:`prepare` found; a filter is rounded to nearest.

        Args:
            name: of the layer. target: the layer and its scheme.

        Raises:
            ValueError: the weight of a filter holds NaN or Inf.
        """
        if name not in self._sites:
            return RoundToNearest().weight(name, target)
        result = self._sites[name].result
        assert result is not None
        return result

    def output_error(self, name: str) -> float | None:
        """What rounding the layer ``name`` changes of its output on calibration data, relative."""
        return self._sites[name].output_error if name in self._sites else None

    def note(self, name: str) -> str:
        """What was done for the layer ``name`` beyond rounding it, in words."""
        return self._sites[name].note if name in self._sites else ""
