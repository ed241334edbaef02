"""examples/quantize_language_model.py, as docs/calibration.md gives it, on a small decoder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import decoders

import mixed_gemm

pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]


def test_from_a_model_to_a_sentence(tmp_path: Path) -> None:
    model = tmp_path / "model"
    decoders.decoder().save_pretrained(model)
    decoders.save_tokenizer(model)
    for name, seed in (("a", 1), ("b", 2), ("held_out", 3)):
        (tmp_path / f"{name}.txt").write_text(decoders.words(700, seed))
    run = subprocess.run(
        [
            sys.executable, str(ROOT / "examples/quantize_language_model.py"), str(model),
            str(tmp_path / "a.txt"), str(tmp_path / "b.txt"),
            "--held-out", str(tmp_path / "held_out.txt"), "--out", str(tmp_path / "out"),
            "--group-size", "32", "--tokens", "1024", "--prompt", "w1 w2 w3",
        ],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "21 layers quantized" in run.stdout and "over 699 tokens" in run.stdout
    assert run.stdout.count("tokens per second") == 2
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert config["mixed_gemm"]["recipe"]["method"].startswith("GPTQ(")
    found = mixed_gemm.from_pretrained(tmp_path / "out")
    assert torch.isfinite(decoders.logits(found)).all()
