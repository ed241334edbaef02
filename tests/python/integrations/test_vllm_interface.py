"""The vLLM plug-in where there is no vLLM: several releases, as their source has them, against what
we rely on, a mutation of each thing that would have to be noticed; what goes wrong before vLLM
is there. What needs vLLM is in tests/vllm.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import vllm_interface
from vllm_interface import RECORD, RELEASES, Release, key, needs, problems

from mixed_gemm.integrations import vllm as plugin
from mixed_gemm.integrations.vllm import log, measured
from mixed_gemm.integrations.vllm.interface import RELIES_ON, unknown_fields
from mixed_gemm.integrations.vllm.needs import Need, lacking_in_vllm

RECORDS: dict[str, dict[str, list[str] | None]] = json.loads(RECORD.read_text())


# --- releases ------------------------------------------------------------------------------------


def test_several_releases_are_recorded() -> None:
    assert list(RECORDS) == list(RELEASES)
    assert len({name.split("==")[1] for name in RECORDS}) >= 8


@pytest.mark.parametrize("release", RECORDS)
def test_a_release_that_asks_for_act_order_names_its_tensor(release: str) -> None:
    known = {need.name: RECORDS[release][key(need)] or [] for need in RELIES_ON["weight_only"]}
    asks = "has_g_idx" in known["MPLinearLayerConfig"]
    assert asks == ("w_gidx_name" in known["MPLinearKernel.__init__"])
    assert asks == (release.split("==")[1] < "0.30")


@pytest.mark.parametrize("release", RECORDS)
def test_a_release_has_what_we_rely_on(release: str) -> None:
    assert problems(RECORDS[release]) == []
    assert set(RECORDS[release]) == {key(need) for need in needs()}


def mutations(need: Need, found: list[str]) -> list[list[str] | None]:
    """Each thing gone, each with another name; one more or another order where that counts."""
    relied = [i for i, item in enumerate(found) if item in need.items]
    changed: list[list[str] | None] = [] if need.optional else [None]
    changed += [found[:i] + found[i + 1 :] for i in relied]
    changed += [[*found[:i], found[i] + "_", *found[i + 1 :]] for i in relied]
    if need.kind in ("fields", "parameters"):
        changed.append([*found, "has_something_new"])
    if need.kind == "parameters":
        changed += [[*found[:i], found[i + 1], found[i], *found[i + 2 :]] for i in relied[:-1]]
    return changed


@pytest.mark.parametrize("release", RECORDS)
def test_a_mutation_of_anything_that_we_rely_on_is_noticed(release: str) -> None:
    tried = 0
    for need in needs():
        found = RECORDS[release][key(need)]
        if found is None:
            assert need.optional
            continue
        for mutated in mutations(need, found):
            record = copy.deepcopy(RECORDS[release])
            record[key(need)] = mutated
            told = problems(record)
            assert told and need.name in told[0], (key(need), mutated)
            tried += 1
        record = dict(RECORDS[release])
        del record[key(need)]
        assert problems(record)
    assert tried > 150


# --- the reader of source ------------------------------------------------------------------------

SOURCE = {
    "vllm/a.py": '''
import x
LISTS: dict[str, list] = {}
class Base:
    one: int
    def __init__(self, c, *, name=None, **more):
        self.config = c
        self.n_name, other = name, 3
class Thing(Base):
    """A text."""
    two: str = "b"
    MEMBER = 1
    @property
    def size(self): return 1
def call(a, /, b, *rest, c=1, **more):
    return make(names=["x", "y", 3])
'''
}


@pytest.mark.parametrize(
    ("name", "kind", "items", "expected"),
    [
        ("Thing", "fields", (), ("two", "one")),
        ("Thing", "members", ("MEMBER", "size", "config"), ("MEMBER", "size")),
        ("Thing.__init__", "parameters", (), ("self", "c", "name", "more")),
        ("Thing.__init__", "attributes", ("config", "n_name", "other"), ("config", "n_name")),
        ("call", "parameters", (), ("a", "b", "rest", "c", "more")),
        ("call", "strings", ("y", "x"), ("x", "y")),
        ("call", "strings", ("z",), ()),
        ("LISTS", "members", (), ()),
        ("Thing.absent", "parameters", (), None),
        ("Absent", "fields", (), None),
        ("call.inside", "parameters", (), None),
    ],
)
def test_names_are_found_in_source(name: str, kind: Any, items: Any, expected: Any) -> None:
    assert Release(SOURCE).found(Need("vllm.a", name, kind, items)) == expected


def test_the_newest_release_is_asked_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def read(requirement: str) -> Any:
        asked.append(requirement)
        record = dict(RECORDS[RELEASES[-1]])
        if requirement == "vllm==9":
            record[key(needs()[0])] = None
        return requirement, record

    monkeypatch.setattr(vllm_interface, "read", read)
    monkeypatch.setattr(sys, "argv", ["vllm_interface.py", "check"])
    assert vllm_interface.main() == 0
    assert asked == ["vllm"]
    monkeypatch.setattr(sys, "argv", ["vllm_interface.py", "check", "vllm==9"])
    assert vllm_interface.main() == 1
    assert "vLLM has no" in capsys.readouterr().out


# --- where there is no vLLM ----------------------------------------------------------------------


def test_register_without_vllm_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # as where it is not installed
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert "mixed_gemm: its kernels are not offered to this vLLM: " in caplog.text


def test_what_is_not_there_is_lacking() -> None:
    for need in (Need("vllm_absent.x", "y", "members"), Need("json", "absent", "parameters")):
        assert lacking_in_vllm(need) == [f"vLLM has no {need.module}.{need.name}"]
    assert lacking_in_vllm(Need("json", "JSONDecoder.decode", "parameters", ("self", "_w", "s")))
    assert not lacking_in_vllm(Need("json", "JSONDecoder", "members", ("decode",)))
    assert lacking_in_vllm(Need("json", "JSONDecoder", "members", ("absent",)))


def test_an_unknown_place_is_the_default_with_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "yes")
    plugin._warn_of_place.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [plugin.place(), plugin.place()] == ["auto", "auto"]
    assert (
        caplog.text.count("MIXED_GEMM_VLLM must be one of auto, last, first, off, got 'yes'") == 1
    )
    for wanted in plugin.PLACES:
        monkeypatch.setenv(plugin.VARIABLE, wanted)
        assert plugin.place() == wanted


def test_an_answer_never_raises_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def judge(asked: Any) -> str | None:
        if asked is None:
            raise RuntimeError("no plan today")
        return None if asked else "it is too much"

    log.say_once.cache_clear()
    with caplog.at_level(logging.INFO):
        assert log.answer("Kernel", judge, True) == (True, None)
        for _ in range(2):
            assert log.answer("Kernel", judge, False) == (False, "mixed_gemm: it is too much")
        assert log.answer("Kernel", judge, None) == (
            False,
            "mixed_gemm: the layer could not be judged: RuntimeError: no plan today",
        )
    assert caplog.text.count("Kernel does not take a layer: it is too much") == 1
    assert "RuntimeError: no plan today" in caplog.text


def test_a_field_that_we_do_not_know_matters_when_it_is_set() -> None:
    names = ("full_weight_shape", "group_size", "has_g_idx", "rotation")

    def config(**values: Any) -> Any:
        return dataclasses.make_dataclass("C", names)(**{**dict.fromkeys(names, 1), **values})

    assert unknown_fields(config(), "MPLinearLayerConfig") == "rotation=1"
    assert unknown_fields(config(rotation=False), "MPLinearLayerConfig") == ""


# --- where ours stand under "auto" ---------------------------------------------------------------


def test_a_scheme_is_measured_once_on_a_kind_of_gpu() -> None:
    known = [(row.kernel, row.scheme, row.gpu) for row in measured.MEASURED]
    assert len(set(known)) == len(known)
    for row in measured.MEASURED:
        assert min(row.ratios) == 1 and all(0.3 < x < 3 for x in row.ratios.values())
        logarithm = sum(math.log2(x) for x in row.ratios.values()) / len(row.ratios)
        assert math.isclose(row.mean, 2**logarithm)


@pytest.mark.parametrize("mean", [0.99, 1.0, 1.01])
def test_what_is_measured_ahead_comes_first(monkeypatch: pytest.MonkeyPatch, mean: float) -> None:
    row = measured.Measured("int8", "8 bits both, dynamic", "H100", {1: mean, 8: mean})
    monkeypatch.setattr(measured, "MEASURED", (row,))
    asked = SimpleNamespace(is_static_input_scheme=False, input_symmetric=True)
    told = measured.why_not_ahead("int8", asked, "NVIDIA H100 80GB HBM3")
    assert (told is None) == (mean < 1)
    if told is not None:
        assert f"8 bits both, dynamic took {mean:.2f} of the time" in told
    for gpu in ("NVIDIA H1000", "NVIDIA GeForce RTX 4090", ""):
        assert "is not measured on" in (measured.why_not_ahead("int8", asked, gpu) or "")
    asked.is_static_input_scheme = True
    other = measured.why_not_ahead("int8", asked, "NVIDIA H100 80GB HBM3")
    assert other is not None and other.startswith("8 bits both, static is not measured on")


def test_the_entry_point_is_declared(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.general_plugins"]' in text
    assert 'mixed_gemm = "mixed_gemm.integrations.vllm:register"' in text
