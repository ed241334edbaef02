"""The report of ``fuse_``: which layers have one product, and why the others have their own."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .report import told_together


@dataclass(frozen=True)
class FusedSet:
    """Layers whose products are one.

    Attributes:
        names: of the layers, in the order in which they are called; of an MLP the gate first.
        rows: output channels of the product, those between layers that are padding included.
    """

    names: tuple[str, ...]
    rows: int

    @property
    def text(self) -> str:
        """The names, what they begin with in common told once."""
        parts = [name.split(".") for name in self.names]
        alike = 0
        while all(x[alike] == parts[0][alike] for x in parts if len(x) > alike + 1):
            if any(len(x) <= alike + 1 for x in parts):
                break
            alike += 1
        rest = " + ".join(".".join(x[alike:]) for x in parts)
        return ".".join([*parts[0][:alike], rest])


@dataclass(frozen=True)
class FuseReport:
    """The report of :func:`mixed_gemm.fuse_`. ``print`` it.

    Attributes:
        sets: of layers whose products are one.
        apart: name of a linear layer -> why it has a product of its own.
        mlps: name of an MLP that runs in three ops (:class:`mixed_gemm.GatedMLP`) -> what is
            computed between its products.
        other_mlps: name of another module of layers -> why it runs as it did. Modules count that
            read their input in layers of theirs, and return what another of these returns.
        difference: between the outputs of the model before and after, for the example: the largest
            one of an element over the largest magnitude of its tensor, 0.0 where they are equal to
            the bit; None where nothing was fused.
        training: whether a layer that was fused is in train mode, where it runs by itself.
    """

    sets: tuple[FusedSet, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)
    difference: float | None = None
    training: bool = False
    mlps: Mapping[str, str] = field(default_factory=dict)
    other_mlps: Mapping[str, str] = field(default_factory=dict)

    @property
    def fused(self) -> tuple[str, ...]:
        """Names of the layers that share a product."""
        return tuple(name for found in self.sets for name in found.names)

    def __str__(self) -> str:
        lines = [f"{len(self.fused)} layers fused: {len(self.sets)} products in their place"]
        groups: dict[tuple[str, int], list[str]] = defaultdict(list)
        for found in self.sets:
            text = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", found.text)
            groups[text, found.rows].append(found.text)
        for (text, rows), texts in groups.items():
            several = len(texts) > 1
            name = f"{text} ({len(texts)})" if several else texts[0]
            lines.append(f"  {name}: {rows} output channels")
        if self.mlps:
            lines.append(f"{len(self.mlps)} MLPs with one op between their products:")
            lines += told_together(self.mlps)
        if self.difference is not None:
            same = "equal to the bit" if self.difference == 0 else f"within {self.difference:.1e}"
            lines.append(f"outputs of the example are {same}, before and after")
        if self.training:
            lines.append(
                "the model is in train mode, where every layer runs by itself: model.eval()"
            )
        if self.apart:
            lines.append(f"{len(self.apart)} layers with a product of their own:")
            lines += told_together(self.apart)
        if self.other_mlps:
            lines.append(f"{len(self.other_mlps)} MLPs as they were:")
            lines += told_together(self.other_mlps)
        return "\n".join(lines)


def warn_unless_fused(where: str, report: FuseReport) -> None:
    """Warn where nothing was fused, since whoever asked by an option sees no report.

    Args:
        where: who was asked. report: of ``fuse_``.
    """
    if report.sets or report.mlps:
        return
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in report.apart.items():
        names[reason].append(name)
    told = "; ".join(f"{reason} ({x[0]} and {len(x) - 1} more)" for reason, x in names.items())
    warnings.warn(f"{where}: fuse=True fused nothing: {told}", stacklevel=3)
