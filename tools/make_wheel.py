"""Make the wheel that anybody may install, and the sdist that it is made of, in dist/.

    python tools/make_wheel.py               (make wheel; needs nvcc and the groups `test`, `wheel`)

One file for x86-64, every Python and every torch >= 2.10, with and without CUDA: linked against
stubs of glibc 2.28 (tools/glibc_stubs.py), with a small library for each release of torch
(tools/torch_headers.py). The wheel is built from the unpacked sdist, as pip would; ccache serves
what another tree has compiled. Exit status 1 and a list of faults where it is not what it should be
(tools/wheel_faults.py), where auditwheel takes it for one that needs a newer glibc, or where the
machine code of an architecture breaks a rule (tests/sass).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import check_wheel
import glibc_stubs
import torch_headers
import wheel_faults

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve() / "wheel"
DIST = ROOT / "dist"
GLIBC = f"glibc-{glibc_stubs.GLIBC}"


def make_sdist() -> Path:
    """A tar file of what git knows (MANIFEST.in)."""
    code = f"import setuptools.build_meta as b; print(b.build_sdist({str(DIST)!r}))"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    return DIST / said.splitlines()[-1]


def unpack(sdist: Path) -> Path:
    """Its folder, which keeps nothing of the last one: files that are gone must be missed."""
    place = BUILD / "source"
    shutil.rmtree(place, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(place)
    (source,) = place.iterdir()
    return source


def build(source: Path) -> Path:
    options = (
        f"-DMIXED_GEMM_GLIBC={BUILD / GLIBC}",
        f"-DMIXED_GEMM_TORCH_HEADERS={BUILD / 'torch'}",
    )
    # As deep below the sources as that of `make build`: ccache tells files by their relative paths.
    with (source / "setup.cfg").open("a") as settings:
        settings.write("\n[build_ext]\nbuild_temp = build\n")
    for old in DIST.glob("*.whl"):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", DIST,
         f"--config-settings=--build-option=--plat-name={wheel_faults.PLATFORM}", source],
        check=True,
        env={**os.environ, "MIXED_GEMM_CUDA": "ON", "CMAKE_ARGS": " ".join(options)},
    )  # fmt: skip
    (wheel,) = DIST.glob("*.whl")
    return wheel


def faults_of_audit(wheel: Path) -> Iterator[str]:
    """Ask auditwheel about the tag: a second opinion. torch's libraries are torch's to bring."""
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.wheel_abi import analyze_wheel_abi

    policy = analyze_wheel_abi(
        Libc.GLIBC,
        Architecture.x86_64,
        wheel,
        frozenset(wheel_faults.TORCH_LIBRARIES),
        disable_isa_ext_check=False,
        allow_graft=False,
    ).overall_policy
    print(f"auditwheel: {policy.name}")
    expected = tuple(map(int, wheel_faults.PLATFORM.split("_")[1:3]))
    found = tuple(map(int, policy.name.split("_")[1:3])) if "many" in policy.name else (99,)
    if found > expected:
        yield f"auditwheel takes it for {policy.name}"


def faults_of_machine_code(wheel: Path) -> Iterator[str]:
    """List what tests/sass finds in the kernels of every architecture; `make test` compiles for
    two."""
    with tempfile.TemporaryDirectory() as folder:
        library = zipfile.ZipFile(wheel).extract("mixed_gemm/libmixed_gemm.so", folder)
        check = [sys.executable, str(ROOT / "tests" / "sass" / "check_sass.py"), library]
        done = subprocess.run(check, check=False, capture_output=True, text=True)
    print(*[line for line in done.stdout.splitlines() if " faults" in line], sep="\n")
    if done.returncode:  # also where there is no disassembler
        yield from (done.stdout + done.stderr).splitlines()[-20:]


def main() -> int:
    begun = time.monotonic()
    if torch_headers.main("check"):
        return 1
    if not (BUILD / GLIBC / "libc.so").is_file():
        glibc_stubs.make(BUILD / GLIBC)
    torch_headers.main(str(BUILD / "torch"))
    DIST.mkdir(exist_ok=True)
    wheel = build(unpack(make_sdist()))
    print(f"{wheel.name}: made in {time.monotonic() - begun:.0f} s")
    faults = (*faults_of_audit(wheel), *faults_of_machine_code(wheel))
    return check_wheel.main([str(wheel)]) or check_wheel.told(faults)


if __name__ == "__main__":
    sys.exit(main())
