"""The measurement of a decode step runs, and counts the ops of both models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import fused_step
from tools.pages import fusing

pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")


def test_a_step_is_measured(tmp_path: Path) -> None:
    fusing.model_of("LlamaForCausalLM").save_pretrained(tmp_path / "model")
    out = tmp_path / "step.json"
    options = ["--dtypes", "float32", "--rounds", "8", "--out", str(out)]
    fused_step.main([str(tmp_path / "model"), *options])
    found = json.loads(out.read_text())
    (row,) = found["rows"]
    assert found["meta"]["model"] == "model" and row["outputs_differ_by"] == 0
    assert (row["fused_ops_a_layer"], row["apart_ops_a_layer"]) == (4, 7)
    assert min(row["fused_ms_min"], row["apart_ms_min"]) > 0
