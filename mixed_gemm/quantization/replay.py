"""Loops of small operations that the GPU runs from a recording: launched one by one, each would
wait for the CPU longer than it takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

KEPT = 16  # recordings: a model has a few shapes of layers


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


_recordings: OrderedDict[Any, _Recording] = OrderedDict()


def replayed(
    function: Callable[..., tuple[Tensor, ...]], tensors: tuple[Tensor, ...], *numbers: float | str
) -> tuple[Tensor, ...]:
    """Return ``function(*tensors, *numbers)``; on CUDA from a recording of it for these shapes.

    Args:
        function: neither changes its arguments nor looks at their values.
        tensors: all on one device. numbers: and names, which a recording is kept for.

    Returns:
        New tensors.
    """
    device = tensors[0].device
    if device.type != "cuda":
        return function(*tensors, *numbers)
    key = (function, numbers, device, tuple((tuple(x.shape), x.dtype) for x in tensors))
    if key not in _recordings:
        _recordings[key] = _record(function, tensors, numbers)
    _recordings.move_to_end(key)
    while len(_recordings) > KEPT:
        _recordings.popitem(last=False)
    found = _recordings[key]
    for place, given in zip(found.inputs, tensors, strict=True):
        place.copy_(given)
    with torch.cuda.device(device):
        found.graph.replay()
    return tuple(x.clone() for x in found.outputs)


def _record(
    function: Callable[..., tuple[Tensor, ...]], tensors: tuple[Tensor, ...], numbers: Any
) -> _Recording:
    with torch.cuda.device(tensors[0].device):
        inputs = tuple(x.clone(memory_format=torch.contiguous_format) for x in tensors)
        aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # a first call sets things up, which must not be recorded
            function(*inputs, *numbers)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = function(*inputs, *numbers)
    return _Recording(graph, inputs, outputs)
