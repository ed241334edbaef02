"""Embeddings of a class of their own, which models bring along: whether one computes from the rows
of its table alone, so that quantized rows can take their place.

Gemma multiplies rows by a number, BART, too; position embeddings of OPT add to the indices. The
names do not tell, so each is tried on data: the class runs on dense rows and on quantized ones.
"""

from __future__ import annotations

import copy
import inspect

import torch
from torch import Tensor, nn

from ..nn.embedding import Embedding
from ..nn.own_embedding import dense_like, held_beside_rows, own_class
from ..ops.problem import DTYPES

_V, _D = 11, 48  # sizes of the table that stands for one while it is tried
_NUMBER = 1.375  # for a buffer without values yet: exact in every dtype
_INDICES = (torch.tensor([0, 3, _V - 1, 3]), torch.arange(6, dtype=torch.int32).view(2, 3))


def why_not_rows(embedding: nn.Embedding) -> str:
    """Tell why an embedding of a subclass of ``nn.Embedding`` is not known to compute from rows
    alone; empty when its forward gives the same bits on quantized rows as on the numbers that they
    stand for.

    Args:
        embedding: dense.
    """
    kind = own_class(embedding)
    if kind is nn.Embedding:
        return ""
    what = f"is a {kind.__name__}"
    if kind.__module__.split(".")[0] == "torch":
        return f"{what}, not exactly nn.Embedding"
    if more := sorted(held_beside_rows(embedding)):
        return f"{what}, which holds more than rows and numbers: {', '.join(more)}"
    takes = inspect.signature(kind.forward).parameters
    if len(takes) != 2 or "forward" in vars(embedding):
        return f"{what}, whose forward does not take indices alone"
    return (
        "" if _computes_from_rows(embedding) else f"{what}, which computes otherwise than by rows"
    )


def _computes_from_rows(embedding: nn.Embedding) -> bool:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(_V, _D, generator=generator, device="cpu")
    try:
        with torch.no_grad():
            return all(_is_same(_small(embedding, drawn.to(dtype))) for dtype in DTYPES)
    except Exception:  # raised by code that nobody here has seen: it is not known
        return False


def _is_same(probe: nn.Embedding) -> bool:
    """Whether a class gives the same from quantized rows; and refuses what are no indices."""
    quantized = Embedding.from_float(probe)
    probe.weight = nn.Parameter(quantized.dequantize(), requires_grad=False)
    for indices in _INDICES:
        found, wanted = quantized(indices), probe(indices)
        if not isinstance(wanted, Tensor) or found.dtype != wanted.dtype:
            return False
        if not torch.equal(found, wanted) or wanted.shape != (*indices.shape, _D):
            return False
    try:
        probe(torch.ones(2, _V, dtype=probe.weight.dtype, device="cpu"))
    except Exception:  # as nn.Embedding raises
        return True
    return False  # it multiplies by its table


def _small(embedding: nn.Embedding, weight: Tensor) -> nn.Embedding:
    """Make an embedding of the same class with the same attributes, but small, on the CPU."""
    like = copy.copy(embedding)
    like._buffers = {name: _with_values(x, weight.dtype) for name, x in embedding._buffers.items()}
    if like.padding_idx is not None:
        like.padding_idx = 0
    return dense_like(like, weight)


def _with_values(buffer: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if buffer is None:
        return None
    found = torch.full_like(buffer, _NUMBER, device="cpu") if buffer.is_meta else buffer.cpu()
    return found.to(dtype) if found.is_floating_point() else found
