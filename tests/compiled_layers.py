"""Every kind of quantized layer under torch.compile: what a compiled graph has for inputs, and what
Python of ours a compiled call evaluates. Both cost time at each call, which nothing hides where a
GPU replays a graph.

Needs torch and what mixed_gemm depends on, no pytest: tests/smoke.py runs it under the oldest and
the newest torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Scheme
from mixed_gemm.nn.fused import FusedSequential

PACKAGE = str(Path(mixed_gemm.__file__).parent)
# Where no C++ library for this torch records gradients, the Autograd key has a kernel in Python. It
# runs at every call of an op, of a compiled graph too, whatever the op's arguments come from.
AUTOGRAD_KEY = str(Path(mixed_gemm.__file__).parent / "ops" / "autograd.py")


def _linear(n: int = 64, k: int = 96, **options: Any) -> nn.Module:
    return mixed_gemm.Linear.from_float(nn.Linear(k, n), **options)


def _act_order() -> nn.Module:
    q = torch.randint(-8, 8, (64, 96), dtype=torch.int8)
    scales, order = torch.rand(3, 64) / 8, torch.randperm(96)
    options = {"bits": 4, "group_size": 32, "permutation": order, "pre_scale": torch.rand(96) + 0.5}
    return mixed_gemm.Linear.from_quantized(q, scales, **options)


def _int8_conv() -> nn.Module:
    ranges = {"input_range": (-3.0, 3.0), "output_range": (-4.0, 4.0)}
    return mixed_gemm.Int8Conv2d.from_float(nn.Conv2d(8, 16, 3, padding=1), **ranges)


def _fused() -> nn.Module:
    layers = _linear(scheme="w4a16", group_size=32), nn.SiLU(), _linear(32, 64, scheme="w8a16")
    return FusedSequential(*layers)


def rows() -> Tensor:
    return torch.randn(5, 96)


def images() -> Tensor:
    return torch.randn(2, 8, 7, 7)


def indices() -> Tensor:
    return torch.randint(0, 50, (2, 7))


# Name -> (what makes a layer, what makes its input).
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "w4a16": (lambda: _linear(scheme="w4a16", group_size=32), rows),
    "w4a16_asym": (lambda: _linear(scheme="w4a16_asym", group_size=32), rows),
    "w8a16": (lambda: _linear(scheme="w8a16"), rows),
    "w4a16 in act-order": (_act_order, rows),
    "w8a8": (lambda: _linear(scheme="w8a8"), rows),
    "w8a8 dynamic_azp": (lambda: _linear(scheme="w8a8", activations="dynamic_azp"), rows),
    "w8a8 static": (
        lambda: _linear(scheme="w8a8", activations="static", input_range=(-3.0, 3.0)), rows
    ),
    "w8a8_block": (lambda: _linear(scheme="w8a8_block", group_size=32), rows),
    "fp8": (lambda: _linear(scheme="fp8"), rows),
    "fp8 weight-only": (lambda: _linear(scheme=Scheme.fp8(None)), rows),
    "fp8 in blocks": (lambda: _linear(scheme=Scheme.fp8(strategy="block", block=(32, 32))), rows),
    "embedding": (lambda: mixed_gemm.Embedding.from_float(nn.Embedding(50, 24)), indices),
    "Conv2d": (
        lambda: mixed_gemm.Conv2d.from_float(nn.Conv2d(8, 16, 3, padding=1), bits=8), images
    ),
    "Int8Conv2d": (_int8_conv, images),
    "fused activation": (_fused, rows),
}  # fmt: skip


def made(name: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A layer that never ran, frozen, and an input."""
    torch.manual_seed(seed)
    layer, example = LAYERS[name]
    return layer().requires_grad_(False).eval(), example()


def is_subclass(x: Any) -> bool:
    return isinstance(x, Tensor) and type(x) not in (Tensor, nn.Parameter)


class Spy:
    """A backend of torch.compile that counts the tensor subclasses among the inputs of graphs.

    Args:
        backend: by name, what runs the graphs.
    """

    def __init__(self, backend: str = "eager") -> None:
        self.backend = torch._dynamo.lookup_backend(backend)
        self.graphs = 0
        self.subclasses = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        self.subclasses += sum(map(is_subclass, inputs))
        return self.backend(graph, inputs)


def compiled(layer: nn.Module, x: Tensor) -> tuple[Any, Spy]:
    """A function that runs the layer as one graph, after its first call, and what the graph has for
    inputs. It is no method of ours: its own frame stands for the graph."""
    torch._dynamo.reset()
    spy = Spy()
    call = torch.compile(lambda x: layer(x), backend=spy, fullgraph=True)
    call(x)
    return call, spy


def evaluated(call: Callable[..., Any], *arguments: Any) -> list[str]:
    """The functions of this package that Python evaluates in a call."""
    found: list[str] = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE) and file != AUTOGRAD_KEY:
            found.append(f"{file[len(PACKAGE) + 1 :]}: {frame.f_code.co_name}")

    sys.setprofile(watch)
    try:
        call(*arguments)
    finally:
        sys.setprofile(None)
    return found


def check_layer(name: str) -> None:
    """AssertionError where a compiled call of a kind of layer costs more than plain tensors do."""
    layer, x = made(name)
    with torch.no_grad():
        call, spy = compiled(layer, x)
        python = evaluated(call, x)
        found, want = call(x), layer(x)
    assert spy.graphs == 1, f"{spy.graphs} graphs"
    assert spy.subclasses == 0, f"{spy.subclasses} subclasses are inputs"
    assert python == [], f"a compiled call evaluates {python}"
    assert torch.equal(found, want), "compiled and eager differ"
