"""tune() on a real device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mixed_gemm
from mixed_gemm.selection import tables

pytestmark = pytest.mark.gpu
N, K, M = 768, 512, (1, 32)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(tables.DIRECTORY, str(tmp_path))
    yield tmp_path
    monkeypatch.undo()
    tables.forget()


def test_tuned_choice_is_used_saved_and_right(cache):
    torch.manual_seed(0)
    layer = mixed_gemm.Linear.from_float(
        torch.nn.Linear(K, N, device="cuda", dtype=torch.float16), group_size=64
    )
    a = torch.randn(max(M), K, device="cuda", dtype=torch.float16)
    before = layer(a)
    results = mixed_gemm.tune(layer, m=M, progress=False)
    assert len(results) == len(M) and all(0 < r.us <= r.before_us for r in results)
    plans = [mixed_gemm.plan(layer, m) for m in M]
    assert [p.selected for p in plans] == [r.config for r in results]
    assert all(p.reason.startswith("tuned") for p in plans)
    dense = layer.dequantize().double()
    expected = a.double() @ dense.t() + layer.bias.double()
    for out in (before, layer(a)):
        assert (out.double() - expected).abs().max() <= 4e-3 * expected.abs().max()

    [path] = cache.glob("*.json")
    assert {p["m"] for p in json.loads(path.read_text())["entries"]} == set(M)
    ask = f"import mixed_gemm; print(mixed_gemm.plan({M[1]}, {N}, {K}, group_size=64).reason)"
    env = {**os.environ, "PYTHONPATH": str(Path(mixed_gemm.__file__).parents[1])}
    said = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True)
    assert said.stdout.startswith("tuned"), said.stderr


def test_unwritable_cache_warns_and_the_result_holds(cache, monkeypatch):
    (cache / "file").write_text("")
    monkeypatch.setenv(tables.DIRECTORY, str(cache / "file"))
    with pytest.warns(UserWarning, match="not saved"):
        [result] = mixed_gemm.tune(N, K, m=(8,), group_size=64, progress=False)
    assert mixed_gemm.plan(8, N, K, group_size=64).selected == result.config


def test_capture_refuses_to_tune_and_survives_it():
    mixed_gemm.tune(N, K, m=(16,), group_size=64, save=False, progress=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="being captured"):
            mixed_gemm.tune(N, K, m=(16,))
        torch.zeros(1, device="cuda")
    graph.replay()
    torch.cuda.synchronize()
