"""``mixed-gemm quantize --method --calibration``: a folder in, a calibrated folder out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import decoders

import mixed_gemm
from mixed_gemm.quantization import CalibratedCheckpoint

pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
pytest.importorskip("transformers")
from typer.testing import CliRunner

from mixed_gemm.cli.app import app


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    folder = tmp_path / "dense"
    decoders.decoder().save_pretrained(folder)
    decoders.save_tokenizer(folder)
    for name, seed in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.txt").write_text(decoders.words(700, seed))
    return folder


def quantize(dense: Path, out: Path, *more: object) -> Any:
    texts = [x for name in "ab" for x in ("--calibration", dense.parent / f"{name}.txt")]
    arguments = ["quantize", dense, out, "--group-size", 32, "--tokens", 1024, *texts, *more]
    return CliRunner().invoke(app, [str(x) for x in arguments])


@pytest.mark.parametrize("bits", (4, 3))
def test_a_calibrated_folder(dense: Path, tmp_path: Path, bits: int) -> None:
    out = tmp_path / "out"
    done = quantize(dense, out, "--method", "gptq", "--bits", bits)
    assert done.exit_code == 0, done.output
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config["mixed_gemm"]["recipe"]["method"].startswith("GPTQ(")
    assert not out.with_name("out.partial").exists()
    found, model = decoders.logits(mixed_gemm.from_pretrained(out)), decoders.decoder()
    assert (found - decoders.logits(model)).norm() < 0.5 * decoders.logits(model).norm()


@pytest.mark.parametrize("scheme", ("mxfp4", "nf4"))
def test_a_calibrated_folder_of_other_codes(dense: Path, tmp_path: Path, scheme: str) -> None:
    out = tmp_path / "out"
    done = quantize(dense, out, "--scheme", scheme, "--method", "gptq")
    assert done.exit_code == 0, done.output
    model = mixed_gemm.from_pretrained(out)
    found = {m.weight.scheme for m in model.modules() if isinstance(m, mixed_gemm.Linear)}
    assert found == {mixed_gemm.Scheme.named(scheme, group_size=32)}
    dense_logits = decoders.logits(decoders.decoder())
    assert decoders.error(model, dense_logits) < 0.2
    refused = quantize(dense, tmp_path / "no", "--scheme", scheme, "--method", "autoround")
    assert refused.exit_code == 1 and "codes that are no integers" in refused.output
    assert not (tmp_path / "no").exists() and not (tmp_path / "no.partial").exists()


def test_a_calibrated_folder_with_packed_words(dense: Path, tmp_path: Path) -> None:
    done = quantize(dense, tmp_path / "out", "--method", "gptq", "--embeddings", "w8a16")
    assert done.exit_code == 0, done.output
    plain = quantize(dense, tmp_path / "plain", "--method", "gptq")
    assert plain.exit_code == 0, plain.output
    found, other = (mixed_gemm.from_pretrained(tmp_path / name) for name in ("out", "plain"))
    table = found.get_input_embeddings()
    assert isinstance(table, mixed_gemm.Embedding)
    other.set_input_embeddings(table.to_float())
    if found.config.tie_word_embeddings:
        other.tie_weights()
    assert decoders.error(found, decoders.logits(other)) < 1e-5
    refused = quantize(dense, tmp_path / "no", "--method", "gptq", "--embeddings", "w8a8")
    assert refused.exit_code == 1 and "embeddings must be" in refused.output
    assert not (tmp_path / "no").exists() and not (tmp_path / "no.partial").exists()


def test_what_is_in_the_way_is_said_before_the_work(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("calibrated")

    monkeypatch.setattr(CalibratedCheckpoint, "__init__", never)
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("mine")
    done = quantize(dense, out, "--method", "gptq")
    assert done.exit_code == 1 and "holds config.json already" in done.output
    assert (out / "config.json").read_text() == "mine"
    assert "is being read" in quantize(dense, dense, "--method", "gptq").output
    assert not (tmp_path / "out.partial").exists()


def test_texts_without_a_method_are_refused(dense: Path, tmp_path: Path) -> None:
    done = quantize(dense, tmp_path / "out")
    assert done.exit_code == 1 and "--calibration needs a --method" in done.output
