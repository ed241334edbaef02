"""Check a wheel: what is in it, that it installs, and that it works outside this tree.

    python tools/check_wheel.py              the wheel that pip builds of this tree, CPU ops only
    python tools/check_wheel.py dist/*.whl   one that anybody may install (tools/make_wheel.py), by
                                             tools/wheel_faults.py too

The first takes seconds: the CUDA kernels go through the same CMake files and are tested in the
build folder. It needs setuptools, cmake and ninja in the Python that runs it, the second does not.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import wheel_faults

ROOT = Path(__file__).resolve().parent.parent
OFFLINE = ("--no-deps", "--no-index")

# Runs in an empty folder, with the wheel's files and nothing of this tree on the path.
USE_IT = """
import pathlib, sys, torch, mixed_gemm
assert pathlib.Path(mixed_gemm.__file__).is_relative_to(sys.argv[1]), mixed_gemm.__file__
q = torch.randint(-8, 8, (70, 96), dtype=torch.int8)
packed = torch.ops.mixed_gemm.pack_weights(q, 4)
assert torch.equal(torch.ops.mixed_gemm.unpack_weights(packed, 4, 70, 96), q)
"""


def pip(*arguments: str, **variables: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **variables})


def check_command(script: Path, environment: dict[str, str], version: str) -> None:
    """The command that pip made of the entry point, and the module, say which version they are."""
    for command in ([str(script)], [sys.executable, "-m", "mixed_gemm.cli"]):
        ask = [*command, "--version"]
        said = subprocess.check_output(ask, text=True, cwd=script.parent, env=environment).strip()
        if said != version:
            sys.exit(f"{' '.join(ask)} says {said!r}, not {version}")


def check_installed(wheel: Path) -> None:
    """It installs without anything else, and what it installs works in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        site = str(Path(folder).resolve() / "site")
        pip("install", *OFFLINE, "--target", site, str(wheel))
        environment = {**os.environ, "PYTHONPATH": site}
        environment.pop("MIXED_GEMM_LIBRARY", None)
        use_it = [sys.executable, "-c", USE_IT, site]
        subprocess.run(use_it, check=True, cwd=folder, env=environment)
        check_command(
            Path(site) / "bin" / "mixed-gemm", environment, version=wheel.name.split("-")[1]
        )
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, installs and works")


def check_build() -> None:
    """Check the wheel that pip builds of this tree, with CPU ops only."""
    with tempfile.TemporaryDirectory() as folder:
        options = (*OFFLINE, "--no-build-isolation", "-w", folder)
        pip("wheel", *options, str(ROOT), MIXED_GEMM_CUDA="OFF")
        (wheel,) = Path(folder).glob("*.whl")
        if "-py3-none-linux_" not in wheel.name:
            sys.exit(f"{wheel.name}: the tag must be py3-none-linux_*, the library holds no Python")
        names = set(zipfile.ZipFile(wheel).namelist())
        expected = {*wheel_faults.MODULES, wheel_faults.LIBRARY}
        strangers = [n for n in names if not n.startswith(wheel_faults.TOP_LEVEL)]
        if not names >= expected or strangers:
            sys.exit(f"{wheel.name}: lacks {expected - names}, has {strangers}")
        check_installed(wheel)


def told(faults: Iterable[str]) -> int:
    """Print the faults; return the exit status."""
    found = list(faults)
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


def main(arguments: list[str]) -> int:
    if not arguments:
        check_build()
        return 0
    wheel = Path(arguments[0])
    status = told(f"{wheel.name}: {fault}" for fault in wheel_faults.faults(wheel))
    if not status:
        check_installed(wheel)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
