"""benchmarks/: the targets, the ratios, and what is said of the points that miss them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.bench_rows import LARGE, META, SMALL, dense_row, row, row_of

from benchmarks import missed_points, ratios, summaries, targets, timed
from benchmarks.ratios import SCHEME_RATIOS
from benchmarks.references import References
from benchmarks.results import Results
from benchmarks.row import Point, Row, save
from benchmarks.schemes import MAIN, Scheme
from benchmarks.timed import AWQ_GEMM, BLOCK_GEMM, CONV2D, GEMM, LOOP, QCONV2D, Timed


def said(rows: Sequence[Row], **meta: Any) -> str:
    return "\n".join(targets.summary(Results({**META, **meta}, rows)))


@pytest.mark.parametrize(
    ("m", "limit"),
    (
        (1, 90.0),  # 0.90 of the best peer
        (64, 114.0),  # 0.95 of the best mma.sync peer
        (256, 108.0),  # 1.35 of cuBLAS, less than that
        (1024, 96.0),
        (2048, 88.0),
        (4096, 84.8),
    ),
)
def test_main_targets_by_bands(m: int, limit: float) -> None:
    refs = References(peer=100, mma_sync=120, cublas=80, floor=50)
    (target,) = (t for t in targets.MAIN_TARGETS if t.first <= m <= t.last)
    assert target.limit_of(refs) == pytest.approx(limit)


def test_targets_take_the_larger_or_smaller_of_their_two_parts() -> None:
    refs = References(peer=100, mma_sync=100, cublas=80, floor=90)
    assert targets.MAIN_TARGETS[0].limit_of(refs) == pytest.approx(99)
    assert targets.MAIN_TARGETS[2].limit_of(refs) == pytest.approx(95)
    assert targets.OTHER_TARGETS[0].limit_of(refs) == pytest.approx(99)
    unknown = dataclasses.replace(refs, cublas=None)
    assert targets.MAIN_TARGETS[2].limit_of(unknown) is None


def test_judge_counts_points_that_meet_their_target() -> None:
    slow, large = Point(8192, 8192, 1), Point(4096, 4096, 1024)
    rows = [row(5.13), row(30.0, point=slow), row(60.0, point=large), dense_row(50.0, large)]
    few, many = targets.judge(Results(META, rows), MAIN)
    assert (few.target.band, few.met, few.misses) == ("1-16", 1, [slow])
    assert few.over_limit[SMALL] == pytest.approx(1.0)
    assert few.peer[SMALL] == pytest.approx(5.13 / 5.7)
    assert ratios.faster(few.peer) == "faster at 1 of 2"
    assert (many.target.band, many.met) == ("1024", 1)
    assert many.over_limit == {large: pytest.approx(1.0)}


def test_schemes_are_compared_at_shared_points() -> None:
    bf16 = Scheme.parse("w4_g128_bf16")
    elsewhere = Point(4096, 4096, 2)
    rows = [row(10.0), row(10.7, scheme=bf16), row(9.0, scheme=bf16, point=elsewhere)]
    assert SCHEME_RATIOS[0].ratios(Results(META, rows)) == {SMALL: pytest.approx(1.07)}
    text = said(rows)
    assert "bf16 / fp16: 1.07 (1.07), beyond 1.05 at 1 of 1\n    4096x4096@1 1.07" in text
    assert "group 64" not in text


def test_regret_names_the_best_measured_configuration() -> None:
    rows = [row(6.0), row(5.0, "b", False), row(7.0, "c", False)]
    text = said(rows)
    assert f"{MAIN.name}: selected / best measured 1.20 (1.20), beyond 1.05 at 1 of 1" in text
    assert "4096x4096@1 1.20 (b)" in text
    assert "selected / best" not in said([row(6.0)]), "nothing to choose from"


def test_w8a8_targets() -> None:
    rows = [
        row_of(what, us, point, kernel="a" if what == timed.SCALED_MM else "")
        for what, times in (
            (timed.SCALED_MM, (10.5, 17.0)),
            (timed.INT_MM, (10.0, 16.0)),
            (timed.INT_MM_SCALED, (11.0, 20.0)),
            (timed.AZP, (10.5, 18.0)),
        )
        for point, us in zip((SMALL, LARGE), times, strict=True)
    ]
    text = said(rows)
    assert "scaled_mm / _int_mm: 1.06 (1.06), beyond 1.05 at 1 of 2\n    4096x4096@256" in text
    assert "M >= 256: 0.85 (0.85), beyond 0.80 at 1 of 1" in text, "M = 1 has no such target"
    assert "scaled_mm_azp / scaled_mm: 1.03 (1.06), beyond 1.05 at 1 of 2" in text
    assert "per token" not in text, "not measured"
    assert "_int_mm of the peer timings: 0.9" in text
    assert "peer timings" not in said(rows, cpu="one"), "the peers were on a GPU"


def test_quantizers_are_told_by_their_bandwidth() -> None:
    rows = [row_of(timed.QUANTIZE, 6.144, Point(0, 4096, 1000))]
    rates = summaries.quantizer_gb_per_s(Results(META, rows), timed.QUANTIZE)
    assert rates == {(4096, 1000): pytest.approx(2e3, 1e-2)}
    assert "quantize_per_token, GB/s: 1000 x 4096: 2000" in said(rows)


def test_speeds_are_geometric_means_of_inverse_ratios() -> None:
    block = Scheme(8, 128, "add", "float16")
    rows = [
        row_of(Timed(op, block), us, point)
        for op, times in ((BLOCK_GEMM, (1.0, 2.0)), (LOOP, (2.0, 16.0)))
        for point, us in zip((SMALL, LARGE), times, strict=True)
    ]
    text = said(rows)
    assert "a loop of _int_mm: 4.00 (2.00) times as fast, mean (least), beyond 0.20" in text
    layers = [f"{images}x64x56x56 -> 64, 1x1, stride 1" for images in (1, 8)]
    rows = [
        row_of(Timed(op, Scheme(4, 64, None, "float16")), us, Point(64, 64, 3136, layer))
        for layer, us in zip(layers, (2.0, 3.0), strict=True)
        for op, us in ((QCONV2D, us), (CONV2D, 6.0))
    ]
    text = said(rows)
    assert "qconv2d / cuDNN fp16, 1 images: 3.00 (3.00) times as fast" in text
    assert "qconv2d / cuDNN fp16, 8 images: 2.00 (2.00) times as fast" in text


def test_times_on_a_cpu_are_compared_with_what_runs_there() -> None:
    bf16, fp32 = Scheme.parse("w4_g128_bf16"), Scheme.parse("w4_g128_fp32")
    rows = [
        row(3.0, scheme=fp32),
        row(2.0, scheme=bf16),
        dense_row(8.0, SMALL, "float32"),
        dense_row(4.0, SMALL, "bfloat16"),
        row_of(Timed(timed.ATEN, bf16), 1.0),
    ]
    first, *lines = said(rows, cpu="one").splitlines()
    assert "F.linear bf16" in first
    assert [line.split() for line in lines] == [
        ["4096", "x", "4096", "1", "w4_g128_fp32", "3.00", "0.75", "0.38", "1.50"],
        ["4096", "x", "4096", "1", "w4_g128_bf16", "2.00", "0.50", "0.25", "1.00"],
    ]


@pytest.mark.parametrize(
    ("awq", "native", "m", "missed"),
    [
        (8.5, 7.0, 16, []),  # the Triton op takes 25.6 us
        (8.6, 7.0, 16, [0]),  # 25.6 / 8.6 = 2.98
        (8.5, 6.5, 16, [2]),  # 1.31
        (30.0, 6.0, 16, [0, 1, 2]),
        (14.0, 6.0, 64, []),  # no bound by fpA_intB_gemm above 16
        (70.0, 6.0, 128, []),  # 80.2: faster is enough above 64
        (81.0, 6.0, 128, [1]),
    ],
)
def test_check_fails_when_a_target_of_awq_is_missed(
    tmp_path: Path, awq: float, native: float, m: int, missed: list[int]
) -> None:
    sub, point = Scheme.parse("w4_g128_sub_fp16"), Point(4096, 4096, m)
    rows = [row_of(Timed(AWQ_GEMM, sub), awq, point), row(native, scheme=sub, point=point)]
    results = Results(META, rows)
    assert [i for i, r in enumerate(ratios.AWQ_RATIOS) if r.misses(results)] == missed
    path = tmp_path / "awq.json"
    save(path, META, rows)
    with pytest.raises(SystemExit) as exit:
        targets.main([str(path), "--check"])
    assert exit.value.code == int(bool(missed))
    targets.main([str(path)])  # says it, and is content


def test_missed_points_are_what_is_beyond_a_target_and_what_it_is_compared_with() -> None:
    bf16, zeros = Scheme.parse("w4_g128_bf16"), Scheme.parse("w4_g128_sub_fp16")
    slow, chosen = Point(8192, 8192, 1), Point(4096, 4096, 2)
    rows = [row(5.0), row(5.2, scheme=bf16), row(5.2, scheme=zeros)]  # all met
    rows += [row(30.0, point=slow), row(31.0, scheme=bf16, point=slow)]
    rows += [row(4.0, point=chosen), row(4.4, scheme=zeros, point=chosen)]
    rows += [row(4.0, "b", False, scheme=zeros, point=chosen)]
    results = Results(META, rows)
    symmetric, sub = "4096:4096:2@w4_g128_fp16", "4096:4096:2@w4_g128_sub_fp16"
    requests = [f"selected@{symmetric}", f"b@{sub}", f"selected@{sub}"]
    assert missed_points.requests(results) == [*requests, "selected@8192:8192:1@w4_g128_fp16"]

    def counters(us: float, stall: float) -> list[dict[str, Any]]:
        numbers = dict.fromkeys(missed_points.UNITS.values(), us)
        numbers |= {"us": us, "dram_read_bytes": us, "instructions": us, "l2_pct": 90.0}
        flags: dict[str, Any] = {"kernel": "zero_flags_kernel", "numbers": {}, "stalls": {}}
        return [flags, {"kernel": "gemm", "numbers": numbers, "stalls": {"wait": stall, "x": 0.1}}]

    profiles = {text: counters(4.0 + i, 1.0 + i) for i, text in enumerate(requests)}
    profiles["selected@8192:8192:1@w4_g128_fp16"] = counters(31.0, 4.0)
    limit, ratio, regret = missed_points.table(results, profiles)[2:5]
    assert limit.startswith("| w4_g128_fp16 / limit: 8192 x 8192, M = 1 | a | ")
    assert limit.endswith(" | 31.0 | - | - | L2 90, DRAM 31 | wait 4.0, x 0.1 |")
    assert ratio == (
        "| zeros / symmetric: 4096 x 4096, M = 2 | a | 1.10 | 4.0 -> 6.0 | 1.50 | 1.50 "
        "| L2 90 -> 90, DRAM 4 -> 6 | wait 3.0, x 0.1 |"
    )
    assert "selected / best: 4096 x 4096, M = 2 | b -> a | 1.10 | 5.0 -> 6.0 |" in regret
    assert GEMM not in limit
