"""A sample of the rows that a layer reads, kept while calibration runs."""

from __future__ import annotations

import torch
from torch import Tensor


class RowSample:
    """Evenly spaced rows of a stream whose length nobody knows before: every one at first, and
    every second of those that are kept each time there are too many.

    Args:
        most: rows that are kept; once more went by, at least half as many are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Tensor] = []
        self._stride, self._seen = 1, 0

    def add(self, rows: Tensor) -> None:
        """Let rows ``[M, K]`` go by; those that are kept are copied."""
        self._kept.append(rows[-self._seen % self._stride :: self._stride].clone())
        self._seen += rows.shape[0]
        while sum(x.shape[0] for x in self._kept) > self._most:
            self._kept = [torch.cat(self._kept)[::2].clone()]
            self._stride *= 2

    def rows(self) -> Tensor:
        """Return the rows, ``[R, K]`` in the dtype of the stream; R = 0 only where nothing went by.

        Raises:
            RuntimeError: nothing was added.
        """
        return torch.cat(self._kept)
