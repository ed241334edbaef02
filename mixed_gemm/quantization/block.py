"""A block while its layers are quantized, and the statistics of their inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..ops.errors import ArgumentValueError
from .block_experts import BlockExperts
from .block_layer import BlockLayer
from .block_sequence import Given
from .own import Finished
from .state import State, Stop
from .values import first_tensor


@dataclass
class InputStatistics:
    """Statistics of the inputs of a group of layers, added up over the calibration data.

    gram: the sum of x x^T over the tokens that the quantized blocks before return, float32
    ``[K, K]``: the Hessian of GPTQ up to a factor. cross: the sum of (x - x') x^T, where x' is the
    input in the dense model, so that x - x' is the error that comes in. mean: the sum of abs(x),
    ``[K]``. tokens: how many tokens were added.
    """

    gram: Tensor
    cross: Tensor
    mean: Tensor
    tokens: int = 0

    @classmethod
    def zeros(cls, k: int, device: torch.device) -> InputStatistics:
        square = torch.zeros(k, k, device=device)
        return cls(square, torch.zeros_like(square), torch.zeros(k, device=device))

    def add(self, x: Tensor, reference: Tensor | None) -> None:
        x = x.detach().reshape(-1, x.shape[-1]).float()
        self.gram.addmm_(x.t(), x)
        self.mean += x.abs().sum(0)
        self.tokens += len(x)
        if reference is not None:
            reference = reference.detach().reshape(-1, x.shape[-1]).float()
            if reference.shape == x.shape:  # experts may be given other tokens
                self.cross.addmm_((x - reference).t(), x)


class CalibrationBlock:
    """A block of a model, its calibration data, and the layers of it that are quantized.

    Args:
        name: the block's name in the model.
        module: the module, or a function. layers: the layers that are quantized.
        given: the arguments of each call of each batch.
        reference: those of the dense model; None where the method does not look at it.
        runs: for each call, name of a layer -> how often it runs; a layer that is missing may run
            any number of times.
        finished: layers of earlier blocks, which this block may hold, too.

    ``sites``, ``block`` and ``moments`` are older names of ``layers``, ``module`` and
    ``input_statistics``, for methods that were written before these.
    """

    def __init__(
        self,
        name: str,
        module: Callable[..., Any],
        layers: list[BlockLayer],
        given: list[Given],
        reference: list[Given] | None = None,
        runs: list[dict[str, int]] | None = None,
        finished: Finished | None = None,
    ) -> None:
        self.name, self.module, self.layers = name, module, layers
        self.given, self.reference = given, reference
        self.wanted: list[Tensor] | None = None  # outputs of the dense block for the reference
        # Functions that take back changes of layers that stay dense.
        self.undo: list[Callable[[], None]] = []
        self.changed: list[str] = []  # such layers, named as the block names them
        self.shared: set[int] = set()  # ids of parameters that hang at more than one place
        self._runs, self._finished = runs or [{}] * len(given), finished or Finished()
        self._modules = set(module.modules()) if isinstance(module, nn.Module) else set()
        self._state: State | None = None
        self.experts = BlockExperts(module, layers)

    @property
    def sites(self) -> list[BlockLayer]:
        """The layers."""
        return self.layers

    @property
    def block(self) -> Callable[..., Any]:
        """The module."""
        return self.module

    def moments(self, group: list[BlockLayer], *, reference: bool = True) -> InputStatistics:
        """Return the :meth:`input_statistics` of a group."""
        return self.input_statistics(group, reference=reference)

    @contextmanager
    def stand_ins(self) -> Iterator[None]:
        """Hang the stand-ins in the places of the layers; each run begins from the state in which
        the block is now."""
        own = isinstance(self.module, nn.Module)
        state = State(self.module.modules()) if own else nullcontext()  # type: ignore[attr-defined]
        kept = [(p, c, getattr(p, c)) for layer in self.layers for p, c in layer.target.places]
        try:
            for layer in self.layers:
                for parent, child in layer.target.places:
                    setattr(parent, child, layer.module)
            with state as self._state:
                yield
        finally:
            for parent, child, module in kept:
                setattr(parent, child, module)

    @contextmanager
    def dense(self) -> Iterator[None]:
        """Let the stand-ins compute with their dense weights, and make layers that another block
        holds, too, dense."""
        for layer in self.layers:
            layer.use_dense()
        try:
            with self._finished.dense(self._modules):
                yield
        finally:
            for layer in self.layers:
                layer.use_result()

    def results(self, given: Given) -> Any:
        """Return all that the block returns for one call."""
        with nullcontext() if self._state is None else self._state.run(), self.experts.fed():
            return given.run(self.module)

    def run(self, given: Given) -> Tensor:
        """Return the output of the block for one call: the first tensor that it returns."""
        return first_tensor(self.results(given))

    @torch.no_grad()
    def outputs(self, given: list[Given]) -> list[Tensor]:
        return [self.run(x) for x in given]

    @torch.no_grad()
    def groups(self) -> list[list[BlockLayer]]:
        """Group the layers in the order in which they run; those that read the same tensor are
        together.

        Raises:
            ValueError: a layer does not run.
        """
        found: list[tuple[Tensor, list[BlockLayer]]] = []
        rows = Counter[str]()

        def note(layer: BlockLayer, x: Tensor) -> None:
            rows[layer.name] += x.shape[:-1].numel()
            if layer.name in reached:
                return
            reached.add(layer.name)
            together = next((group for y, group in found if y is x), None)
            if together is None:
                found.append((x, together := []))
            together.append(layer)

        reached: set[str] = set()
        with self._watched(self.layers, note):
            for given in self.given:  # an expert may wait for its first token
                self.run(given)
                if len(reached) == len(self.layers) and not self.experts:
                    break
            if self.experts.feed_starved(rows):
                self.run(self.given[0])
        missed = [layer.name for layer in self.layers if layer.name not in reached]
        if missed:
            raise ArgumentValueError(
                f"quantize_: calibration never reached {missed[0]}"
                + (f" and {len(missed) - 1} more" if len(missed) > 1 else "")
                + ". Hint: more calibration data, or name it in skip"
            )
        return [group for _, group in found]

    @contextmanager
    def _watched(
        self, layers: list[BlockLayer], see: Callable[[BlockLayer, Tensor], None]
    ) -> Iterator[None]:
        def hook(layer: BlockLayer) -> Any:
            def run(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                see(layer, args[0] if args else kwargs["input"])

            return layer.module.register_forward_pre_hook(run, with_kwargs=True)

        handles = [hook(layer) for layer in layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def inputs(self, layer: BlockLayer, index: int, given: Given) -> list[Tensor]:
        """Return the inputs of a layer in one call, one for each time that it runs.

        Args:
            layer: the layer. index: of the call. given: what the block is called with there.
        """
        seen: list[Tensor] = []
        most = self._runs[index].get(layer.name, 0)

        def see(layer: BlockLayer, x: Tensor) -> None:
            seen.append(x.clone() if most != 1 else x)
            if len(seen) == most:
                raise Stop

        with self._watched([layer], see), suppress(Stop):
            self.run(given)
        return seen

    def _inputs_of(self, layers: list[BlockLayer], given: Given) -> dict[str, list[Tensor]]:
        """Name of each layer -> its inputs in one call."""
        seen: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}

        def see(layer: BlockLayer, x: Tensor) -> None:
            seen[layer.name].append(x)

        with self._watched(layers, see):
            self.run(given)
        return seen

    def statistics(
        self, groups: list[list[BlockLayer]], *, reference: bool = True
    ) -> Iterator[tuple[list[BlockLayer], InputStatistics]]:
        """Each group of :meth:`groups` with the statistics of its inputs, the groups before it as
        they are now. Those of experts, which do not read each other's results, are added up in one
        run for many; they are not compared with the dense model, which may route otherwise.

        Args:
            groups: in the order in which they run.
            reference: whether errors that come in are wanted.

        Raises:
            ValueError: an input is NaN or Inf.
        """
        for together in self.experts.together(groups):
            if self.experts.has(together[0][0]):
                yield from zip(together, self._of_experts(together), strict=True)
            else:
                yield together[0], self.input_statistics(together[0], reference=reference)

    @torch.no_grad()
    def _of_experts(self, groups: list[list[BlockLayer]]) -> list[InputStatistics]:
        firsts = [group[0] for group in groups]
        found = [InputStatistics.zeros(x.dense.shape[1], x.dense.device) for x in firsts]
        for given in self.given:
            seen = self._inputs_of(firsts, given)
            for layer, result in zip(firsts, found, strict=True):
                for x in seen[layer.name]:
                    result.add(x, None)
        for layer, result in zip(firsts, found, strict=True):
            _refuse_non_finite(layer, result)
        return found

    @torch.no_grad()
    def input_statistics(
        self, group: list[BlockLayer], *, reference: bool = True
    ) -> InputStatistics:
        """Add up the statistics of the inputs of a group of :meth:`groups`, with the groups before
        it as they are now; without ``reference`` the errors that come in are left out.

        Raises:
            ValueError: an input is NaN or Inf.
        """
        first, k = group[0], group[0].dense.shape[1]
        result = InputStatistics.zeros(k, first.dense.device)
        for i, given in enumerate(self.given):
            wanted: list[Tensor] = []
            if reference and self.reference is not None:
                with self.dense():
                    wanted = self.inputs(first, i, self.reference[i])
            found = self.inputs(first, i, given)
            paired = len(found) == len(wanted)  # experts may be given other tokens
            for x, want in zip(found, wanted if paired else [None] * len(found), strict=True):
                result.add(x, want)
        _refuse_non_finite(first, result)
        return result


def _refuse_non_finite(layer: BlockLayer, statistics: InputStatistics) -> None:
    if not bool(statistics.mean.isfinite().all()):
        raise ArgumentValueError(f"calibration: the input of {layer.name} holds NaN or Inf")
