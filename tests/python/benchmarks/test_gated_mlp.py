"""The measurement of an MLP runs, and counts what each way launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gated_mlp

COMMITTED = Path(gated_mlp.__file__).parent / "results" / "gated_mlp_cpu_2_threads.json"
# Whether it is compiled -> launches of each way.
LAUNCHES = {False: [5, 4, 3], True: [4, 3, 3]}


def launches(row: dict[str, Any]) -> list[int]:
    return [len(row["launches"][way]) for way in gated_mlp.WAYS]


def test_an_mlp_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gated_mlp.SHAPES, "SmolLM2-135M", (128, 256))
    out = tmp_path / "mlp.json"
    threads = torch.get_num_threads()
    options = ["--shapes", "SmolLM2-135M", "--tokens", "2", "--rounds", "3", "--out", str(out)]
    try:
        gated_mlp.main([*options, "--dtypes", "bfloat16"])
    finally:
        torch.set_num_threads(threads)
    rows = json.loads(out.read_text())["rows"]
    assert {row["compiled"]: launches(row) for row in rows} == LAUNCHES
    assert all(
        row[f"{way}_us"] >= row[f"{way}_us_min"] > 0 for row in rows for way in gated_mlp.WAYS
    )


def test_what_the_page_says_is_in_the_results() -> None:
    rows = json.loads(COMMITTED.read_text())["rows"]
    assert all(launches(row) == LAUNCHES[row["compiled"]] for row in rows)
    page = (COMMITTED.parents[2] / "docs" / "fusing.md").read_text()
    for row in rows:
        if not row["compiled"]:
            times = " | ".join(f"{row[f'{way}_us']:.0f}" for way in gated_mlp.WAYS)
            assert f"| {row['shape']} | {row['dtype']} | {row['m']} | {times} |" in page
