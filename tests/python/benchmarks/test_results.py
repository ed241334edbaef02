"""benchmarks/: the rows of a file, older ones among them, and what is looked up in them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.bench_rows import CEILINGS, LARGE, META, SMALL, dense_row, row, row_of

from benchmarks import ceilings, timed
from benchmarks.old_rows import row_of as old_row
from benchmarks.references import references
from benchmarks.results import Regret, Results
from benchmarks.row import Point, save
from benchmarks.schemes import MAIN, SUITES, Scheme
from benchmarks.timed import ATEN, CONV2D, DENSE, GEMM, QCONV2D, Timed, dense
from mixed_gemm.selection import bench

COMMITTED = Path(__file__).resolve().parents[3] / "benchmarks" / "results"
ROWS_OF_OPS = (  # file, rows, op and scheme -> points that have a time of it
    ("gemm_h200.json", 1236, {Timed(GEMM, MAIN): 78, dense("bfloat16"): 78, Timed(ATEN): 60}),
    ("scaled_h200.json", 621, {timed.SCALED_MM: 36, timed.FP8_FP16: 36, timed.QUANTIZE: 27}),
    ("fp8_h100.json", 168, {timed.FP8_OURS: 12, timed.FP8_BLOCKS: 12, timed.MSLK: 12}),
    ("awq_h200.json", 108, {Timed(timed.AWQ_GEMM): 54, Timed(GEMM): 54}),
    ("block_quant_h200.json", 216, {Timed(timed.BLOCK_GEMM): 24, timed.DENSE_FP16: 24}),
    ("conv_h200.json", 621, {Timed(QCONV2D): 69, Timed(CONV2D): 69}),
    ("cpu_zen_5_2_threads.json", 60, {Timed(GEMM, MAIN): 0, dense("float32"): 5}),
    ("cpu_cascade_lake_2_threads.json", 60, {dense("float32"): 5}),
    ("cpu_emerald_rapids_2_threads.json", 60, {dense("bfloat16"): 5}),
)


@pytest.mark.parametrize("scheme", [s for suite in SUITES.values() for s in suite])
def test_scheme_name_parses_back(scheme: Scheme) -> None:
    assert Scheme.parse(scheme.name) == scheme


@pytest.mark.parametrize("name", ("", "w4_g128", "w3_g128_fp16", "w4_g_fp16", "w4_g128_mul_fp16"))
def test_scheme_name_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="w4_g128_fp16"):
        Scheme.parse(name)


def test_schemes_without_groups_have_names_too() -> None:
    schemes = (timed.SCALED_MM, timed.FP8_BF16, timed.DENSE_FP16, timed.QUANTIZE)
    names = [what.scheme.name for what in schemes if what.scheme]
    assert names == ["int8_fp16", "fp8_bf16", "dense_fp16", "fp16_int8"]


def test_traffic_is_each_operand_once() -> None:
    point = Point(57344, 8192, 1)
    assert MAIN.traffic_bytes(point) / 4.4e6 == pytest.approx(55, abs=0.3)  # us at 4.4 TB/s
    zeros = dataclasses.replace(MAIN, zero_mode="sub")
    assert zeros.traffic_bytes(point) - MAIN.traffic_bytes(point) == 2 * 57344 * 8192 / 128
    n, k, m, _ = LARGE
    for what, expected in (
        (timed.SCALED_MM, n * k + m * k + 2 * m * n),
        (timed.DENSE_FP16, 2 * (n * k + m * k + m * n)),
        (timed.INT_MM, n * k + m * k + 4 * m * n),
        (timed.W8A8_LAYER, n * k + 2 * (m * k + m * n)),
    ):
        assert what.scheme is not None
        assert what.scheme.traffic_bytes(LARGE) == expected, what


def test_roofline_is_the_larger_of_bytes_and_products() -> None:
    assert ceilings.roofline_us(CEILINGS, 8e6, 0, "float16") == pytest.approx(2)
    products = 2.0 * 8192**3
    for dtype, tera in (("float16", 750), ("bfloat16", 750), ("int8", 1500)):
        us = ceilings.roofline_us(CEILINGS, 1, products, dtype)
        assert us == pytest.approx(products * 1e-6 / tera)


def test_full_suite_has_every_point_of_both_peer_files() -> None:
    assert len(MAIN.points()) == 78
    assert {s.name: len(s.points()) for s in SUITES["w8a16"]} == {
        "w8_channel_fp16": 36,
        "w8_g128_fp16": 36,
    }


def test_references_join_the_peers_of_the_same_kind() -> None:
    g64 = Scheme.parse("w4_g64_fp16")
    other = Point(4096, 4096, 16)
    results = Results(META, [row(5.0), row(9.0, scheme=g64), row(9.0, point=other)])
    at = references(results, MAIN)
    assert (at[SMALL].peer, at[SMALL].mma_sync, at[SMALL].cublas) == (5.7, 5.7, 13.9)
    assert references(results, g64)[SMALL].peer == 9.8
    with_cublas = Results(META, [row(5.0), dense_row(7.5, SMALL)])
    assert references(with_cublas, MAIN)[SMALL].cublas == 7.5, "of the same run where it is there"


def test_results_file_keeps_a_row_a_line_and_the_earlier_file_wins(tmp_path: Path) -> None:
    other = Point(4096, 4096, 2)
    rows = [row(5.0), row(6.0, "b", False), row_of(timed.INT_MM, 7.0)]
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    save(first, META, rows)
    save(second, META, [row(9.0), row(8.0, point=other)])
    data = json.loads(first.read_text())
    assert data["meta"] == META
    assert [old_row(entry) for entry in data["rows"]] == rows, "what is written is read back"
    assert sum('"us"' in line for line in first.read_text().splitlines()) == 3
    assert set(tmp_path.iterdir()) == {first, second}, "nothing partial is left"
    merged = Results.load(first, second)
    assert merged.of(Timed(GEMM, MAIN)) == {SMALL: 5.0, other: 8.0}
    assert merged.measured[Timed(GEMM, MAIN)][SMALL] == {"a": 5.0, "b": 6.0}


def test_results_are_found_by_op_by_scheme_and_by_configuration() -> None:
    g64 = Scheme.parse("w4_g64_fp16")
    rows = [row(5.0), row(4.0, "b", False), row(9.0, scheme=g64), dense_row(7.0, SMALL)]
    results = Results(META, rows)
    assert results.of(Timed(GEMM)) == {SMALL: 5.0}, "the first of the schemes"
    assert results.of(Timed(GEMM, g64)) == {SMALL: 9.0}
    assert results.of(Timed(GEMM, None, "b")) == {SMALL: 4.0}
    assert results.of(Timed(GEMM, g64, "b")) == results.of(Timed(ATEN)) == {}
    assert results.schemes_of(GEMM) == [MAIN, g64]
    assert results.regrets(Timed(GEMM, MAIN)) == {SMALL: Regret(pytest.approx(1.25), "b")}


@pytest.mark.parametrize(("name", "count", "found"), ROWS_OF_OPS, ids=lambda x: str(x)[:24])
def test_committed_files_are_read(name: str, count: int, found: dict[Timed, int]) -> None:
    """Every row, whatever the schema of its commit, with its measured numbers untouched."""
    entries: list[dict[str, Any]] = json.loads((COMMITTED / name).read_text())["rows"]
    rows = [old_row(entry) for entry in entries]
    assert len(rows) == count
    for entry, new in zip(entries, rows, strict=True):
        assert (new.us, new.us_min, new.us_max) == (entry["us"], entry["us_min"], entry["us_max"])
        assert new.roofline_us == entry.get("roofline_us")
        assert new.op and new.dtype and (new.bits or new.op not in (GEMM, DENSE))
    results = Results.load(COMMITTED / name)
    assert {what: len(results.of(what)) for what in found} == found


def test_rows_of_the_command_are_rows_of_a_results_file() -> None:
    found = bench(64, 128, m=(3,), dtype=torch.float32, device="cpu", progress=False)
    ours, linear = map(old_row, found.rows)
    assert Scheme.of_row(ours) == Scheme(4, 128, None, "float32") and ours.selected
    assert (linear.op, Scheme.of_row(linear)) == (DENSE, Scheme.dense("float32"))
    assert ours.point == linear.point == Point(64, 128, 3)


def test_old_convolutions_become_products() -> None:
    old = {
        "layer": "64x56x56 -> 256, 3x3, stride 2",
        "count": 1,
        "batch": 8,
        "offsets": True,
        "kernel": "implicit_m32n64s4",
        "us": 2.0,
        "us_min": 1.0,
        "us_max": 3.0,
        "rank": 4,
    }
    new = old_row(old)
    assert new.point == Point(256, 576, 8 * 28 * 28, "8x64x56x56 -> 256, 3x3, stride 2")
    assert (new.op, new.kernel, new.selected) == (QCONV2D, "implicit_m32n64s4", False)
    assert Scheme.of_row(new) == Scheme(4, 64, "add", "float16")
    dense_one = old_row({**old, "kernel": "torch.nn.functional.conv2d"})
    assert (dense_one.op, dense_one.kernel, dense_one.bits) == (CONV2D, "", 16)
