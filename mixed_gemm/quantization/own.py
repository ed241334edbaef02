"""The model's own forward while its layers are quantized: with the results of the layers that have
some, or dense, as it was handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .block_layer import BlockLayer, Replaced
from .block_sequence import Given, Unit
from .state import Runs, replaced
from .values import Apart, fresh


class _Rounded(nn.Linear):
    """A layer that computes with what its result stands for, made again for each call."""

    def __init__(self, layer: BlockLayer) -> None:
        nn.Module.__init__(self)
        assert layer.result is not None
        self._result, self._dtype = layer.result, layer.dense.dtype
        self.out_features, self.in_features = layer.dense.shape
        self.__dict__["bias"] = layer.module.bias  # no parameter, which a file would be read into

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self._result.dequantize(self._dtype)

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input, self.weight, self.bias)


class Finished:
    """The layers that have their results: stand-ins hang in their places from then on."""

    def __init__(self) -> None:
        self._places: list[tuple[nn.Module, str, nn.Module, nn.Module]] = []
        self.replaced: list[Any] = []  # functions that take back changes of layers that stay

    def add(self, layers: Iterable[BlockLayer]) -> None:
        for layer in layers:
            rounded = _Rounded(layer)
            for parent, child in layer.target.places:
                self._places.append((parent, child, layer.target.module, rounded))
                setattr(parent, child, rounded)

    @contextmanager
    def dense(self, within: set[nn.Module] | None = None) -> Iterator[None]:
        """Make the model what it was when it was handed over.

        Args:
            within: only modules below which something is asked for; None: all.
        """
        places = [x for x in self._places if within is None or x[0] in within]
        changed = [x for x in self.replaced if within is None and isinstance(x, Replaced)]
        for parent, child, original, _ in places:
            setattr(parent, child, original)
        for other in reversed(changed):
            other.exchange()
        try:
            yield
        finally:
            for other in changed:
                other.exchange()
            for parent, child, _, rounded in places:
                setattr(parent, child, rounded)

    def close(self) -> None:
        """Hang the layers themselves in their places again."""
        for parent, child, original, _ in self._places:
            setattr(parent, child, original)
        self._places.clear()


class Own:
    """Runs of the model by itself.

    Args:
        runs: of the model. batches: of calibration. finished: of all units before.
        blocks: by name, where they have their weights only while they are read.
        reading: within this of a block's name and whether it is dense it has its weights.
    """

    def __init__(
        self,
        runs: Runs,
        batches: Sequence[Any],
        finished: Finished,
        blocks: Mapping[str, nn.Module] | None = None,
        reading: Callable[[str, bool], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._runs, self._batches, self._finished = runs, batches, finished
        self._blocks, self._reading = blocks or {}, reading

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self._runs.model

    @property
    def batches(self) -> int:
        """The number of batches."""
        return len(self._batches)

    def run(self, batch: int, dense: bool) -> Any:
        """Run the model on a batch."""
        with ExitStack() as stack:
            if dense:
                stack.enter_context(self._finished.dense())
            for name, block in self._blocks.items():
                stack.enter_context(replaced(block, self._forward(name, block.forward, dense)))
            return self._runs(self._batches[batch])

    def _forward(self, name: str, own: Callable[..., Any], dense: bool) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            assert self._reading is not None
            with self._reading(name, dense):
                return own(*args, **kwargs)

        return forward

    @torch.no_grad()
    def captured(self, unit: Unit, dense: bool) -> list[list[Given]]:
        """Return the arguments of each call of a block, batch by batch."""
        found: list[list[Given]] = []

        def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found[-1].append(Given(*fresh((args, kwargs))))

        assert unit.block is not None
        handle = unit.block.register_forward_pre_hook(note, prepend=True, with_kwargs=True)
        try:
            for i in range(len(self._batches)):
                found.append([])
                self.run(i, dense)
        finally:
            handle.remove()
            self._runs.state.reset()
        return found


class Segment:
    """Layers that are looked at while the whole model runs, as a block: it takes the number of a
    batch and whether the layers before are dense.

    Args:
        own: the model. layers: the layers. is_last: whether no unit comes after, so that what the
            model returns is what they are for; else it is what they return.
    """

    def __init__(self, own: Own, layers: list[BlockLayer], is_last: bool) -> None:
        self._own, self._layers, self._is_last = own, layers, is_last

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters of the model."""
        return self._own.model.parameters()

    def __call__(self, batch: int, dense: bool) -> Tensor:
        returned: list[Tensor] = []

        def note(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            returned.append(output)

        with ExitStack() as stack:
            if not self._is_last:
                for layer in self._layers:
                    stack.callback(layer.module.register_forward_hook(note).remove)
            out = self._own.run(batch, dense)
        if self._is_last:
            returned = [x for _, x in Apart(out).tensors if x.is_floating_point()]
        if len(returned) == 1:
            return returned[0]
        return torch.cat([x.flatten().float() for x in returned])
