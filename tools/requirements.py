"""Print requirements of pyproject.toml, one per line: the only list of what a developer installs.

    python tools/requirements.py build runtime test lint

`build` is [build-system], `runtime` the dependencies but torch (tools/setup_env.sh chooses that
one), any other name an extra or a dependency group.
"""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def requirements(groups: list[str]) -> list[str]:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    pyproject = tomllib.loads(text)
    project = pyproject["project"]
    lists = {
        "build": pyproject["build-system"]["requires"],
        "runtime": [r for r in project["dependencies"] if not r.startswith("torch")],
        **project["optional-dependencies"],
        **pyproject["dependency-groups"],
    }
    return [requirement for group in groups for requirement in lists[group]]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
