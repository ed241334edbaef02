"""Rows of bench_scaled_mm.py: what was timed, and the reading of a results file. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shapes import Point

Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One thing that a row times. ``kernel``: a configuration of ours, else empty."""

    op: str
    operand: str = "int8"
    out_dtype: str = "float16"
    kernel: str = ""


FP8 = "float8_e4m3fn"
OURS = Variant("scaled_mm")
AZP = Variant("scaled_mm_azp")  # one zero point, folded into azp_adj
AZP_PER_TOKEN = Variant("scaled_mm_azp, per token")
INT_MM = Variant("torch._int_mm", out_dtype="int32")
INT_MM_SCALED = Variant("torch._int_mm + scaling")
CUBLAS = Variant("cublas", "float16")
FP8_BF16 = Variant("scaled_mm", FP8, "bfloat16")
FP8_FP16 = Variant("scaled_mm", FP8)
TORCH_FP8 = Variant("torch._scaled_mm", FP8, "bfloat16")
LAYER = Variant("quantize_per_token + scaled_mm", "float16")
QUANTIZE = Variant("quantize_per_token", "float16", "int8")
QUANTIZE_AZP = Variant("quantize_per_token, asymmetric", "float16", "int8")
QUANTIZE_TENSOR = Variant("quantize_per_tensor", "float16", "int8")
QUANTIZERS = (QUANTIZE, QUANTIZE_AZP, QUANTIZE_TENSOR)

Times = dict[Point, float]


class ScaledResults:
    """The rows of one file.

    Attributes:
        times: variant (without a kernel) -> point -> us. OURS is what plan() selects.
        candidates: point -> configuration of int8 scaled_mm -> us.
        names: point -> the configuration that plan() selects.
        roofline: point -> us, of int8 scaled_mm.
    """

    def __init__(self, meta: dict[str, Any], rows: Iterable[Row]) -> None:
        self.meta = meta
        self.times: dict[Variant, Times] = {}
        self.candidates: dict[Point, dict[str, float]] = {}
        self.names: dict[Point, str] = {}
        self.roofline: Times = {}
        for row in rows:
            self._add(row)

    @classmethod
    def load(cls, path: Path) -> ScaledResults:
        data = json.loads(path.read_text())
        return cls(data["meta"], data["rows"])

    def _add(self, row: Row) -> None:
        point: Point = row["N"], row["K"], row["M"]
        variant = Variant(row["op"], row["operand"], row["out_dtype"])
        if row["kernel"]:
            self.candidates.setdefault(point, {})[row["kernel"]] = row["us"]
            if not row["selected"]:
                return
            self.names[point] = row["kernel"]
            self.roofline[point] = row["roofline_us"]
        self.times.setdefault(variant, {})[point] = row["us"]

    def ratios(self, variant: Variant, over: Variant, first_m: int = 1) -> Times:
        """Of the times of two variants at the points that have both."""
        others = self.times.get(over, {})
        here = self.times.get(variant, {}).items()
        return {p: us / others[p] for p, us in here if p in others and p[2] >= first_m}
