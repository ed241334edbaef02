"""CI on any machine is .ci/run, which ends at the first stage that fails; hooks run what it lints,
and templates ask for what a report needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import matrix

STAGES = ["lint", "test", "test-vllm", "matrix", "gate"]
TOOLS = ("ruff check", "ruff format", "mypy", "clang-format", "codespell_lib")


def ci(repository: Path, folder: Path, failing: str = "none") -> tuple[int, list[str]]:
    """(exit status, stages) of .ci/run with a make that only notes what it is asked for."""
    asked = folder / "asked"
    make = folder / "make"
    make.write_text(f'#!/bin/sh\necho "$1" >>{asked}\n[ "$1" != {failing} ]\n')
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["bash", str(repository / ".ci" / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    return done.returncode, asked.read_text().split()


def test_stages_run_in_order(repository: Path, tmp_path: Path) -> None:
    assert ci(repository, tmp_path) == (0, STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails_ends_it(repository: Path, tmp_path: Path, stage: str) -> None:
    status, asked = ci(repository, tmp_path, failing=stage)
    assert status != 0
    assert asked == STAGES[: STAGES.index(stage) + 1]


def test_every_stage_is_a_target(repository: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (repository / "Makefile").read_text(), re.MULTILINE)
    assert set(STAGES) <= set(targets)


def test_hosted_ci_is_the_same(repository: Path) -> None:
    workflow = (repository / ".github" / "workflows" / "ci.yml").read_text()
    assert workflow.splitlines()[-1].strip() == "- run: bash .ci/run"
    oldest, newest = matrix.CELLS
    for python in (oldest.pythons[0], newest.pythons[0]):
        assert re.search(rf"^ +{re.escape(python)}$", workflow, re.MULTILINE), python


def test_a_tag_builds_tests_and_attaches(repository: Path) -> None:
    """In this order; the wheel is tried with the oldest and the newest torch."""
    workflow = (repository / ".github" / "workflows" / "release.yml").read_text()
    steps = (
        "requirements.py --version",
        "- run: make wheel",
        'make -C "$RUNNER_TEMP/sdist" test',
        "install_times.py wheel dist/*.whl",
        "gh release create",
    )
    places = [workflow.index(step) for step in steps]
    assert places == sorted(places)
    assert re.findall(r'torch: "(.+?)"', workflow) == [cell.torch for cell in matrix.CELLS]


@pytest.mark.parametrize("tool", TOOLS)
def test_hooks_run_what_lint_runs(repository: Path, tool: str) -> None:
    recipe = (repository / "Makefile").read_text().split("\nlint:\n")[1].split("\n\n")[0]
    hooks = (repository / ".pre-commit-config.yaml").read_text()
    assert tool in recipe
    assert len(re.findall(rf"entry: .*{tool}\b", hooks)) == 1
    assert hooks.count("- id: ") == len(TOOLS)


def test_templates_ask_for_the_environment(repository: Path) -> None:
    templates = [
        *(repository / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"),
        repository / ".github" / "PULL_REQUEST_TEMPLATE.md",
    ]
    assert len(templates) == 3
    for template in templates:
        assert "mixed-gemm doctor" in template.read_text(), template.name


@pytest.mark.parametrize("wheels", [(), ("0.1.0",), ("0.1.0", "0.2.0")], ids=str)
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_demo_takes_the_newest_wheel_beside_it(
    wheels: tuple[str, ...], repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "dist").mkdir()
    names = [f"dist/mixed_gemm-{x}-py3-none-manylinux_2_28_x86_64.whl" for x in wheels]
    for name in names:
        (tmp_path / name).touch()

    def planned(*arguments: str) -> str:
        command = ["make", "-n", "-f", str(repository / "Makefile"), "demo", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, check=True, text=True
        ).stdout

    builds = "--no-build-isolation --no-deps ."
    assert (builds in planned()) == (not wheels)
    assert f"--force-reinstall {names[-1]}" in planned() if names else True
    assert builds in planned("WHEEL=") and "another.whl" in planned("WHEEL=another.whl")
