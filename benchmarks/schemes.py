"""Quantization schemes by name, the bytes a GEMM in one of them must move, and the suites that
bench_gemm.py measures. Imports no torch: targets.py, plot.py and report.py work offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapes import Point, peer_rows, peers_of

DTYPE_NAMES = {"fp16": "float16", "bf16": "bfloat16"}
SHORT_NAMES = {long: short for short, long in DTYPE_NAMES.items()}


@dataclass(frozen=True)
class Scheme:
    """How weights and activations are stored. bits 16 with group_size None is the dense GEMM."""

    bits: int
    group_size: int | None
    zero_mode: str | None
    dtype: str

    @property
    def name(self) -> str:
        """As :meth:`parse` takes it: w4_g128_fp16, w4_g128_sub_fp16, w8_channel_bf16."""
        if self.group_size is None:
            return f"dense_{SHORT_NAMES[self.dtype]}"
        group = "channel" if self.group_size == -1 else f"g{self.group_size}"
        zeros = "" if self.zero_mode is None else f"_{self.zero_mode}"
        return f"w{self.bits}_{group}{zeros}_{SHORT_NAMES[self.dtype]}"

    @classmethod
    def parse(cls, name: str) -> Scheme:
        """Raises: ValueError when `name` is not a quantized scheme."""
        parts = name.split("_")
        zeros = parts.pop(2) if len(parts) == 4 else None
        if (
            len(parts) == 3
            and parts[0] in ("w4", "w8")
            and (parts[1] == "channel" or (parts[1][:1] == "g" and parts[1][1:].isdigit()))
            and zeros in (None, "sub", "add")
            and parts[2] in DTYPE_NAMES
        ):
            group = -1 if parts[1] == "channel" else int(parts[1][1:])
            return cls(int(parts[0][1:]), group, zeros, DTYPE_NAMES[parts[2]])
        raise ValueError(f"scheme must look like w4_g128_fp16 or w8_channel_sub_bf16, got {name!r}")

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Scheme:
        if row["bits"] == 16:  # older files give the dense rows the zero mode of their suite
            return cls(16, None, None, row["dtype"])
        return cls(row["bits"], row["group_size"], row["zero_mode"], row["dtype"])

    def num_groups(self, k: int) -> int:
        if self.group_size is None:
            return 0
        return 1 if self.group_size == -1 else -(-k // self.group_size)

    def traffic_bytes(self, point: Point) -> float:
        """What must cross the memory bus once: weights, scales, zeros, activations, output."""
        n, k, m = point
        parameters = 2 * self.num_groups(k) * n * (1 if self.zero_mode is None else 2)
        return n * k * self.bits / 8 + parameters + 2 * m * (n + k)

    def peers(self) -> dict[Point, dict[str, float]]:
        """Peer timings (us) of the same weight width and group size."""
        return {} if self.group_size is None else peers_of(self.bits, self.group_size)

    def points(self) -> list[Point]:
        """Where the suite measures it: with int4 in groups every point, since those schemes are
        compared with each other too; the others where there is a peer to compare with."""
        compared = self.bits == 4 and self.group_size != -1
        return sorted(peer_rows("peers_h200") if compared else self.peers())


MAIN = Scheme.parse("w4_g128_fp16")
_NAMES = {
    "w4a16": ("w4_g128_fp16",),
    "ratios": ("w4_g128_fp16", "w4_g128_bf16", "w4_g128_sub_fp16", "w4_g64_fp16", "w4_g32_fp16"),
    "w8a16": ("w8_channel_fp16", "w8_g128_fp16"),
}
_NAMES["full"] = (*_NAMES["ratios"], "w4_channel_fp16", *_NAMES["w8a16"])
SUITES = {suite: tuple(map(Scheme.parse, names)) for suite, names in _NAMES.items()}
