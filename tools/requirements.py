"""Print requirements of pyproject.toml, one per line: the only list of what a developer installs.

    python tools/requirements.py build runtime test lint

`build` is [build-system], `runtime` the dependencies but torch (tools/setup_env.sh chooses that
one), any other name an extra or a dependency group. `--version` prints the version of the package,
which pyproject.toml alone states.
"""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def pyproject() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())


def project() -> dict[str, Any]:
    """Its table [project]: the name, the version, and what the package depends on."""
    table: dict[str, Any] = pyproject()["project"]
    return table


def requirements(groups: list[str]) -> list[str]:
    whole = pyproject()
    lists = {
        "build": whole["build-system"]["requires"],
        "runtime": [r for r in project()["dependencies"] if not r.startswith("torch")],
        **project()["optional-dependencies"],
        **whole["dependency-groups"],
    }
    return [requirement for group in groups for requirement in lists[group]]


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(project()["version"])
    else:
        print("\n".join(requirements(sys.argv[1:])))
