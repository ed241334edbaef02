"""Measure which configuration is the fastest on this GPU, and remember it (``tune``)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _library
from .._progress import Progress, track
from ..nn.linear import Linear
from ..weights.integer import IntegerWeight
from ..weights.scheme import Scheme
from . import tables
from .operands import Operands, Weight
from .planning import cuda_device, device_string, whole_number
from .timing import time_interleaved, timers_of

DEFAULT_M = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CONSIDERED = 2.5  # candidates predicted to take longer than this times the best are not measured
MOST = 40  # candidates of one problem
ROUNDS = 7


@dataclass(frozen=True)
class TuneResult:
    """The configuration that was found for one problem.

    Attributes:
        problem: in words.
        config: the fastest configuration. us: its time, microseconds.
        before: what would have run. before_us: its time in the same measurement.
    """

    problem: str
    config: str
    us: float
    before: str
    before_us: float

    def __str__(self) -> str:
        gain = "" if self.config == self.before else f", was {self.before} {self.before_us:.2f} us"
        return f"{self.problem}: {self.config} {self.us:.2f} us{gain}"


def _plan(w: Weight, m: int, device: torch.device) -> dict[str, Any]:
    where = device_string(device)
    answer: dict[str, Any] = json.loads(
        torch.ops.mixed_gemm._plan(m, w.n, w.k, w.dtype_name, device=where, **w.scheme.plan_options)
    )
    if not answer["ok"]:
        raise ValueError(f"tune: {w.n} x {w.k}: {'; '.join(answer['reasons'])}")
    return answer


def _tune_one(operands: Operands, m: int) -> tuple[tables.Point, TuneResult]:
    w = operands.weight
    answer = _plan(w, m, operands.device)
    before: str = answer["selected"]
    least = min(c["predicted_us"] for c in answer["candidates"])
    names = [
        c["config"] for c in answer["candidates"][:MOST] if c["predicted_us"] <= CONSIDERED * least
    ]
    a = operands.activations(m)
    names = list(dict.fromkeys([before, *names]))
    calls = {name: operands.calls(a, name) for name in names}
    # Time one contest: what is clearly behind drops out early, and `before` never, to tell the
    # gain.
    times = time_interleaved(
        timers_of(calls, operands.device), ROUNDS, dict.fromkeys(names, "fastest"), {before}
    )
    us = {name: timing.us for name, timing in times.items()}
    best = min(us, key=lambda name: us[name])
    s = w.scheme
    point = tables.Point(
        dtype=w.dtype_name,
        weight=s.weight_type,
        group_size=s.group_size,
        zeros=s.has_zeros,
        n=w.n,
        k=w.k,
        m=m,
        config=best,
        us=round(us[best], 3),
    )
    words = f"M={m} N={w.n} K={w.k} {w.dtype_name} {s}"
    return point, TuneResult(words, best, us[best], before, us[before])


def _weights_of(model: torch.nn.Module) -> list[Weight]:
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, Linear) and isinstance(layer.weight, IntegerWeight)
    ]
    if not layers:
        raise ValueError("tune: the module has no mixed_gemm.Linear; quantize_() makes them")
    found = [
        Weight(
            layer.out_features,
            layer.in_features,
            layer.scheme,
            layer.weight.dtype,
        )
        for layer in layers
    ]
    return list(dict.fromkeys(found))


def _checked_rows(m: Sequence[int]) -> list[int]:
    rows = sorted({whole_number("tune", "m", count) for count in m})
    if not rows or rows[0] < 1:
        raise ValueError(f"tune: m must be numbers of rows, 1 or more, got {list(m)!r}")
    return rows


def _checked_extent(name: str, value: int) -> int:
    found = whole_number("tune", name, value)
    if found < 1:
        raise ValueError(f"tune: {name} must be 1 or more, got {found}")
    return found


def tune(
    target: torch.nn.Module | int,
    k: int | None = None,
    *,
    m: Sequence[int] = DEFAULT_M,
    dtype: torch.dtype = torch.float16,
    bits: int = 4,
    group_size: int = 128,
    zero_mode: str | None = None,
    device: torch.device | str | None = None,
    save: bool = True,
    progress: Progress = True,
) -> list[TuneResult]:
    """Measure the candidates of ``plan()`` on this GPU and use the fastest from now on. Two forms:
    ``tune(model)`` for every distinct ``mixed_gemm.Linear`` in it, ``tune(n, k, ...)`` for one
    weight. Takes about a second for each problem.

    Args:
        target: a module, or n, the output channels. k: the input channels.
        m: rows of the activations to tune for; other M use the next larger one.
        dtype: float16 or bfloat16. bits, group_size, zero_mode: as in ``plan``. For a module these
            come from its layers.
        device: a CUDA device; None is the current one.
        save: keep the result for later processes, in the user's cache directory (or
            $MIXED_GEMM_CACHE_DIR). If that fails, a warning says so, and the result holds for this
            process.
        progress: True shows a bar on a terminal, "force" always.

    Returns:
        One result for each weight and m.

    Raises:
        RuntimeError: no CUDA device, or a CUDA graph is being captured.
        ValueError: the problem is refused; the text says why.
        ImportError: the library did not load.
    """
    _library.require()
    rows = _checked_rows(m)
    if not (_library.has_cuda and torch.cuda.is_available()):
        raise RuntimeError("tune: no CUDA device (or no CUDA kernels in this build) to measure on")
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("tune: a CUDA graph is being captured; tune before the capture")
    where = cuda_device("tune", "cuda" if device is None else device)
    if isinstance(target, torch.nn.Module):
        weights = _weights_of(target)
    else:
        if k is None:
            raise TypeError("tune needs (n, k) or a module")
        scheme = Scheme.weight_only(bits, group_size, zero_mode or "none")
        n, k = _checked_extent("n", target), _checked_extent("k", k)
        weights = [Weight(n, k, scheme, dtype)]

    points: list[tables.Point] = []
    results: list[TuneResult] = []
    jobs = [(weight, count) for weight in weights for count in rows]
    operands: Operands | None = None
    with torch.cuda.device(where), torch.no_grad():
        for weight, count in track(jobs, "tuning", progress):
            if operands is None or operands.weight != weight:
                operands = None  # frees the copies before the next ones are made
                operands = Operands(weight, where)
            point, result = _tune_one(operands, count)
            points.append(point)
            results.append(result)
    gpu = tables.current_gpu(where)
    if save:
        try:
            tables.save(gpu, points)
        except OSError as error:  # TimeoutError, which a lock that is held raises, is one
            warnings.warn(f"tune: the result is not saved: {error}", stacklevel=2)
    tables.install((gpu, points))
    return results
