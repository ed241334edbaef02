"""The report of ``quantize_``: what became of each layer."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..weights.scheme import Scheme
from .evaluate import Perplexity
from .select import ALREADY

if TYPE_CHECKING:
    from .average import AverageBits
    from .fuse_report import FuseReport


@dataclass(frozen=True)
class LayerReport:
    """One layer that was quantized, or that holds a matrix which was not.

    Attributes:
        name: of the module.
        scheme: how it is stored now; None where it was left alone.
        reason: why it was left alone; empty where it was quantized.
        bytes_before: of the dense weight. bytes_after: of what stands for it now.
        weight_error: root mean square of what rounding changed over that of the weight; None on the
            meta device, and where the layer was left alone.
        output_error: root mean square of what rounding changed of the output on calibration data
            over that of the output; None where the method does not know.
        seconds: that it took.
        note: what calibration did for it, in words ("folded into model.norm").
        activation: of the module behind it, which its kernel runs too; empty where it does not.
    """

    name: str
    scheme: Scheme | None = None
    reason: str = ""
    bytes_before: int = 0
    bytes_after: int = 0
    weight_error: float | None = None
    output_error: float | None = None
    seconds: float = 0.0
    note: str = ""
    activation: str = ""


def told_together(reasons: Mapping[str, str]) -> list[str]:
    """Return indented lines "name: reason"; names that differ in their numbers alone share one."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, reason in reasons.items():
        groups[re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name), reason].append(name)
    return [
        f"  {names[0]}: {reason}" if len(names) == 1 else f"  {name} ({len(names)}): {reason}"
        for (name, reason), names in groups.items()
    ]


def warn_that_all_is_dense(where: str, model: object, skipped: Mapping[str, str]) -> None:
    """Say that no layer of a model was quantized, unless some were before: whoever asked for it
    counts on less memory.

    Args:
        where: who was asked. skipped: name -> why it was left alone.
    """
    if ALREADY in skipped.values():
        return
    some = told_together(skipped)
    more = [f"  and {len(some) - 5} more"] if len(some) > 5 else []
    found = "\n".join([":", *some[:5], *more]) if some else ": it has no linear layers"
    warnings.warn(f"{where}: no layer of {type(model).__name__} is quantized{found}", stacklevel=3)


@dataclass(frozen=True)
class Report:
    """The report of :func:`quantize_`. ``print`` it.

    Attributes:
        layers: name -> what became of it, of every ``nn.Linear``, ``nn.Conv2d`` (subclasses
            included) and ``Conv1D``, and of whatever else holds a matrix: "model.embed_tokens",
            "model.layers.0.mlp.experts.down_proj" where the parameter is no ``weight``.
        before, after: perplexity of the dense and of the quantized model, where it was asked for.
        calibrated: block, or the rest of the model, -> how a method that goes by blocks found what
            it is called with, and why not in a faster way; in the order in which they ran.
        products: the report of :func:`mixed_gemm.fuse_`, where ``fuse`` was asked for, else None.
        average: the bits of each tensor, where ``average_bits`` was asked for, else None.
    """

    layers: Mapping[str, LayerReport] = field(default_factory=dict)
    before: Perplexity | None = None
    after: Perplexity | None = None
    calibrated: Mapping[str, str] = field(default_factory=dict)
    products: FuseReport | None = None
    average: AverageBits | None = None

    @property
    def quantized(self) -> tuple[str, ...]:
        """Names of the modules that were replaced."""
        return tuple(name for name, layer in self.layers.items() if layer.scheme is not None)

    @property
    def skipped(self) -> dict[str, str]:
        """Name -> reason, of those that were left alone."""
        return {name: x.reason for name, x in self.layers.items() if x.scheme is None}

    @property
    def smoothed(self) -> dict[str, str]:
        """Name -> where the factors of SmoothQuant or AWQ went, of those that have some."""
        notes = {name: layer.note for name, layer in self.layers.items()}
        return {name: note for name, note in notes.items() if note.startswith(("folded", "kept"))}

    @property
    def fused(self) -> dict[str, str]:
        """Name -> activation, of those whose kernel runs one."""
        return {name: x.activation for name, x in self.layers.items() if x.activation}

    @property
    def bytes_before(self) -> int:
        """Bytes of the dense weights that were replaced."""
        return sum(layer.bytes_before for layer in self.layers.values())

    @property
    def bytes_after(self) -> int:
        """Bytes of the quantized weights: codes, scales, zero points and offsets."""
        return sum(layer.bytes_after for layer in self.layers.values())

    def plot(self, path: str | Path) -> None:
        """Draw the output error of every layer, in the order of the model, as a PNG; the error of
        the weight where the method does not know that of the output.

        Args:
            path: of the file.

        Raises:
            ImportError: matplotlib is not installed. ValueError: no error is known.
        """
        known = {
            name: x.output_error if x.output_error is not None else x.weight_error
            for name, x in self.layers.items()
        }
        errors = {name: x for name, x in known.items() if x is not None}
        if not errors:
            raise ValueError("Report.plot: no layer has an error to draw")
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        by_role: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for place, (name, error) in enumerate(errors.items()):
            by_role[name.rpartition(".")[2]].append((place, error))
        figure = Figure(figsize=(10, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for role, points in by_role.items():
            axes.plot(*zip(*points, strict=True), "o-", markersize=3, linewidth=0.8, label=role)
        of_output = any(x.output_error is not None for x in self.layers.values())
        axes.set_ylabel(f"relative error of the {'output' if of_output else 'weight'}")
        axes.set_xlabel("layer, in the order of the model")
        axes.legend(fontsize="small", ncols=2)
        figure.savefig(path, format="png", dpi=120)

    def __str__(self) -> str:
        ratio = f", {self.bytes_before / self.bytes_after:.2f}x" if self.bytes_after else ""
        lines = [
            f"{len(self.quantized)} layers quantized: {self.bytes_before / 1e6:.2f} MB -> "
            f"{self.bytes_after / 1e6:.2f} MB of weights{ratio}"
        ]
        if self.average is not None:
            lines.append(str(self.average))
        if self.smoothed:
            folded = sum(where.startswith("folded") for where in self.smoothed.values())
            lines.append(
                f"{len(self.smoothed)} layers smoothed: {folded} folded into the layer before, "
                f"{len(self.smoothed) - folded} with a pre_scale"
            )
        if self.fused:
            lines.append(f"{len(self.fused)} layers with their activation in the same kernel")
        if self.before is not None and self.after is not None:
            above = 100 * (self.after.perplexity / self.before.perplexity - 1)
            lines.append(
                f"perplexity {self.before.perplexity:.4f} -> {self.after.perplexity:.4f} "
                f"({above:+.2f} %) over {self.after.tokens} tokens"
            )
        if self.calibrated:
            lines.append(f"{len(self.calibrated)} parts of the model calibrated, each in turn:")
            lines += told_together(self.calibrated)
        if self.skipped:
            lines.append(f"{len(self.skipped)} layers skipped:")
            lines += told_together(self.skipped)
        if self.products is not None:
            lines.append(str(self.products))
        return "\n".join(lines)
