"""``python -m benchmarks moe`` measures dense and quantized experts on the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import moe

pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")


def test_every_side_and_routing_has_a_row(tmp_path: Path) -> None:
    out = tmp_path / "moe.json"
    options = ["--shapes", "tiny", "--schemes", "nf4", "w8a16", "--rows", "1", "5", "--rounds", "1"]
    moe.main([*options, "--commit", "none", "--out", str(out)])
    found = json.loads(out.read_text())
    sides = {(x["routing"], x["T"], x["side"]) for x in found["rows"]}
    assert len(sides) == len(found["rows"]) == 2 * 2 * 4
    assert all(x["ms"] > 0 for x in found["rows"])
    assert found["meta"]["commit"] == "none"


def test_skewed_routing_prefers_a_fifth_of_the_experts() -> None:
    torch.manual_seed(0)
    shape, cpu = moe.SHAPES["qwen3"], torch.device("cpu")
    shares = []
    for skewed in (False, True):
        index, weights = moe.routing(shape, 500, skewed, cpu)
        assert all(len(set(row)) == shape.k for row in index.tolist())
        assert weights.shape == index.shape
        shares.append(float((index < shape.experts // 5).double().mean()))
    assert abs(shares[0] - 0.2) < 0.02 and shares[1] > 0.6
