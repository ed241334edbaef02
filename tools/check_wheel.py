"""Build the wheel as pip does, and check that what it installs works outside this tree.

    python tools/check_wheel.py

CPU ops only, which keeps it to seconds: the CUDA kernels go through the same CMake files and are
tested in the build folder. Needs setuptools, cmake and ninja in the Python that runs it.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPECTED = {
    "mixed_gemm/__init__.py",
    "mixed_gemm/py.typed",
    "mixed_gemm/libmixed_gemm.so",
    "mixed_gemm/cli/__main__.py",
    "mixed_gemm_cli/__init__.py",
}
TOP_LEVEL = ("mixed_gemm/", "mixed_gemm_cli/", "mixed_gemm-")  # the last is the metadata

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


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        offline = ("--no-deps", "--no-index")
        pip(
            "wheel",
            *offline,
            "--no-build-isolation",
            "-w",
            folder,
            str(ROOT),
            MIXED_GEMM_CUDA="OFF",
        )
        (wheel,) = Path(folder).glob("*.whl")
        if "-py3-none-linux_" not in wheel.name:
            sys.exit(f"{wheel.name}: the tag must be py3-none-linux_*, the library holds no Python")

        names = set(zipfile.ZipFile(wheel).namelist())
        strangers = [n for n in names if not n.startswith(TOP_LEVEL)]
        if not names >= EXPECTED or strangers:
            sys.exit(f"{wheel.name}: lacks {EXPECTED - names}, has {strangers}")

        site = str(Path(folder).resolve() / "site")
        pip("install", *offline, "--target", site, str(wheel))
        environment = {**os.environ, "PYTHONPATH": site}
        environment.pop("MIXED_GEMM_LIBRARY", None)
        use_it = [sys.executable, "-c", USE_IT, site]
        subprocess.run(use_it, check=True, cwd=folder, env=environment)
        check_command(
            Path(site) / "bin" / "mixed-gemm", environment, version=wheel.name.split("-")[1]
        )
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, installs and works")


if __name__ == "__main__":
    main()
