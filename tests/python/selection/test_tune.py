"""Measured choices: the files that keep them, the table in the library, plan(). No GPU."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mixed_gemm
from mixed_gemm.selection import tables, tuned_file

H200 = "cuda:sm=90,sms=132,smem=232448"
GPU = tables.Gpu("NVIDIA H200", 90, 132)
POINT = tables.Point(
    dtype="float16",
    weight="int4",
    group_size=128,
    zeros=False,
    n=5120,
    k=2560,
    m=64,
    config="multistage_m32n128s4_parallel12",
    us=12.5,
)


SHIPPED_SHAPE = (4096, 4096)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(tables.DIRECTORY, str(tmp_path))
    yield tmp_path
    monkeypatch.undo()
    tables.forget()  # what the other tests expect


def quiet_install(extra=None):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tables.install(extra)


def plan(m=64, device=H200, **scheme):
    return mixed_gemm.plan(m, POINT.n, POINT.k, device=device, **scheme)


def test_saved_point_is_selected_and_explained(cache):
    predicted = plan()
    assert predicted.selected != POINT.config and "cost model" in predicted.reason
    path = tables.save(GPU, [POINT])
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
    tables.save(GPU, [POINT, replace(POINT, m=1)])
    path = tables.save(GPU, [replace(POINT, us=9.0)])
    gpu, points = tables.read(path)
    assert gpu == GPU and [(p.m, p.us) for p in points] == [(1, 12.5), (64, 9.0)]


def good() -> dict:
    return {
        "format": tables.FORMAT_VERSION,
        "layout": 1,
        "gpu": GPU._asdict(),
        "entries": [asdict(POINT)],
    }


def of_format_1(point: tables.Point) -> dict:
    """As versions before format 2 wrote it."""
    old = asdict(point) | {"bits": int(point.weight.removeprefix("int"))}
    return {name: old[name] for name in old if name not in ("op", "weight", "scales")}


def changed(**change) -> str:
    return json.dumps(good() | change)


BROKEN = {
    "empty": "",
    "truncated": json.dumps(good())[:-9],
    "binary": "\x00\x01",
    "list": "[1]",
    "deep": "[" * 100_000,
    "future format": changed(format=tables.FORMAT_VERSION + 1),
    "other layout": changed(layout=99),
    "no gpu": changed(gpu=None),
    "text for a number": changed(gpu={"name": "x", "sm": "90", "sms": 132}),
    "entries are no list": changed(entries={}),
    "entry is no object": changed(entries=[3]),
    "format 1 with an entry of format 2": changed(format=1),
    "format 2 with an entry of format 1": changed(entries=[of_format_1(POINT)]),
    "unknown op": changed(entries=[asdict(POINT) | {"op": "gemv"}]),
    "unknown weight": changed(entries=[asdict(POINT) | {"weight": "int5"}]),
    "unknown scales": changed(entries=[asdict(POINT) | {"scales": "int3"}]),
    "unknown bits": changed(format=1, entries=[of_format_1(POINT) | {"bits": 5}]),
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


def test_a_file_of_format_1_counts_and_the_next_save_makes_format_2_of_it(cache):
    path = tables.path_of(GPU, cache)
    path.write_text(changed(format=1, entries=[of_format_1(POINT)]))
    assert tables.read(path) == (GPU, [POINT])
    quiet_install()
    assert plan().selected == POINT.config
    other = replace(POINT, weight="int8")
    tables.save(GPU, [other])
    written = json.loads(path.read_text())
    assert (written["format"], written["entries"]) == (2, [asdict(POINT), asdict(other)])
    quiet_install()
    assert plan().selected == plan(bits=8).selected == POINT.config


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken_file_is_ignored_with_one_warning(cache, content):
    (cache / "x.json").write_text(content)
    with pytest.warns(UserWarning, match="ignores tuning data") as caught:
        tables.install()
    assert len(caught) == 1
    assert "cost model" in plan().reason


def test_every_truncation_is_ignored_or_whole(cache):
    path = tables.save(GPU, [POINT])
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            tables.read(path)


WRONG_VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        1.5,
        1e300,
        1 << 63,
        1 << 80,
        10**400,
        "",
        "a b",
        "4",
        "x" * 9999,
    ),
    *([], [1], {}, {"a": 1}, float("nan"), float("inf"), -float("inf"), [[[[[[[[]]]]]]]]),
)


# Of these values, the ones that make another sane point; all others are refused.
SANE_VALUES = {"group_size": (-1, 1), "zeros": (True,), "us": (1, 1.5)} | dict.fromkeys("nkm", (1,))
SANE_HEADS = {
    "layout": (1,),
    "entries": ([],),
    "name": ("", "a b", "4", "x" * 9999),
    "sms": (1,),
}


def is_among(value, sane) -> bool:
    return any(type(value) is type(x) and value == x for x in sane)


def caught_by_install() -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tables.install()
    return [str(warning.message) for warning in caught]


@pytest.fixture
def nothing_shipped(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "nothing")


@pytest.mark.parametrize("field", asdict(POINT))
def test_wrong_value_of_a_field_is_ignored_with_one_warning(cache, nothing_shipped, field):
    for value in WRONG_VALUES:
        if is_among(value, [asdict(POINT)[field]]):
            continue
        (cache / "x.json").write_text(changed(entries=[asdict(POINT) | {field: value}]))
        told = caught_by_install()
        sane = is_among(value, SANE_VALUES.get(field, ()))
        assert len(told) == (not sane), (value, told)
        assert all(len(text) < 500 for text in told)
        assert ("cost model" in plan().reason) == (not sane or field != "us"), value


@pytest.mark.parametrize("field", ["format", "layout", "gpu", "entries", "name", "sm", "sms"])
def test_wrong_value_of_the_head_is_ignored_with_one_warning(cache, nothing_shipped, field):
    for value in WRONG_VALUES:
        in_gpu = field in GPU._fields
        change = {"gpu": GPU._asdict() | {field: value}} if in_gpu else {field: value}
        (cache / "x.json").write_text(changed(**change))
        told = caught_by_install()
        sane = is_among(value, SANE_HEADS.get(field, ()))
        assert len(told) == (not sane), (value, told)
        elsewhere = field in ("sms", "entries")
        assert ("cost model" in plan().reason) == (not sane or elsewhere), value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_are_an_error_of_the_file_or_a_sane_point(cache, nothing_shipped, data):
    path = tables.path_of(GPU, cache)
    tables.write(path, GPU, [POINT])
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(content)
    assert len(caught_by_install()) <= 1
    answer = plan()
    assert answer.selected in [c.config for c in answer.candidates]


def test_entries_of_another_gpu_answer_for_that_gpu_only(cache):
    a100 = tables.Gpu("NVIDIA A100", 80, 108)
    tables.write(tables.path_of(GPU, cache), a100, [POINT])
    quiet_install()
    assert "cost model" in plan().reason
    assert plan(device="cuda:sm=80,sms=108,smem=166912").reason.startswith("tuned")


def test_many_broken_files_are_one_short_warning(cache):
    for i in range(50):
        (cache / f"{i}.json").write_text("{" * i)
    with pytest.warns(UserWarning, match="; and 47 more") as caught:
        tables.install()
    assert len(caught) == 1


def test_warning_names_the_file_of_an_unusable_point(cache):
    tables.save(GPU, [POINT])
    tables.write(cache / "z.json", GPU, [replace(POINT, m=1, config="wgmma_m1n1s1")] * 2)
    match = r"z\.json has 2 points that are not usable: one has the unknown config wgmma_m1n1s1\. "
    with pytest.warns(UserWarning, match=match) as caught:
        tables.install()
    assert len(caught) == 1
    assert plan().selected == POINT.config


def test_file_that_others_may_write_is_refused(cache):
    path = tables.save(GPU, [POINT])
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        with pytest.raises(ValueError, match="written by others"):
            tables.read(path)
        with pytest.warns(UserWarning, match="written by others") as caught:
            tables.install()
        assert len(caught) == 1 and "cost model" in plan().reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_of_another_user_is_refused(cache):
    path = tables.save(GPU, [POINT])
    os.chown(path, 65534, 65534)
    with pytest.raises(ValueError, match="belongs to user 65534"):
        tables.read(path)


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "socket", "device"])
def test_what_is_no_file_is_refused_and_read_by_nobody(cache, kind):
    target = tables.save(GPU, [POINT])
    target = target.rename(target.with_suffix(".kept"))
    path = cache / "x.json"
    with contextlib.ExitStack() as stack:
        if kind == "link":
            path.symlink_to(target)
        elif kind == "dangling":
            path.symlink_to(cache / "nothing")
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        else:
            path.symlink_to("/dev/zero")
        with pytest.raises(ValueError, match="not a regular file"):
            tables.read(path)
        with pytest.warns(UserWarning, match="not a regular file") as caught:
            tables.install()
    assert len(caught) == 1 and "cost model" in plan().reason


def test_link_is_replaced_and_its_target_left_alone(cache):
    target = cache / "precious"
    target.write_text("precious")
    tables.path_of(GPU, cache).symlink_to(target)
    path = tables.save(GPU, [POINT])
    assert not path.is_symlink() and tables.read(path)[1] == [POINT]
    assert target.read_text() == "precious"


def test_good_file_beside_a_broken_one_counts(cache):
    tables.save(GPU, [POINT])
    (cache / "a.json").write_text("{")
    with pytest.warns(UserWarning, match="ignores tuning data"):
        tables.install()
    assert plan().selected == POINT.config


def test_broken_file_is_replaced_by_the_next_save_and_kept_beside(cache):
    path = tables.path_of(GPU, cache)
    path.write_text("{")
    tables.save(GPU, [POINT])
    assert tables.read(path)[1] == [POINT]
    assert path.with_name(path.name + ".unusable").read_text() == "{"
    quiet_install()


def test_failed_write_leaves_the_old_file_and_no_litter(cache, monkeypatch):
    path = tables.save(GPU, [POINT])

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        tables.save(GPU, [replace(POINT, m=1)])
    assert tables.read(path)[1] == [POINT]
    assert not list(cache.glob("*.tmp"))


def test_cache_directory_that_is_a_file_does_not_break_the_import(cache, monkeypatch):
    (cache / "file").write_text("")
    monkeypatch.setenv(tables.DIRECTORY, str(cache / "file"))
    quiet_install()


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """What tune_cache_faults.py found, by scenario."""
    folder = tmp_path_factory.mktemp("faults")
    folder.chmod(0o755)
    root = Path(mixed_gemm.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root), tables.DIRECTORY: str(folder)}
    program = Path(__file__).parents[1] / "support/tune_cache_faults.py"
    run = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_killed_at_any_line_the_file_is_whole_and_the_next_save_cleans_up(faults):
    found = faults["killed_at_every_line"]
    assert found["kills"] == found["old"] + found["new"] > 50
    assert found["old"] > 0 and found["new"] > 0


def test_file_of_no_use_is_kept_beside_whenever_the_save_is_killed(faults):
    assert faults["killed_beside_a_broken_file"]["kills"] > 30


def test_sixteen_processes_lose_nothing_and_readers_see_whole_files(faults):
    assert faults["many_at_once"]["reads"] > 10
    assert faults["many_at_once"]["failed reads"] == 0


def test_full_disk_leaves_the_old_file_and_no_litter(faults):
    assert faults["full_disk"] == {"errno": errno.EFBIG, "files": [".json", ".lock"]}


def test_read_only_folder_is_an_error_of_the_system(faults):
    assert faults["read_only"] == {"errno": errno.EACCES}


def test_folder_that_can_never_be_written(monkeypatch):
    monkeypatch.setenv(tables.DIRECTORY, "/proc/self/mixed_gemm")
    with pytest.raises(OSError):
        tables.save(GPU, [POINT])
    quiet_install()


def test_file_system_without_locks_is_an_os_error(cache, monkeypatch):
    def no_locks(*_, **__):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match=r"no lock: No locks available: .*\.lock"):
        tables.save(GPU, [POINT])


def test_too_many_points_are_refused_before_the_file_is_lost(cache, monkeypatch):
    path = tables.save(GPU, [POINT])
    monkeypatch.setattr(tuned_file, "MAX_BYTES", path.stat().st_size + 10)
    with pytest.raises(OSError, match="larger than"):
        tables.save(GPU, [replace(POINT, m=1)])
    assert tables.read(path)[1] == [POINT]


def test_measured_choices_outlive_the_next_measurement():
    """save=False twice: both hold."""
    quiet_install((GPU, [POINT]))
    quiet_install((GPU, [replace(POINT, n=POINT.n + 64)]))
    assert plan().selected == POINT.config
    assert mixed_gemm.plan(64, POINT.n + 64, POINT.k, device=H200).selected == POINT.config


def test_where_the_cache_lies(monkeypatch):
    monkeypatch.delenv(tables.DIRECTORY)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert tables.directory() == Path("/x/mixed_gemm")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/h")
    assert tables.directory() == Path("/h/.cache/mixed_gemm")


@pytest.mark.parametrize("folder", ["/a\0b", "/" + "x" * 300, "/" + "x/" * 3000, "/dev/null"])
def test_folder_that_cannot_be_keeps_the_shipped_table(monkeypatch, folder):
    monkeypatch.setattr(tables, "directory", lambda: Path(folder))
    quiet_install()
    assert mixed_gemm.plan(1, *SHIPPED_SHAPE, device=H200).reason.startswith("tuned")
    with pytest.raises((OSError, ValueError)):
        tables.save(GPU, [POINT])


def test_no_home_directory_keeps_the_shipped_table(monkeypatch):
    monkeypatch.delenv(tables.DIRECTORY)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    quiet_install()
    assert mixed_gemm.plan(1, *SHIPPED_SHAPE, device=H200).reason.startswith("tuned")
    with pytest.raises(OSError, match=tables.DIRECTORY):
        tables.save(GPU, [POINT])


def test_neither_platformdirs_nor_filelock_is_needed_for_the_shipped_table():
    """Neither is declared. torch may import filelock itself."""
    ask = (
        "import sys, torch; sys.modules['platformdirs'] = sys.modules['filelock'] = None; "
        "import warnings; warnings.simplefilter('error'); import mixed_gemm; "
        f"print(mixed_gemm.plan(1, *{SHIPPED_SHAPE}, device={H200!r}).reason)"
    )
    root = Path(mixed_gemm.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    said = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True)
    assert said.stdout.startswith("tuned"), said.stderr


def test_shipped_files_are_valid():
    for path in tables.SHIPPED.glob("*.json"):
        gpu, points = tables.read(path, own=False)
        assert points and tables.path_of(gpu, tables.SHIPPED) == path
        refused = torch.ops.mixed_gemm._set_tuned_table("\n".join(tables._lines(gpu, points)))
        assert json.loads(refused) == []


@pytest.mark.parametrize(
    ("arguments", "named", "error"),
    [
        ({"m": (0,)}, "m must", ValueError),
        ({"m": (1, -1)}, "m must", ValueError),
        ({"m": ()}, "m must", ValueError),
        ({"m": (1.5,)}, "m must", TypeError),
        ({"m": (2**63,)}, "m must", ValueError),
    ],
)
def test_tune_refuses_wrong_rows_before_it_looks_for_a_gpu(arguments, named, error):
    with pytest.raises(error, match=f"tune: {named}"):
        mixed_gemm.tune(4096, 4096, **arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine can tune")
def test_tune_without_a_gpu_says_so():
    with pytest.raises(RuntimeError, match="no CUDA device"):
        mixed_gemm.tune(4096, 4096)
