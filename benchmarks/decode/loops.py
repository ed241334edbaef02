"""The time of a step that transformers runs and torch compiles, the host's time included."""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import torch

from . import checks, compiled
from .shape import Shape

WARM_UP = 3


@torch.no_grad()
def row(model: Any, shape: Shape, batch: int, context: int, rounds: int) -> dict[str, Any]:
    """Return microseconds of a step of one token of each sequence, which is checked first.

    Args:
        model: of ``compiled.decoder``. shape: of it.
        batch: sequences. context: tokens before. rounds: steps that are timed.
    """
    torch._dynamo.reset()
    device = model.device
    cache = compiled.filled_cache(model, batch, context)
    step = compiled.compiled(model, cache)
    ids = torch.randint(shape.vocabulary, (batch, 1), device=device)
    found = checks.check(model, cache, step, ids, context)
    times = []
    for _ in range(WARM_UP + rounds):
        compiled.rewind(cache, context)
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        _synchronize(device)
        begun = time.perf_counter()
        step(ids)
        _synchronize(device)
        times.append((time.perf_counter() - begun) * 1e6)
    kept = times[WARM_UP:]
    return {
        "batch": batch, "tokens": 1, "context": context, "us": round(statistics.median(kept), 1),
        "us_min": round(min(kept), 1), "us_max": round(max(kept), 1), **found,
        "weight_bytes": compiled.weight_bytes(model), "cache_bytes": compiled.cache_bytes(cache),
    }  # fmt: skip


def give_back(device: torch.device) -> None:
    """Free what compiled graphs of a model that is gone hold on to."""
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
