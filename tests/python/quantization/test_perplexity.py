"""Sliding-window perplexity: each token is scored once, with the context the window leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from mixed_gemm.quantization import perplexity

VOCABULARY = 11


class Bigram(torch.nn.Module):
    """Logits depend on the last token alone, so no window changes the result."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY))

    def forward(self, ids: Tensor) -> Tensor:
        return self.table[ids]


class Remembering(torch.nn.Module):
    """Logits depend on every token of the window up to the position."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY))

    def forward(self, ids: Tensor) -> Tensor:
        return self.table[ids].cumsum(1)


def brute_force(model: torch.nn.Module, tokens: Tensor, window: int, stride: int) -> float:
    """Mean negative log likelihood, each token predicted on its own from its context."""
    total, begin, end = 0.0, 0, min(window, len(tokens))
    for position in range(1, len(tokens)):
        while position >= end:
            begin += stride
            end = min(begin + window, len(tokens))
        context = tokens[begin:position].unsqueeze(0)
        logits = model(context)[0, -1].double().log_softmax(-1)
        total -= logits[tokens[position]].item()
    return total / (len(tokens) - 1)


@pytest.mark.parametrize("length", [2, 3, 16, 17, 50, 1000])
@pytest.mark.parametrize(("window", "stride"), [(2, 1), (16, 8), (16, 15), (16, 1), (2048, 512)])
def test_bigram_does_not_depend_on_the_window(length: int, window: int, stride: int) -> None:
    model, tokens = Bigram(), torch.randint(VOCABULARY, (length,))
    result = perplexity(model, tokens, window=window, stride=stride)
    exact = torch.nn.functional.cross_entropy(model.table[tokens[:-1]].double(), tokens[1:]).item()
    assert result.nll == pytest.approx(exact, rel=1e-5)
    assert result.perplexity == pytest.approx(math.exp(exact), rel=1e-5)
    assert result.tokens == length - 1


@pytest.mark.parametrize("length", [2, 7, 8, 9, 31])
@pytest.mark.parametrize(("window", "stride"), [(2, 1), (8, 1), (8, 3), (8, 7), (64, 32)])
def test_context_is_what_the_window_leaves(length: int, window: int, stride: int) -> None:
    model, tokens = Remembering(), torch.randint(VOCABULARY, (length,))
    result = perplexity(model, tokens, window=window, stride=stride)
    assert result.nll == pytest.approx(brute_force(model, tokens, window, stride), rel=1e-5)


def test_transformers_output_and_default_stride() -> None:
    @dataclass
    class Output:
        logits: Tensor

    model, tokens = Bigram(), torch.randint(VOCABULARY, (40,))
    result = perplexity(lambda ids: Output(model(ids)), tokens, window=10)
    assert result.stride == 5
    assert result.nll == perplexity(model, tokens, window=10).nll
    assert "over 39 tokens, window 10, stride 5" in str(result)


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (torch.zeros(1, dtype=torch.int64), {}, r"T >= 2, got \(1,\)"),
        (torch.zeros(2, 2, dtype=torch.int64), {}, r"tokens must be \[T\]"),
        (torch.zeros(9, dtype=torch.int64), {"window": 1}, "window must be at least 2"),
        (torch.zeros(9, dtype=torch.int64), {"window": 4, "stride": 4}, r"in 1\.\.3, got 4"),
        (torch.zeros(9, dtype=torch.int64), {"window": 4, "stride": 0}, r"in 1\.\.3, got 0"),
    ],
)
def test_refusals(tokens: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        perplexity(Bigram(), tokens, **options)


def test_nan_logits_and_wrong_shapes_are_refused() -> None:
    tokens = torch.zeros(9, dtype=torch.int64)
    with pytest.raises(ValueError, match="likelihood is nan"):
        perplexity(lambda ids: torch.full((*ids.shape, 3), math.nan), tokens)
    with pytest.raises(ValueError, match=r"logits must be \[1, 9, vocabulary\]"):
        perplexity(lambda ids: torch.zeros(1, 3), tokens)
