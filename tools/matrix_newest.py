"""The row of `make matrix` with the newest libraries of the index that pyproject.toml allows.

The environment of the other tests pins some of them, since pages hold what they say, and whoever
installs the package gets what came out today. So: an environment that sees the one in use, with
its torch, and takes what is newer than there; in it tests of transformers and peft, some that
hypothesis drives, and the collection of the GPU tests, which CI cannot run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
from pathlib import Path

from matrix_environment import Failed, NotHere, pip, run_in_tree, say
from packaging.requirements import Requirement
from packaging.version import Version
from requirements import requirements

NAME = "newest libraries"
TESTS = (  # 4 minutes of a core together
    "tests/python/integrations/test_transformers.py",
    "tests/python/integrations/test_qlora.py",
    "tests/python/integrations/test_loading_arguments.py",
    "tests/python/nn/test_every_adapter.py",
    "tests/python/ops/test_layout_hypothesis.py",
    "tests/python/selection/test_dispatch_hypothesis.py",
    "tests/python/test_settings.py",
)
COLLECTED = "tests/gpu"
# The index is asked for new releases of these; the others that are upgraded are told as they are.
LOOKED_UP = ("pytest", "hypothesis", "transformers", "peft")
TEST_MINUTES, COLLECT_MINUTES, ASK_SECONDS = 15, 3, 120
VERSIONS = (
    "import importlib.metadata as m, json, sys;"
    "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
)


def asked() -> list[Requirement]:
    """The requirements that users install beside the package, and those of the tests that are not
    pinned."""
    test = [line for line in requirements(["test"]) if "==" not in line]
    return [Requirement(line) for line in [*requirements(["hf"]), *test]]


def environment(home: Path) -> Path:
    """Make the environment; return its Python. It finds what the environment in use has behind what
    it installs itself."""
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    import torch

    seen = [*site.getsitepackages(), str(Path(torch.__file__).parents[1])]
    (packages / "in_use.pth").write_text("\n".join(dict.fromkeys(seen)))
    return home / "bin" / "python"


def newest(python: Path, requirement: Requirement) -> str:
    """The newest version on the index that the requirement allows. Raises NotHere without index."""
    try:
        done = subprocess.run(
            [str(python), "-m", "pip", "index", "versions", requirement.name],
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotHere(f"no index answers in {ASK_SECONDS} s") from error
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if not listed:
        raise NotHere(f"no index answers which versions of {requirement.name} there are")
    latest: str = max(requirement.specifier.filter(listed[1].split(", ")), key=Version)
    return latest


def taken(python: Path, log: Path) -> str:
    """Install; return what it then has, by name. Raises NotHere or Failed."""
    wanted = asked()
    latest = {one.name: newest(python, one) for one in wanted if one.name in LOOKED_UP}
    if pip(python, log, "--upgrade", *map(str, wanted)):
        raise Failed("pip could not install the newest libraries")
    done = subprocess.run(
        [str(python), "-c", VERSIONS, "torch", *(one.name for one in wanted)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    notes = {
        name: f" (held back, {latest[name]} is on the index)"
        for name in latest
        if Version(found[name]) < Version(latest[name])
    }
    return ", ".join(f"{name} {version}{notes.get(name, '')}" for name, version in found.items())


def test(python: Path, log: Path) -> None:
    """Raises Failed."""
    pytest = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    jobs = os.environ.get("JOBS", str(os.cpu_count()))
    for arguments, minutes in (
        ([COLLECTED, "--collect-only", "-qq"], COLLECT_MINUTES),
        ([*TESTS, "-n", jobs, "-m", "not slow"], TEST_MINUTES),
    ):
        status, _ = run_in_tree([*pytest, *arguments], log, minutes)
        if status:
            raise Failed(f"pytest {' '.join(arguments)} ended with {status}")


def run(folder: Path) -> tuple[str, str]:
    """("passed" or "failed" or "not here", with what or why)."""
    home = folder / "newest"
    log = folder / "newest.log"
    log.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    what = "nothing installed"
    try:
        python = environment(home)
        what = taken(python, log)
        say(f"{NAME}: {what}")
        test(python, log)
        return "passed", what
    except NotHere as error:
        return "not here", str(error)
    except (Failed, subprocess.SubprocessError) as error:
        return "failed", f"{error}; with {what}; log: {log}"
    finally:
        shutil.rmtree(home, ignore_errors=True)
