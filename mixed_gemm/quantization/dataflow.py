"""The observations of calibration: the range of every input channel of the layers, and from which
layer each linear gets its input when nothing else reads it (so that a factor can be folded there).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from .sample import RowSample
from .state import Runs, evaluating, run_batch

# These attributes and methods of a tensor read none of its values.
_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "layout")
_METHODS = ("size", "dim", "numel", "stride", "is_contiguous", "is_floating_point", "element_size")
_METADATA = {getattr(Tensor, name).__get__ for name in _ATTRIBUTES} | {
    getattr(Tensor, name) for name in _METHODS
}


@dataclass
class Observed:
    """The observations of one layer: least and largest value of every input channel, float32
    ``[K]``; for a convolution those of its output, too; the layers its inputs came from (None: from
    something that is no candidate); and some rows of the input, where they were asked for."""

    low: Tensor | None = None
    high: Tensor | None = None
    producers: set[str | None] = field(default_factory=set)
    output: tuple[float, float] | None = None
    sample: RowSample | None = None

    def range_after(self, factors: Tensor | None) -> tuple[float, float]:
        """Return the least and the largest value once channels are divided by ``factors``
        ``[K]``."""
        assert self.low is not None and self.high is not None
        low, high = self.low, self.high
        if factors is not None:
            low, high = low / factors, high / factors
        return float(low.min()), float(high.max())

    def add_output(self, y: Tensor) -> None:
        if y.numel() == 0:
            return
        low, high = (float(v) for v in torch.aminmax(y.detach()))
        before = self.output or (low, high)
        self.output = min(low, before[0]), max(high, before[1])

    def add(self, x: Tensor) -> None:
        rows = x.detach().reshape(-1, x.shape[-1])
        if rows.shape[0] == 0:
            return
        if self.sample is not None:
            self.sample.add(rows)
        low, high = (v.float() for v in torch.aminmax(rows, dim=0))
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)


@dataclass
class Producer:
    """A layer whose output may be divided by folded factors: a norm or a linear."""

    name: str
    module: nn.Module
    readers: set[str] = field(default_factory=set)  # linears that take its output as it is
    others: set[str] = field(default_factory=set)  # everything else that read it
    sample: Tensor | None = None  # the first element of a batch of its input, to check a fold


@dataclass
class Observations:
    layers: dict[str, Observed]
    producers: dict[str, Producer]


def _is_norm(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    kind = type(module).__name__.lower()
    over_last_dimension = "layernorm" in kind or "rmsnorm" in kind
    return over_last_dimension and weight is not None and weight.dim() == 1


def _tensors(value: Any, visited: set[int]) -> Iterator[Tensor]:
    """Yield every tensor in nested tuples, lists, mappings and plain objects (model outputs)."""
    if isinstance(value, Tensor):
        yield value
        return
    if id(value) in visited or isinstance(value, (nn.Module, type)):
        return
    visited.add(id(value))
    if isinstance(value, Mapping):
        value = value.values()
    elif hasattr(value, "__dict__"):
        value = vars(value).values()
    elif not isinstance(value, (tuple, list, set)):
        return
    for item in value:
        yield from _tensors(item, visited)


class _Watch(TorchFunctionMode):
    """A mode that notes every operation that reads the output of a producer. It sees what Python
    calls, whatever the kind of model."""

    def __init__(self, linear_of_weight: dict[int, str]) -> None:
        super().__init__()
        self.linear_of_weight = linear_of_weight
        self.made_by: Any = WeakIdKeyDictionary()  # tensor -> its producer
        self.paused = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.made_by and not self.paused and func not in _METADATA:
            for i, value in enumerate((*args, *kwargs.values())):
                for tensor in value if isinstance(value, (tuple, list)) else (value,):
                    if isinstance(tensor, Tensor) and tensor in self.made_by:
                        self._note(self.made_by[tensor], func, i, args)
        return func(*args, **kwargs)

    def _note(self, producer: Producer, func: Any, position: int, args: tuple[Any, ...]) -> None:
        is_linear = func is nn.functional.linear and position == 0 and len(args) > 1
        reader = self.linear_of_weight.get(id(args[1])) if is_linear else None
        if reader is None:
            producer.others.add(getattr(func, "__name__", str(func)))
        else:
            producer.readers.add(reader)

    def returned(self, output: Any) -> None:
        for tensor in _tensors(output, set()):
            if tensor in self.made_by:
                self.made_by[tensor].others.add("the output of the model")


def _watch_inputs(layer: nn.Module, observed: Observed, watch: _Watch) -> Any:
    channels = -3 if isinstance(layer, nn.Conv2d) else -1

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["input"]
        producer = watch.made_by.get(x)
        observed.producers.add(None if producer is None else producer.name)
        with watch.pause():
            observed.add(x.movedim(channels, -1))

    return layer.register_forward_pre_hook(hook, with_kwargs=True)


def _watch_result(layer: nn.Module, observed: Observed, watch: _Watch) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        with watch.pause():
            observed.add_output(output)

    return layer.register_forward_hook(hook)


def _watch_output(producer: Producer, watch: _Watch) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor) or not args:
            return
        watch.made_by[output] = producer
        if producer.sample is None:
            with watch.pause():
                producer.sample = args[0].detach()[:1].clone()

    return producer.module.register_forward_hook(hook)


def observe(
    model: nn.Module, layers: Mapping[str, nn.Module], batches: Iterable[Any], rows: int = 0
) -> Observations:
    """Run the batches through the model in eval mode, without gradients.

    Args:
        layers: name -> module, of those to watch: linears, and convolutions, whose output is
            watched too.
        batches: anything iterable; see :func:`run_batch`.
        rows: of the input of each linear that are kept, at most.

    Raises:
        ValueError: there is no batch, or a layer saw NaN or Inf.
    """
    producers = {
        name: Producer(name, module)
        for name, module in model.named_modules()
        if _is_norm(module) or type(module) is nn.Linear
    }
    sampled = {x for x in layers if rows and isinstance(layers[x], nn.Linear)}
    empty = {x: Observed(sample=RowSample(rows) if x in sampled else None) for x in layers}
    seen = Observations(empty, producers)
    watch = _Watch({id(layer.weight): name for name, layer in layers.items()})
    handles = [_watch_inputs(layers[x], seen.layers[x], watch) for x in layers]
    handles += [
        _watch_result(layer, seen.layers[name], watch)
        for name, layer in layers.items()
        if isinstance(layer, nn.Conv2d)
    ]
    handles += [_watch_output(producer, watch) for producer in producers.values()]
    count = 0
    try:
        with evaluating(model), torch.no_grad(), Runs(model) as runs:
            for batch in batches:
                with runs.of(batch) as given, watch:
                    watch.returned(run_batch(model, given))
                count += 1
    finally:
        for handle in handles:
            handle.remove()
    if count == 0:
        raise ValueError("calibration gave no batch")
    for name, observed in seen.layers.items():
        for bound in (observed.low, observed.high):
            if bound is not None and not bool(bound.isfinite().all()):
                raise ValueError(f"calibration: the input of {name} holds NaN or Inf")
        if not all(map(math.isfinite, observed.output or ())):
            raise ValueError(f"calibration: the output of {name} holds NaN or Inf")
    return seen
