"""Measured choices: the files that keep them, the table in the library, plan(). No GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

import mixed_gemm
from mixed_gemm import _tuned

H200 = "cuda:sm=90,sms=132,smem=232448"
GPU = _tuned.Gpu("NVIDIA H200", 90, 132)
POINT = _tuned.Point(
    dtype="float16",
    bits=4,
    group_size=128,
    zeros=False,
    n=5120,
    k=2560,
    m=64,
    config="multistage_m32n128s4_parallel12",
    us=12.5,
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(_tuned.DIRECTORY, str(tmp_path))
    yield tmp_path
    monkeypatch.undo()
    _tuned.install()  # what the other tests expect


def quiet_install(extra=None):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _tuned.install(extra)


def plan(m=64, device=H200, **scheme):
    return mixed_gemm.plan(m, POINT.n, POINT.k, device=device, **scheme)


def test_saved_point_is_selected_and_explained(cache):
    predicted = plan()
    assert predicted.selected != POINT.config and "cost model" in predicted.reason
    path = _tuned.save(GPU, [POINT])
    assert path.parent == cache and path.stat().st_mode & 0o077 == 0
    quiet_install()
    tuned = plan()
    assert tuned.selected == POINT.config
    assert tuned.reason == "tuned: the fastest measured at M = 64, 12.50 us"
    assert tuned.candidates == predicted.candidates


def test_a_point_serves_smaller_m_and_nothing_else():
    quiet_install((GPU, [POINT, replace(POINT, m=16, config="skinny_m8n16w8")]))
    assert [plan(m).selected for m in (1, 16)] == ["skinny_m8n16w8"] * 2
    assert [plan(m).selected for m in (17, 64)] == [POINT.config] * 2
    others = [
        plan(65),
        plan(bits=8),
        plan(group_size=64),
        plan(zero_mode="sub"),
        plan(dtype="bfloat16"),
        plan(device="cuda:sm=90,sms=114,smem=232448"),
        plan(device="cuda:sm=80,sms=132,smem=166912"),
        mixed_gemm.plan(64, POINT.n, POINT.k + 128, device=H200),
    ]
    assert all("cost model" in one.reason for one in others)


def test_dequantize_dense_at_the_last_point_serves_all_larger_m():
    quiet_install((GPU, [replace(POINT, m=1024, config="dequantize_dense")]))
    assert plan(100_000).reason.startswith("tuned")


def test_per_channel_is_one_group_however_it_is_written():
    quiet_install((GPU, [replace(POINT, group_size=-1)]))
    assert plan(group_size=POINT.k).selected == POINT.config
    assert plan(group_size=-1).selected == POINT.config


def test_illegal_choice_falls_back_and_says_so():
    quiet_install(
        (GPU, [replace(POINT, k=64, config="multistage_m16n128s6_parallel8", group_size=-1)])
    )
    answer = mixed_gemm.plan(8, POINT.n, 64, group_size=-1, device=H200)
    assert answer.selected != "multistage_m16n128s6_parallel8"
    assert "tuned multistage_m16n128s6_parallel8 split_k must not be larger" in answer.reason


def test_saving_merges_and_the_newer_point_wins(cache):
    _tuned.save(GPU, [POINT, replace(POINT, m=1)])
    path = _tuned.save(GPU, [replace(POINT, us=9.0)])
    gpu, points = _tuned.read(path)
    assert gpu == GPU and [(p.m, p.us) for p in points] == [(1, 12.5), (64, 9.0)]


def good() -> dict:
    return {
        "format": _tuned.FORMAT_VERSION,
        "layout": 1,
        "gpu": GPU._asdict(),
        "entries": [asdict(POINT)],
    }


def changed(**change) -> str:
    return json.dumps(good() | change)


BROKEN = {
    "empty": "",
    "truncated": json.dumps(good())[:-9],
    "binary": "\x00\x01",
    "list": "[1]",
    "deep": "[" * 100_000,
    "future format": changed(format=_tuned.FORMAT_VERSION + 1),
    "other layout": changed(layout=99),
    "no gpu": changed(gpu=None),
    "text for a number": changed(gpu={"name": "x", "sm": "90", "sms": 132}),
    "entries are no list": changed(entries={}),
    "entry is no object": changed(entries=[3]),
    "missing field": changed(entries=[{"m": 1}]),
    "extra field": changed(entries=[asdict(POINT) | {"x": 1}]),
    "bool for int": changed(entries=[asdict(POINT) | {"m": True}]),
    "line break in a name": changed(entries=[asdict(POINT) | {"config": "a\nb"}]),
    "unknown config": changed(entries=[asdict(POINT) | {"config": "multistage_m99n1s1"}]),
    "unknown dtype": changed(entries=[asdict(POINT) | {"dtype": "int3"}]),
    "negative m": changed(entries=[asdict(POINT) | {"m": -1}]),
    "nan": changed(entries=[asdict(POINT) | {"us": float("nan")}]),
    "huge number": changed(entries=[asdict(POINT) | {"n": 1 << 80}]),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken_file_is_ignored_with_one_warning(cache, content):
    (cache / "x.json").write_text(content)
    with pytest.warns(UserWarning, match="ignores tuning data") as caught:
        _tuned.install()
    assert len(caught) == 1
    assert "cost model" in plan().reason


def test_every_truncation_is_ignored_or_whole(cache):
    path = _tuned.save(GPU, [POINT])
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            _tuned.read(path)


def test_file_that_others_may_write_or_a_link_is_refused(cache):
    path = _tuned.save(GPU, [POINT])
    path.chmod(0o620)
    with pytest.raises(ValueError, match="written by others"):
        _tuned.read(path)
    path.chmod(0o600)
    link = cache / "link.json"
    link.symlink_to(path)
    with pytest.raises(ValueError, match="not a regular file"):
        _tuned.read(link)


def test_good_file_beside_a_broken_one_counts(cache):
    _tuned.save(GPU, [POINT])
    (cache / "a.json").write_text("{")
    with pytest.warns(UserWarning, match="ignores tuning data"):
        _tuned.install()
    assert plan().selected == POINT.config


def test_broken_file_is_replaced_by_the_next_save(cache):
    path = _tuned.path_of(GPU, cache)
    path.write_text("{")
    _tuned.save(GPU, [POINT])
    assert _tuned.read(path)[1] == [POINT]


def test_failed_write_leaves_the_old_file_and_no_litter(cache, monkeypatch):
    path = _tuned.save(GPU, [POINT])

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        _tuned.save(GPU, [replace(POINT, m=1)])
    assert _tuned.read(path)[1] == [POINT]
    assert not list(cache.glob("*.tmp"))


def test_cache_directory_that_is_a_file_does_not_break_the_import(cache, monkeypatch):
    (cache / "file").write_text("")
    monkeypatch.setenv(_tuned.DIRECTORY, str(cache / "file"))
    quiet_install()


WRITER = """
import sys, warnings
warnings.simplefilter("error")
from dataclasses import replace
from mixed_gemm import _tuned
m = int(sys.argv[1])
point = _tuned.Point("float16", 4, 128, False, 5120, 2560, m, "dequantize_dense", 1.0)
_tuned.save(_tuned.Gpu("NVIDIA H200", 90, 132), [point])
"""


def test_sixteen_processes_lose_nothing(cache):
    root = Path(mixed_gemm.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(m)], env=env) for m in range(1, 17)
    ]
    assert [w.wait(timeout=120) for w in writers] == [0] * 16
    assert [p.m for p in _tuned.read(_tuned.path_of(GPU, cache))[1]] == list(range(1, 17))


def test_shipped_files_are_valid():
    for path in _tuned.SHIPPED.glob("*.json"):
        gpu, points = _tuned.read(path, own=False)
        assert points and _tuned.path_of(gpu, _tuned.SHIPPED) == path
        refused = torch.ops.mixed_gemm._set_tuned_table("\n".join(_tuned._lines(gpu, points)))
        assert json.loads(refused) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine can tune")
def test_tune_without_a_gpu_says_so():
    with pytest.raises(RuntimeError, match="no CUDA device"):
        mixed_gemm.tune(4096, 4096)
