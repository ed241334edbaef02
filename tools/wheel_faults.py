"""The rules for a wheel that anybody may install: its name, what is in it, and what its libraries
ask of a machine. `faults(wheel)` lists what breaks them; tools/check_wheel.py prints it.

Nothing is installed or loaded: the archive is read, and readelf and nm are asked.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import tempfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import check_abi
import fatbin
from requirements import project
from torch_headers import RELEASES

ROOT = Path(__file__).resolve().parent.parent
PLATFORM = "manylinux_2_28_x86_64"
TAG = f"py3-none-{PLATFORM}"
MOST_BYTES = 60_000_000
TOP_LEVEL = ("mixed_gemm/", "mixed_gemm_cli/", "mixed_gemm-")  # the last is the metadata
MODULES = {
    "mixed_gemm/__init__.py",
    "mixed_gemm/py.typed",
    "mixed_gemm/cli/__main__.py",
    "mixed_gemm_cli/__init__.py",
}
LIBRARY = "mixed_gemm/libmixed_gemm.so"
LICENSES = ("LICENSE", "THIRD_PARTY_NOTICES.md")
# Newest symbol versions of manylinux_2_28.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
SYSTEM_LIBRARIES = {
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"),
    *("libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"),
}
TORCH_LIBRARIES = {"libtorch.so", "libtorch_cpu.so", "libc10.so"}
# A generation each, and float8 (cmake/CudaArchitectures.cmake).
CODE = {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"}
# A file of the machine that built it: of the compiler's and the loader's kinds, or in a home.
OF_A_MACHINE = re.compile(
    rb"(?<![\w.%/+-])/(?:(?:[\w.+@-]+/)+[\w.+@-]+\.(?:cc?|cpp|cuh?|h|hpp|py|o|so)\b"
    rb"|(?:home|root|tmp|work|opt)/[\w.+@-]+)"
)


def autograd_library(release: str) -> str:
    return f"mixed_gemm/libmixed_gemm_autograd-{release}.so"


def faults_of_name(wheel: Path) -> Iterator[str]:
    expected = f"mixed_gemm-{project()['version']}-{TAG}.whl"
    if wheel.name != expected:
        yield f"must be called {expected}"
    if (size := wheel.stat().st_size) > MOST_BYTES:
        yield f"has {size / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:.0f} are allowed"


def faults_of_names(names: set[str], metadata: str) -> Iterator[str]:
    libraries = {LIBRARY, *map(autograd_library, RELEASES)}
    licenses = {f"{metadata}/licenses/{name}" for name in LICENSES}
    for name in sorted((MODULES | libraries | licenses) - names):
        yield f"lacks {name}"
    for name in sorted(names):
        stranger = not name.startswith(TOP_LEVEL) or name.endswith((".pyc", ".a", ".o"))
        if stranger or (name.endswith(".so") and name not in libraries):
            yield f"has {name}, which does not belong to it"


def faults_of_record(archive: zipfile.ZipFile, metadata: str) -> Iterator[str]:
    """Installers compare these too; a file that somebody changed in the archive is found."""
    text = archive.read(f"{metadata}/RECORD").decode()
    record = {row[0]: row[1] for row in csv.reader(text.splitlines())}
    for name in archive.namelist():
        if name == f"{metadata}/RECORD":
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest())
        if record.get(name) != f"sha256={digest.decode().rstrip('=')}":
            yield f"RECORD has another sha256 of {name}, or none"


def faults_of_metadata(archive: zipfile.ZipFile, metadata: str) -> Iterator[str]:
    about = Parser().parsestr(archive.read(f"{metadata}/METADATA").decode())
    tags = Parser().parsestr(archive.read(f"{metadata}/WHEEL").decode())
    for field, expected in (
        ("Version", project()["version"]),
        ("License-Expression", project()["license"]),
        ("Requires-Python", project()["requires-python"]),
    ):
        if about[field] != expected:
            yield f"METADATA: {field} is {about[field]}, pyproject.toml says {expected}"
    for requirement in project()["dependencies"]:
        if requirement not in (about.get_all("Requires-Dist") or []):
            yield f"METADATA does not require {requirement}"
    if tags.get_all("Tag") != [TAG]:
        yield f"WHEEL: Tag is {tags.get_all('Tag')}, must be {TAG}"


def faults_of_library(library: Path) -> Iterator[str]:
    yield from check_abi.faults(str(library), NEWEST)
    for name in check_abi.needed_libraries(str(library)):
        if name not in SYSTEM_LIBRARIES | TORCH_LIBRARIES:
            yield f"needs {name}, which not every machine has"
    for entry in re.findall(
        r"\((RPATH|RUNPATH)\).*\[(.*)\]", check_abi.output_of("readelf", "-d", str(library))
    ):
        yield f"has {entry[0]} {entry[1]}: torch is loaded before it and found without"
    for path in sorted(set(OF_A_MACHINE.findall(library.read_bytes()))):
        yield f"names {path.decode()}, of the machine that built it"


def faults_of_gpu_code(library: Path) -> Iterator[str]:
    found = fatbin.contents(library)
    for name in sorted(CODE - {*found}):
        yield f"has no machine code for {name}"
    for name in sorted({*found} - CODE):
        yield f"has {name}: only machine code for {', '.join(sorted(CODE))} belongs there"


def faults(wheel: Path) -> Iterator[str]:
    yield from faults_of_name(wheel)
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (metadata,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        yield from faults_of_names(names, metadata)
        yield from faults_of_record(archive, metadata)
        yield from faults_of_metadata(archive, metadata)
        for name in sorted(name for name in names if not name.endswith(".so")):
            if str(ROOT).encode() in archive.read(name):
                yield f"{name} names {ROOT}, of the machine that built it"
        for name in sorted(name for name in names if name.endswith(".so")):
            library = Path(archive.extract(name, folder))
            yield from (f"{name} {fault}" for fault in faults_of_library(library))
            if name == LIBRARY:
                yield from (f"{name} {fault}" for fault in faults_of_gpu_code(library))
