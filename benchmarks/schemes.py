"""How operands are stored, by name, and the bytes that a product of them must move. Imports no
torch."""

from __future__ import annotations

from dataclasses import dataclass

from .peer_times import peer_rows, peers_of
from .row import Point, Row

DTYPE_NAMES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "int8": "int8",
    "fp8": "float8_e4m3fn",
    "int32": "int32",
}
SHORT_NAMES = {long: short for short, long in DTYPE_NAMES.items()}
BYTES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "int8": 1,
    "float8_e4m3fn": 1,
    "int32": 4,
}

# Bits of the codes that are no integers.
CODES = {"e2m1": 4, "e4m3": 8, "nf4": 4, "fp4": 4}


@dataclass(frozen=True)
class Scheme:
    """How weights, activations and the result are stored. Fields as in row.Row; a dense GEMM has
    the bits of its dtype and no ``group_size``, nor have 8-bit operands on both sides, whose scales
    are applied to the sums. Codes that are no integers have the name of their type, ``weight``."""

    bits: int | None
    group_size: int | None
    zero_mode: str | None
    dtype: str
    out_dtype: str | None = None
    weight: str | None = None

    @property
    def name(self) -> str:
        """The name of the scheme as :meth:`parse` takes it: w4_g128_fp16, w4_g128_sub_fp16,
        w8_channel_bf16, e2m1_g32_bf16. Where there are no groups: dense_fp16, int8_fp16 (the
        operands, the result)."""
        short = SHORT_NAMES[self.dtype]
        if self.group_size is None:
            kind = short if self.out_dtype else "dense"
            return f"{kind}_{SHORT_NAMES[self.out_dtype or self.dtype]}"
        group = "channel" if self.group_size == -1 else f"g{self.group_size}"
        zeros = "" if self.zero_mode is None else f"_{self.zero_mode}"
        return f"{self.weight or f'w{self.bits}'}_{group}{zeros}_{short}"

    @classmethod
    def parse(cls, name: str) -> Scheme:
        """Read a name. Raises: ValueError when ``name`` is not one of 4- or 8-bit weights."""
        bits = {"w4": 4, "w8": 8, **CODES}
        parts = name.split("_")
        zeros = parts.pop(2) if len(parts) == 4 else None
        if (
            len(parts) == 3
            and parts[0] in bits
            and (zeros is None or parts[0] not in CODES)
            and (parts[1] == "channel" or (parts[1][:1] == "g" and parts[1][1:].isdigit()))
            and zeros in (None, "sub", "add")
            and parts[2] in ("fp16", "bf16", "fp32")
        ):
            group = -1 if parts[1] == "channel" else int(parts[1][1:])
            weight = parts[0] if parts[0] in CODES else None
            return cls(bits[parts[0]], group, zeros, DTYPE_NAMES[parts[2]], weight=weight)
        raise ValueError(f"scheme must look like w4_g128_fp16 or w8_channel_sub_bf16, got {name!r}")

    @classmethod
    def of_row(cls, row: Row) -> Scheme:
        return cls(row.bits, row.group_size, row.zero_mode, row.dtype, row.out_dtype, row.weight)

    @classmethod
    def dense(cls, dtype: str) -> Scheme:
        return cls(8 * BYTES[dtype], None, None, dtype)

    def num_groups(self, k: int) -> int:
        if self.group_size is None:
            return 0
        return 1 if self.group_size == -1 else -(-k // self.group_size)

    def traffic_bytes(self, point: Point) -> float:
        """Bytes that must cross the memory bus once: weights, scales, zeros, activations,
        output."""
        size, out = BYTES[self.dtype], BYTES[self.out_dtype or self.dtype]
        parameters = self.num_groups(point.k) * point.n * (1 if self.zero_mode is None else 2)
        weight = point.n * point.k * (self.bits or 0) / 8
        return weight + size * (parameters + point.m * point.k) + out * point.m * point.n

    def peers(self) -> dict[Point, dict[str, float]]:
        """Return peer timings (us) of the same weight width and group size."""
        if self.bits is None or self.group_size is None or self.weight is not None:
            return {}
        return peers_of(self.bits, self.group_size)

    def points(self) -> list[Point]:
        """Return the points where the benchmark measures it: with int4 in groups at every point of
        the peer timings, since those schemes are compared with each other too; else where a peer
        was timed."""
        compared = self.bits == 4 and self.group_size != -1
        return sorted(peer_rows("peers_h200") if compared else self.peers())


MAIN = Scheme.parse("w4_g128_fp16")
_NAMES = {
    "w4a16": ("w4_g128_fp16",),
    "ratios": ("w4_g128_fp16", "w4_g128_bf16", "w4_g128_sub_fp16", "w4_g64_fp16", "w4_g32_fp16"),
    "w8a16": ("w8_channel_fp16", "w8_g128_fp16"),
    "cpu": tuple(
        f"{weight}_{dtype}"
        for dtype in ("fp32", "bf16")
        for weight in ("w4_g128", "w4_channel", "w8_g128", "w8_channel")
    ),
}
_NAMES["floats"] = tuple(
    f"{weight}_{dtype}"
    for dtype in ("bf16", "fp16")
    for weight in ("e2m1_g32", "e2m1_g16", "nf4_g64", "e4m3_channel", "e4m3_g128")
)
_NAMES["floats_cpu"] = tuple(
    f"{weight}_{dtype}"
    for dtype in ("fp32", "bf16")
    for weight in ("e2m1_g32", "e2m1_g16", "nf4_g64", "fp4_g64", "e4m3_channel", "e4m3_g128")
)
_NAMES["full"] = (*_NAMES["ratios"], "w4_channel_fp16", *_NAMES["w8a16"])
SUITES = {suite: tuple(map(Scheme.parse, names)) for suite, names in _NAMES.items()}
