"""Checks of a compiled step, without which it is not timed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.reference.bounds import ROUNDING

from .compiled import rewind, run, word_of

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
# Results that a block rounds: of two norms, three products and their sums, two rotations,
# attention, SiLU and its product, three more products, two residuals.
ROUNDED_BY_BLOCK = 16
SPREAD = 4.0  # errors add up at random: two runs differ by more once in a great while
# Activations that are rounded to 8 bits may fall on the other side: half a step of 127.
OF_8_BITS = 2.0**-8
POISON = 1e3  # in places of a cache that nobody wrote: finite, since 0 times it must be 0


def limit(model: Any) -> float:
    """Return how far two runs may be apart, relative to the logits: the roundings of a step, as
    the bounds of the library count them, added up at random.

    Args:
        model: of ``compiled.decoder``.
    """
    unit, _ = ROUNDING[model.dtype]
    layers = [x for x in model.modules() if isinstance(x, mixed_gemm.Linear)]
    if any(x.scheme.input_activations is not None for x in layers):
        unit = max(unit, OF_8_BITS)
    return SPREAD * unit * math.sqrt(ROUNDED_BY_BLOCK * model.config.num_hidden_layers)


def apart(found: Tensor, wanted: Tensor) -> float:
    """Return the norm of the difference over that of ``wanted``, the largest of all rows."""
    found, wanted = found.double(), wanted.double()
    return float(((found - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max())


@torch.no_grad()
def check(model: Any, cache: Any, step: Step, ids: Tensor, context: int) -> dict[str, float]:
    """Compare a compiled step with the eager model behind the same tokens, and with itself where
    places of the cache that were not written hold large numbers.

    Args:
        model, cache, step: of ``compiled``. ids: ``[B, 1]``. context: tokens before.

    Returns:
        ``differs_by``, and the ``limit`` of it, both relative to the logits.

    Raises:
        RuntimeError: the step computes something else.
    """
    rewind(cache, context)
    wanted = run(model, ids, **{word_of(model): cache}).clone()
    logits = _logits(step, cache, ids, context)
    differs, most = apart(logits, wanted), limit(model)
    if not differs <= most:  # NaN, too
        raise RuntimeError(
            f"the compiled step differs from the eager model by {differs:.2g} of the logits, more "
            f"than {most:.2g}"
        )
    for layer in cache.layers:
        layer.keys[:, :, context + 1 :] = POISON
        layer.values[:, :, context + 1 :] = POISON
    if not torch.equal(_logits(step, cache, ids, context), logits):
        raise RuntimeError("the compiled step reads places of the cache that nobody wrote")
    return {"differs_by": float(f"{differs:.2g}"), "limit": float(f"{most:.2g}")}


def _logits(step: Step, cache: Any, ids: Tensor, context: int) -> Tensor:
    rewind(cache, context)
    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
    return step(ids)[1].clone()
