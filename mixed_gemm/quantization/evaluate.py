"""Perplexity of a causal language model on a text, by a sliding window. Plain torch: the model is
anything that maps token ids to logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._progress import Progress, track
from .positions import longest_input

DEFAULT_WINDOW = 2048  # tokens
_ROWS = 512  # elements of the logits that are in float32 at a time: vocabularies have 10^5 entries


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of a model on a text.

    Attributes:
        perplexity: exp(nll).
        nll: mean negative log likelihood of a token, nats.
        tokens: how many were predicted: all but the first.
        window: tokens the model sees at once. stride: by how many the window moves.
    """

    perplexity: float
    nll: float
    tokens: int
    window: int
    stride: int

    def __str__(self) -> str:
        return (
            f"perplexity {self.perplexity:.4f} (nll {self.nll:.5f} nats) over {self.tokens} "
            f"tokens, window {self.window}, stride {self.stride}"
        )


def _nll(logits: Tensor, targets: Tensor) -> float:
    total = 0.0
    for begin in range(0, len(targets), _ROWS):
        rows, wanted = (x[begin : begin + _ROWS] for x in (logits, targets))
        total += torch.nn.functional.cross_entropy(rows.float(), wanted, reduction="sum").item()
    return total


def perplexity(
    model: Callable[[Tensor], Any],
    tokens: Tensor,
    *,
    window: int | None = None,
    stride: int | None = None,
    device: torch.device | str | None = None,
    progress: Progress = True,
) -> Perplexity:
    """Compute the perplexity by a sliding window. Each token but the first is predicted once, with
    at least ``window - stride`` tokens before it where the text has them.

    Args:
        model: maps int64 ids ``[1, L]`` to logits ``[1, L, vocabulary]``, or to an object whose
            ``logits`` they are (transformers). Call ``.eval()`` on it first.
        tokens: int64 ``[T]``, T >= 2.
        window: tokens the model sees at once, at least 2. None: 2048, or what the model was made
            for where its ``config`` says less (learned positions end there).
        stride: by how many the window moves, 1..window - 1; window // 2 when None. Smaller gives
            more context and takes longer; published figures often use window (no overlap), which
            is window - 1 here: one token of overlap, so that none is skipped.
        device: where the ids go; that of the model's first parameter when None, else the CPU.
        progress: True shows a bar on a terminal, "force" always.

    Raises:
        ValueError: too few tokens, an impossible window or stride, or logits of another shape or
            that are not finite.

    Source: Hugging Face, "Perplexity of fixed-length models".
    """
    if tokens.dim() != 1 or tokens.numel() < 2:
        raise ValueError(f"perplexity: tokens must be [T] with T >= 2, got {tuple(tokens.shape)}")
    if window is None:
        made_for = longest_input(getattr(model, "config", None))
        window = min(DEFAULT_WINDOW, made_for or DEFAULT_WINDOW)
    if window < 2:
        raise ValueError(f"perplexity: window must be at least 2, got {window}")
    step = max(1, window // 2) if stride is None else stride
    if not 1 <= step < window:
        raise ValueError(f"perplexity: stride must be in 1..{window - 1}, got {step}")
    if device is None and isinstance(model, torch.nn.Module):
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
    ids, count = tokens.to(device or "cpu"), tokens.numel()
    total, scored = 0.0, 1  # the first token has nothing before it
    with torch.no_grad():  # in inference mode layers that are fused run apart
        begins = range(0, max(count - window, 0) + step, step)
        for begin in track(begins, "perplexity", progress):
            end = min(begin + window, count)
            out = model(ids[begin:end].unsqueeze(0))
            logits = getattr(out, "logits", out)
            if logits.dim() != 3 or logits.shape[:2] != (1, end - begin):
                raise ValueError(
                    f"perplexity: logits must be [1, {end - begin}, vocabulary], got "
                    f"{tuple(logits.shape)}"
                )
            first = scored - begin  # position of the first token to score
            total += _nll(logits[0, first - 1 : -1], ids[scored:end])
            scored = end
    nll = total / (count - 1)
    if not math.isfinite(nll):
        raise ValueError(f"perplexity: the mean negative log likelihood is {nll}")
    # exp overflows where a broken model is off by more than 709 nats a token
    value = math.exp(nll) if nll < 700 else math.inf
    return Perplexity(value, nll, count - 1, window, step)
