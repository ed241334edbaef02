"""A few steps of training, as a user writes them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def losses_of(
    model: nn.Module, trained: list[nn.Parameter], tokens: Tensor, lr: float, steps: int = 12
) -> list[float]:
    """Train a causal language model to learn ``tokens`` by heart. Every step gives each trained
    parameter a finite gradient."""
    optimizer = torch.optim.AdamW(trained, lr=lr)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
        optimizer.step()
        losses.append(loss.item())
    return losses
