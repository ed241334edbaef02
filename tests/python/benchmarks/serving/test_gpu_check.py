"""The check of vLLM's engine on a GPU, without either: its models are written, distances and
verdicts are computed, and its jobs are what is not measured yet."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.serving import gpu_check
from benchmarks.serving.gpu import engines, questions, verdict
from benchmarks.serving.gpu.distances import Expected, Said, compare, reference_of
from benchmarks.serving.gpu.report import Report
from benchmarks.serving.gpu.verdict import DENSE, verdicts
from benchmarks.serving.models import SMALL
from benchmarks.serving.rows import GPU_ROWS, Row


def test_there_are_twenty_seven_kinds_of_files() -> None:
    names = [row.name for row in GPU_ROWS]
    assert len(names) == len(set(names)) == 27
    assert sum(bool(row.mixture) for row in GPU_ROWS) == 8
    assert {row.file for row in GPU_ROWS} == {"compressed-tensors", "gptq", "awq"}
    for row in GPU_ROWS:  # vLLM admits gpt-oss in bfloat16 alone
        assert set(row.dtypes) >= {"bfloat16", "bfloat16" if "oss" in row.name else "float16"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("row", GPU_ROWS, ids=lambda row: row.name)
def test_every_kind_of_file_is_written_and_read(folders: Path, row: Row) -> None:
    folder = gpu_check.write_model(row, folders, SMALL)
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    gpt_oss = row.mixture == "gpt_oss"
    assert config["quant_method"] == ("mxfp4" if gpt_oss else row.file)
    reference = reference_of(folder)
    if row.mixture:
        (found,) = reference([[3, 9, 27, 81, 5, 15]])
        assert len(found.own) == 5
        return
    dense = reference_of(gpu_check.write_model(DENSE, folders, SMALL))
    ids = [[3, 9, 27, 81, 5, 15], [4, 8]]
    found, exact = reference(ids), dense(ids)
    assert [len(x.own) for x in found] == [5, 1]
    assert all(x <= best for f in found for x, best in zip(f.own, f.best, strict=True))
    moved = max(abs(a - b) for a, b in zip(found[0].own, exact[0].own, strict=True))
    assert 0 < moved < 8, row.name  # quantized, and still the model; its logits span about 20


def test_an_engine_waits_for_a_model_until_it_is_written_or_will_not_be(tmp_path: Path) -> None:
    questions.wait_for(gpu_check.write_model(DENSE, tmp_path, SMALL))
    row = Row("fails", "gptq", {"bits": 4})
    with pytest.raises(TypeError):
        gpu_check.write_model(row, tmp_path, SMALL)
    with pytest.raises(FileNotFoundError, match="no model in"):
        questions.wait_for(gpu_check.folder_of(row, tmp_path))


def test_padding_does_not_move_a_reference(folders: Path) -> None:
    """To the order of float32's sums."""
    reference = reference_of(gpu_check.write_model(DENSE, folders, SMALL))
    short, long = [5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9]
    (alone,), (padded, _) = reference([short]), reference([short, long])
    torch.testing.assert_close(torch.tensor(alone.own), torch.tensor(padded.own))
    assert len(padded.own) == 2


def test_distances_of_what_an_engine_said() -> None:
    wanted = Expected(own=[-1.0, -2.0, -3.0], best=[-1.0, -0.5, -3.0])
    said = [Said([7, 8, 9, 10], 2, [-2.25, -3.0])]
    found = compare(said, lambda asked: [wanted for _ in asked], chosen=False)
    assert found == {"n": 2, "mean": 0.125, "median": 0.125, "max": 0.25}
    more = compare(said, lambda asked: [wanted for _ in asked], chosen=True)
    assert more == {**found, "not_best": 1, "lost": 1.5}


# --- verdicts ------------------------------------------------------------------------------------

OURS, OWN = {"MixedGemmLinearKernel": 8}, {"MacheteLinearKernel": 8}


def line(place: str, decode: float, prompt: float | None = None, **more: Any) -> dict[str, Any]:
    of = {"decode": decode, "prompt": decode if prompt is None else prompt}
    parts = {part: {"mean": x, "median": x} for part, x in of.items()}
    held = OURS if place == "first" else OWN
    told = {"row": "W4A16 g128", "dtype": "bfloat16", "mode": "eager", "place": place}
    return {**told, **parts, "kernels": held, **more}


@pytest.mark.parametrize(
    ("decode", "prompt", "wrong"),
    [(1.0, 1.2, ""), (0.5, 1.21, "1.21 of the"), (1.3, 1.0, "1.30 of the"), (0.1, 0.1, "")],
)
def test_no_part_of_ours_may_lie_further_than_vllms_own(
    decode: float, prompt: float, wrong: str
) -> None:
    (found,) = verdicts([line("off", 1.0), line("first", decode, prompt)])
    assert found.ratio == max(decode, prompt) and found.wrong.startswith(wrong)
    assert bool(found.wrong) == bool(wrong)


def test_where_vllms_own_do_not_read_a_file_another_with_its_codes_stands_in() -> None:
    row = "GPTQ 4 bits, g128, sym=False"
    told = {k: v for k, v in line("off", 1.0, row=row).items() if k not in ("decode", "prompt")}
    refused = {**told, "error": "refused"}
    others = [line("off", 2.0, row="AWQ g128"), line("off", 9.0, row="FP8 dynamic")]
    (found,) = verdicts([refused, *others, line("first", 2.2, row=row)])
    assert found.ratio == 1.1 and not found.wrong
    assert found.beside == "AWQ g128 (the same codes); vLLM's own: refused"
    (found,) = verdicts([refused, *others, line("first", 2.5, row=row)])
    assert found.wrong.startswith("1.25 of")
    for row in ("GPTQ 4 bits, g128, sym=False", "W8A16 channel"):
        (found,) = verdicts([*others[1:], line("first", 2.2, row=row)])
        assert found.wrong == "nothing of vLLM's own to compare with"
        assert found.beside == "vLLM's own: not measured"


def test_a_line_of_ours_that_fails_or_runs_otherwise_is_wrong() -> None:
    told = {k: line("first", 1.0)[k] for k in ("row", "dtype", "mode", "place")}
    (found,) = verdicts([line("off", 1.0), {**told, "error": "the process ended"}])
    assert (found.ratio, found.wrong) == (None, "the process ended")
    (found,) = verdicts([line("off", 1.0), line("first", 1.0, kernels=OWN)])
    assert found.wrong == "run by MacheteLinearKernel"
    (found,) = verdicts(
        [line(p, 1.0, row=verdict.DENSE.name, kernels=OWN) for p in ("off", "first")]
    )
    assert not found.wrong
    assert found.told()["ratio"] == 1.0


def test_ours_must_run_the_experts_of_a_mixture() -> None:
    row = next(x for x in GPU_ROWS if x.mixture)
    for held, wrong in (
        ({"MixedGemmLinearKernel": 8, "Marlin": 2}, "run by MixedGemmLinearKernel, Marlin"),
        ({"MixedGemmExpertsMethod": 2, **OURS}, ""),
    ):
        of = [line("off", 1.0, row=row.name), line("first", 1.0, row=row.name, kernels=held)]
        assert verdicts(of)[0].wrong == wrong


def test_routers_in_doubt_do_not_decide_about_a_mixture() -> None:
    row = next(x for x in GPU_ROWS if x.mixture).name
    held = {"MixedGemmExpertsMethod": 2}
    ours = line("first", 1.0, row=row, kernels=held)
    ours["decode"]["mean"] = 2.0
    (found,) = verdicts([line("off", 1.0, row=row), ours])
    assert found.ratio == 1.0 and not found.wrong
    ours["decode"]["median"] = 1.3
    assert verdicts([line("off", 1.0, row=row), ours])[0].wrong.startswith("1.30")


# --- what is run ---------------------------------------------------------------------------------


def parsed(tmp_path: Path, *options: str) -> argparse.Namespace:
    out = ["--out", str(tmp_path / "engine.json"), "--work", str(tmp_path / "work")]
    return gpu_check.arguments().parse_args([*out, *options])


def points(tmp_path: Path, *options: str) -> tuple[list[dict[str, Any]], Report]:
    given = parsed(tmp_path, *options)
    report = Report(given.out, "check", gpu_check.KEYS, {})
    return gpu_check.points(given, report), report


def test_every_kind_in_two_dtypes_both_places_eager_and_with_graphs(tmp_path: Path) -> None:
    found, _ = points(tmp_path)
    told = {tuple(x[k] for k in gpu_check.KEYS) for x in found}
    # The dense model is written in bfloat16.
    assert len(found) == len(told) == (26 * 2 + 2) * 2 * 2
    assert {x["mode"] for x in found[: len(found) // 2]} == {"graphs"}


def test_options_choose_and_what_is_measured_is_left_out(tmp_path: Path) -> None:
    options = ("--rows", "zero points", "AWQ g128", "--dtypes", "float16", "--places", "first")
    found, report = points(tmp_path, *options, "--modes", "eager", "--tensor-parallel", "2")
    assert [x["row"] for x in found] == ["W4A16 g128, zero points", "AWQ g128", "Mixtral AWQ g128"]
    assert {(x["dtype"], x["place"], x["mode"], x["ranks"]) for x in found} == {
        ("float16", "first", "eager", 2)
    }
    report.note({k: found[0][k] for k in gpu_check.KEYS})
    left, _ = points(tmp_path, *options, "--modes", "eager")
    assert [x["row"] for x in left] == ["AWQ g128", "Mixtral AWQ g128"]


def test_points_are_dealt_out_to_processes(tmp_path: Path) -> None:
    found, _ = points(tmp_path)
    made = gpu_check.jobs(found, tmp_path, 16)
    assert sorted(map(str, found)) == sorted(str(point) for job in made for point in job.points)
    assert len({x.name for x in made}) == len(made) == 16
    assert {len(x.points) for x in made} == {13, 14}
    ports = [int(x.environment["VLLM_PORT"]) for x in made]
    assert len(set(ports)) == 16 and max(ports) < 32768 - gpu_check.PORTS
    for job in made:
        modes = [x["mode"] for x in job.points]
        assert modes == sorted(modes, reverse=True)  # those that start slowest first
        assert str(tmp_path / "installed") in job.environment["PYTHONPATH"]
        assert job.environment.items() >= engines.WITHOUT_MULTICAST.items()
    assert len(gpu_check.jobs(found[:3], tmp_path, 16)) == 3


class Method:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


def test_classes_that_layers_hold() -> None:
    class MacheteLinearKernel: ...

    class MixedGemmLinearKernel: ...

    model = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(4)))
    model[0].quant_method = Method(scheme=1)
    model[0].scheme = Method(kernel=MixedGemmLinearKernel())
    model[1].quant_method = Method(fp8_linear=MacheteLinearKernel())
    found = engines.held(model)
    assert found == {"Method": 1, "MixedGemmLinearKernel": 1, "MacheteLinearKernel": 1}
    assert engines.ours(found) and not engines.ours({"MacheteLinearKernel": 1})


@pytest.mark.parametrize("wrong", [["--dtypes", "float32"], ["--tensor-parallel", "3"], ["--x"]])
def test_wrong_options_are_refused(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(tmp_path, *wrong)
