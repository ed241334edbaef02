"""The benchmark of all that a user does, on tiny models, and what was measured with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from benchmarks import whole_path

COMMITTED = Path(whole_path.__file__).parent / "results" / "whole_path_cpu_2_threads.json"
OF_BOTH = {
    "load the dense folder", "write a token", "compute 1", "compute 256", "compile",
    "compute 1, compiled", "save", "load it again",
}  # fmt: skip
OF_SCHEMES = OF_BOTH | {"quantize_", "quantize while loading"}


@pytest.mark.parametrize("side", ["dense", "w4a16"])
def test_every_step_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2}
    monkeypatch.setattr(whole_path, "_COMMON", whole_path._COMMON | sizes | {"vocab_size": 64})
    own = {"moe_intermediate_size": 128, "num_hidden_layers": 1, "num_experts": 4, "head_dim": 64}
    own["num_experts_per_tok"] = 2
    monkeypatch.setitem(whole_path.MODELS, "qwen3_moe", ("Qwen3Moe", own))
    monkeypatch.setattr(whole_path, "CALLS", 1)
    monkeypatch.setattr(whole_path, "TOKENS", 4)
    monkeypatch.setattr("torch.compile", lambda model: model)
    whole_path.write_dense("qwen3_moe", tmp_path / "dense")
    rows = whole_path.Side(side, tmp_path / "dense", {"side": side}, "cpu").run()
    assert {row["step"] for row in rows} == (OF_BOTH if side == "dense" else OF_SCHEMES)
    assert all(row["seconds"] > 0 and row["peak_gb"] > 0 for row in rows)


def test_what_was_measured_is_whole() -> None:
    found = json.loads(COMMITTED.read_text())
    steps: dict[tuple[str, str], set[str]] = {}
    for row in found["rows"]:
        steps.setdefault((row["model"], row["side"]), set()).add(row["step"])
    assert {model for model, _ in steps} == set(whole_path.MODELS)
    for (_, side), have in steps.items():
        assert have == (OF_BOTH if side == "dense" else OF_SCHEMES)
