"""The report of ``average_bits``: which tensors were chosen among 4 and 8 bits, and how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from .report import told_together


@dataclass(frozen=True)
class AverageBits:
    """The bits of each tensor that ``Options.average_bits`` chose.

    Attributes:
        asked: the bits of a weight that the average was not to be above.
        found: the bits of a weight on average over the tensors in ``bits``, each counted once,
            without scales and zero points.
        weights: how many weights these tensors have.
        bits: name of a layer -> the bits of its tensor; an output head that is tied to an embedding
            is under the name of that.
        tied: name of an output head -> that of the embedding whose tensor it multiplies by.
        apart: name of a layer -> the scheme of its own that ``heads`` or ``embeddings`` gave it and
            that is not one of 4 bits, so that it was neither chosen nor counted.
        batches: of calibration that it was measured on; 0: by the weights alone.
    """

    asked: float
    found: float
    weights: int
    bits: Mapping[str, int]
    tied: Mapping[str, str]
    apart: Mapping[str, str]
    batches: int

    def __str__(self) -> str:
        heads: dict[str, list[str]] = defaultdict(list)
        for head, table in self.tied.items():
            heads[table].append(head)
        told = {
            ", ".join([name, *heads[name]]): f"{bits} bits{', one tensor' if heads[name] else ''}"
            for name, bits in self.bits.items()
        }
        apart = {
            name: f"is {scheme} as asked, and not counted" for name, scheme in self.apart.items()
        }
        by = f"on {self.batches} batches" if self.batches else "by the weights alone"
        first = (
            f"{self.found:.4g} bits of a weight on average, at most {self.asked:g}, over "
            f"{len(self.bits)} tensors of {self.weights / 1e6:.2f} M weights, measured {by}:"
        )
        return "\n".join([first, *told_together({**told, **apart})])
