"""Ratios of times within one run, or to a peer's: what each op is compared with, and how much more
it may take. Imports no torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from . import timed
from .peer_times import times_of
from .results import Results, Times, over
from .row import Point
from .schemes import MAIN, Scheme
from .timed import Timed


@dataclass(frozen=True)
class Peer:
    """A kernel in a file of benchmarks/peers."""

    file: str
    kernel: str


def _everywhere(point: Point) -> bool:
    return True


@dataclass(frozen=True)
class Ratio:
    """One time over another.

    Attributes:
        text: what is compared.
        limit: the most it may be; None where there is no target.
        where: the points that count.
        as_speed: told as how many times as fast the first is, in geometric means.
    """

    text: str
    of: Timed
    over: Timed | Peer
    limit: float | None = None
    where: Callable[[Point], bool] = _everywhere
    as_speed: bool = False

    def ratios(self, results: Results) -> Times:
        """Return the ratios at points; empty when one of the two was not measured; the peers were
        on a GPU."""
        if isinstance(self.over, Peer):
            if on_cpu(results):
                return {}
            others = times_of(self.over.file, self.over.kernel)
        else:
            others = results.of(self.over)
        found = over(results.of(self.of), others)
        return {point: ratio for point, ratio in found.items() if self.where(point)}

    def misses(self, results: Results) -> list[Point]:
        """Return the ratios, worst first."""
        return beyond(self.ratios(results), math.inf if self.limit is None else self.limit)


def on_cpu(results: Results) -> bool:
    return "cpu" in results.meta


def rows_between(first: int, last: float = math.inf) -> Callable[[Point], bool]:
    return lambda point: first <= point.m <= last


def _images(count: int) -> Callable[[Point], bool]:
    """Choose convolutions of so many images; see ops/qconv2d.py for the text of a layer."""
    return lambda point: point.layer.startswith(f"{count}x")


def _gemm(scheme: Scheme) -> Timed:
    return Timed(timed.GEMM, scheme)


def _convolutions(images: int) -> tuple[Ratio, ...]:
    of, dequantize = Timed(timed.QCONV2D), Timed(timed.QCONV2D, None, "dequantize_conv")
    where = _images(images)
    return (
        Ratio(f"qconv2d / cuDNN fp16, {images} images", of, Timed(timed.CONV2D), None, where, True),
        Ratio(f"qconv2d / dequantize + cuDNN, {images} images", of, dequantize, None, where, True),
    )


SCHEME_RATIOS = (
    Ratio("bf16 / fp16", _gemm(Scheme.parse("w4_g128_bf16")), _gemm(MAIN), 1.05),
    Ratio("group 64 / 128", _gemm(Scheme.parse("w4_g64_fp16")), _gemm(MAIN), 1.15),
    Ratio("group 32 / 128", _gemm(Scheme.parse("w4_g32_fp16")), _gemm(MAIN), 1.15),
    Ratio("zeros / symmetric", _gemm(Scheme.parse("w4_g128_sub_fp16")), _gemm(MAIN), 1.05),
)
W8A8_RATIOS = (
    Ratio("scaled_mm / _int_mm", timed.SCALED_MM, timed.INT_MM, 1.05),
    Ratio(
        "scaled_mm / (_int_mm + scaling), M >= 256",
        timed.SCALED_MM,
        timed.INT_MM_SCALED,
        0.80,
        rows_between(256),
    ),
    Ratio("scaled_mm_azp / scaled_mm", timed.AZP, timed.SCALED_MM, 1.05),
    Ratio("scaled_mm_azp per token / scaled_mm", timed.AZP_PER_TOKEN, timed.SCALED_MM, 1.05),
    Ratio("scaled_mm / cuBLAS fp16", timed.SCALED_MM, timed.DENSE_FP16),
    Ratio("quantize_per_token + scaled_mm / cuBLAS fp16", timed.W8A8_LAYER, timed.DENSE_FP16),
)
FP8_RATIOS = (
    Ratio("fp8 / torch, exact sums", timed.FP8_OURS, timed.TORCH_FP8, 0.95),
    Ratio(
        "fp8 / torch, fast sums, M <= 256",
        timed.FP8_OURS,
        timed.TORCH_FP8_FAST,
        1.0,
        rows_between(1, 256),
    ),
    Ratio(
        "fp8 / torch, fast sums, M > 256",
        timed.FP8_OURS,
        timed.TORCH_FP8_FAST,
        1.05,
        rows_between(257),
    ),
    Ratio("fp8 in blocks / fp8", timed.FP8_BLOCKS, timed.FP8_OURS),
    *(
        Ratio(f"{text}, M {rows}", of, over, limit, where)
        for text, of, over in (
            ("fp8 / MSLK", timed.FP8_OURS, timed.MSLK),
            ("fp8 in blocks / DeepGEMM", timed.FP8_BLOCKS, timed.DEEP_GEMM),
        )
        for rows, limit, where in (
            ("<= 256", 0.95, rows_between(1, 256)),
            ("> 256", 1.0, rows_between(257)),
        )
    ),
    Ratio("int8 / fp8", timed.INT8_BF16, timed.FP8_OURS),
)
W8A8_PEERS = tuple(
    Ratio(f"scaled_mm / {text} of the peer timings", timed.SCALED_MM, Peer("peers_w8a8_h200", name))
    for name, text in (
        ("torch_int_mm_only", "_int_mm"),
        ("torch_int_mm_plus_scaling_fp16", "_int_mm + scaling"),
    )
)
_AWQ, _TRITON = Timed(timed.AWQ_GEMM), Peer("peers_h200", "vllm_triton_awq_gemm_g128")
AWQ_RATIOS = (
    Ratio("awq_gemm / vLLM's Triton op, M <= 64", _AWQ, _TRITON, 1 / 3, rows_between(1, 64)),
    Ratio("awq_gemm / vLLM's Triton op, every M", _AWQ, _TRITON, 1.0),
    Ratio(
        "awq_gemm / fpA_intB_gemm on the weights repacked, M <= 16",
        _AWQ,
        Timed(timed.GEMM),
        1.3,
        rows_between(1, 16),
    ),
)
_BLOCK = Timed(timed.BLOCK_GEMM)
BLOCK_RATIOS = (
    Ratio("block_quant_gemm / a loop of _int_mm", _BLOCK, Timed(timed.LOOP), 1 / 5, as_speed=True),
    Ratio(
        "block_quant_gemm / the products of that loop",
        _BLOCK,
        Timed(timed.LOOP_PRODUCTS),
        as_speed=True,
    ),
    Ratio("block_quant_gemm / cuBLAS fp16", _BLOCK, timed.DENSE_FP16, as_speed=True),
)
CONV_RATIOS = tuple(ratio for images in (1, 8, 32) for ratio in _convolutions(images))
RATIOS = (
    *SCHEME_RATIOS,
    *W8A8_RATIOS,
    *FP8_RATIOS,
    *W8A8_PEERS,
    *AWQ_RATIOS,
    *BLOCK_RATIOS,
    *CONV_RATIOS,
)


def shown(ratios: Mapping[Point, float]) -> str:
    """Tell mean and worst."""
    if not ratios:
        return "-"
    return f"{statistics.mean(ratios.values()):.2f} ({max(ratios.values()):.2f})"


def shown_as_speed(ratios: Mapping[Point, float]) -> str:
    """Tell how many times faster, the geometric mean, and the least."""
    mean = statistics.geometric_mean(ratios.values())
    return f"{1 / mean:.2f} ({1 / max(ratios.values()):.2f})"


def faster(ratios: Mapping[Point, float]) -> str:
    """Tell at how many of the points we are faster than the reference."""
    return f"faster at {sum(ratio < 1 for ratio in ratios.values())} of {len(ratios)}"


def beyond(ratios: Mapping[Point, float], limit: float) -> list[Point]:
    """Return the points beyond the limit, worst first."""
    return sorted((p for p in ratios if ratios[p] > limit), key=lambda p: -ratios[p])


def listed(values: Mapping[Point, str], points: Sequence[Point]) -> list[str]:
    """Join misses, four a line: their list is long when there is work to do."""
    words = [f"{point} {values[point]}" for point in points]
    return ["    " + ", ".join(words[i : i + 4]) for i in range(0, len(words), 4)]


def two_digits(ratios: Mapping[Point, float]) -> dict[Point, str]:
    return {point: f"{ratio:.2f}" for point, ratio in ratios.items()}


def ratio_lines(results: Results) -> list[str]:
    lines = []
    for ratio in RATIOS:
        found = ratio.ratios(results)
        if not found:
            continue
        missed = ratio.misses(results)
        if ratio.as_speed:
            text = f"{ratio.text}: {shown_as_speed(found)} times as fast, mean (least)"
        else:
            text = f"{ratio.text}: {shown(found)}"
        if ratio.limit is None:
            lines.append(f"{text}, {faster(found)}")
            continue
        lines.append(f"{text}, beyond {ratio.limit:.2f} at {len(missed)} of {len(found)}")
        lines += listed(two_digits(found), missed)
    return lines
