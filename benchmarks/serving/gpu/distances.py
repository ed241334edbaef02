"""How far log-probabilities of an engine lie from those of the same file in float32 on the CPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import engine

Ids = list[int]


@dataclass(frozen=True)
class Said:
    """The log-probabilities that an engine gave for a sequence.

    Attributes:
        ids: prompt and, where tokens were generated, those behind it. known: how many of ``ids``
            come before the first that ``logprobs`` is of, one for each that follows.
    """

    ids: Ids
    known: int
    logprobs: list[float]


@dataclass(frozen=True)
class Expected:
    """For each token but the first, in float32: its log-probability, and that of the best one."""

    own: list[float]
    best: list[float]


Reference = Callable[[list[Ids]], list[Expected]]


def compare(said: list[Said], reference: Reference, chosen: bool) -> dict[str, Any]:
    """The mean, the median and the largest distance; where the engine has ``chosen`` the tokens,
    how many are not the best of the reference (ties apart), and by how much the worst is less
    probable."""
    distances, lost = [], []
    expected = reference([x.ids for x in said])
    for found, wanted in zip(said, expected, strict=True):
        for i, logprob in enumerate(found.logprobs, found.known - 1):
            distances.append(abs(logprob - wanted.own[i]))
            lost.append(wanted.best[i] - wanted.own[i])
    told: dict[str, Any] = {
        "n": len(distances),
        "mean": round(statistics.fmean(distances), 6),
        "median": round(statistics.median(distances), 6),
        "max": round(max(distances), 6),
    }
    choices = {"not_best": sum(x > 1e-6 for x in lost), "lost": round(max(lost), 6)}
    return {**told, **(choices if chosen else {})}


def reference_of(folder: Path) -> Reference:
    """Sequences are computed as one batch, padded behind their ends, where nothing of a causal
    model looks; each batch once."""
    import torch

    model: Any = engine.load(folder, "float32").eval()
    known: dict[str, list[Expected]] = {}

    @torch.inference_mode()
    def computed(sequences: list[Ids]) -> list[Expected]:
        longest = max(map(len, sequences))
        padded = torch.tensor([x + [0] * (longest - len(x)) for x in sequences])
        logprobs = model(padded).logits.float().log_softmax(-1)
        own = logprobs[:, :-1].gather(2, padded[:, 1:, None])[..., 0].tolist()
        best = logprobs[:, :-1].amax(-1).tolist()
        ends = [len(x) - 1 for x in sequences]
        return [Expected(o[:n], b[:n]) for o, b, n in zip(own, best, ends, strict=True)]

    def reference(sequences: list[Ids]) -> list[Expected]:
        key = repr(sequences)
        if key not in known:
            known[key] = computed(sequences)
        return known[key]

    return reference
