"""What every family must stand: repeats, two streams at once, a graph, a producer on another
stream. Not a
pytest file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Run = Callable[[Tensor], Tensor]  # activations -> output


def assert_repeats_are_equal(call: Callable[[], Tensor], times: int = 100) -> None:
    """The same call gives the same bits."""
    first = call()
    assert all(torch.equal(call(), first) for _ in range(times))


def assert_two_streams_share_nothing(run: Run, inputs: Sequence[Tensor], times: int = 100) -> None:
    """The same configuration on a stream for each input, beside each other."""
    expected = [run(a) for a in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for _ in range(times):
        outs = []
        for stream, a in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                outs.append(run(a))
        torch.cuda.synchronize()
        assert all(torch.equal(o, e) for o, e in zip(outs, expected, strict=True))


def assert_replays_what_it_computes(run: Run, a: Tensor, fresh: Callable[[int], Tensor]) -> None:
    """A graph of ``run(a)``, replayed on other values of ``a``; ``fresh(seed)`` makes them."""
    a = a.clone()
    run(a)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(a)
    for seed in range(10):
        values = fresh(seed)
        a.copy_(values)
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, run(values))


def assert_sees_its_producer(run: Run, a: Tensor) -> None:
    """On a side stream, behind a kernel that writes ``a`` late."""
    expected = run(a)
    late = torch.full_like(a, float("nan"))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # about 10 ms: a kernel on the wrong stream would read NaN
        late.copy_(a)
        out = run(late)
    stream.synchronize()
    assert torch.equal(out, expected)
