"""A small wheel that tools/wheel_faults.py finds nothing wrong with, made in a second: libraries of
a line of C each, and the metadata of the real one. Tests plant faults in it."""

from __future__ import annotations

import base64
import hashlib
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import fatbin
import wheel_faults
from requirements import project
from torch_headers import RELEASES

METADATA = f"mixed_gemm-{project()['version']}.dist-info"
NAME = f"mixed_gemm-{project()['version']}-{wheel_faults.TAG}.whl"
MAIN = "extern int aoti_torch_empty(void); int call(void) { return aoti_torch_empty(); }"
CALL_C = "extern void {0}(void); void also(void) {{ {0}(); }}"  # C that needs a symbol
OF_A_RELEASE = "extern int _ZN2at5emptyEv(void); int call(void) { return _ZN2at5emptyEv(); }"


def gpu_code(*names: str) -> bytes:
    """A container of fatbin.py with an entry of 16 bytes for each of "sm_80", "ptx_90"."""
    kinds = {name: number for number, name in fatbin.KINDS.items()}
    entries = b""
    for name in names:
        kind, _, arch = name.partition("_")
        header = struct.pack("<I", 0)
        entries += fatbin.ENTRY.pack(
            kinds[kind], 0x101, fatbin.ENTRY.size + len(header), 16, 0, 0, 0, 0, int(arch)
        )
        entries += header + bytes(16)
    return fatbin.CONTAINER.pack(fatbin.MAGIC, 1, fatbin.CONTAINER.size, len(entries)) + entries


@dataclass
class Library:
    """C source, what it is linked with, and flags of the compiler."""

    source: str
    needs: tuple[str, ...]
    gpu_code: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  # symbol -> its version

    def build(self, folder: Path) -> bytes:
        folder.mkdir(parents=True)
        linked = [named(folder, name) for name in self.needs]
        for number, (symbol, version) in enumerate(self.versions.items()):
            linked.append(versioned(folder / str(number), symbol, version))
        source = folder / "library.c"
        text = self.source
        if self.gpu_code:
            (folder / "code").write_bytes(gpu_code(*self.gpu_code))
            text += f"""
asm(".section {fatbin.SECTION}, \\"a\\"; .incbin \\"{folder / "code"}\\"; .previous");"""
        source.write_text(text + "\n")
        compile_c(source, folder / "library.so", *self.flags, "-Wl,--no-as-needed", *linked)
        return (folder / "library.so").read_bytes()


def compile_c(source: Path, library: Path, *options: str | Path) -> None:
    subprocess.run(
        ["cc", "-w", "-shared", "-fPIC", "-nostdlib", "-o", library, source, *options], check=True
    )


def named(folder: Path, name: str) -> Path:
    """An empty library to link with."""
    (folder / "empty.c").write_text("")
    compile_c(folder / "empty.c", folder / name, f"-Wl,-soname,{name}")
    return folder / name


def versioned(folder: Path, symbol: str, version: str) -> Path:
    """A libc.so.6 with one symbol of that version."""
    folder.mkdir()
    (folder / "map").write_text(f"{version} {{ global: {symbol}; }};\n")
    (folder / "one.c").write_text(f"void {symbol}(void) {{}}\n")
    library = folder / "libc.so.6"
    script = f"-Wl,--version-script={folder / 'map'}"
    compile_c(folder / "one.c", library, "-Wl,-soname,libc.so.6", script)
    return library


def main_library(**changed: object) -> Library:
    parts: dict[str, object] = {
        "source": MAIN,
        "needs": ("libtorch.so", "libtorch_cpu.so"),
        "gpu_code": tuple(wheel_faults.CODE),
    }
    return Library(**{**parts, **changed})  # type: ignore[arg-type]


def library_of_a_release(**changed: object) -> Library:
    parts: dict[str, object] = {"source": OF_A_RELEASE, "needs": ("libtorch_cpu.so", "libc10.so")}
    return Library(**{**parts, **changed})  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    """Path in the archive -> bytes, of a wheel without faults; no RECORD yet."""
    of_a_release = library_of_a_release().build(folder / "release")
    metadata = [
        "Metadata-Version: 2.4",
        "Name: mixed-gemm",
        f"Version: {project()['version']}",
        f"License-Expression: {project()['license']}",
        f"Requires-Python: {project()['requires-python']}",
        *(f"Requires-Dist: {one}" for one in project()["dependencies"]),
    ]
    return {
        **{name: b"" for name in wheel_faults.MODULES},
        wheel_faults.LIBRARY: main_library().build(folder / "main"),
        wheel_faults.autograd_library(RELEASES[0]): of_a_release,
        **{f"{METADATA}/licenses/{name}": b"text" for name in wheel_faults.LICENSES},
        f"{METADATA}/METADATA": "\n".join(metadata).encode(),
        f"{METADATA}/WHEEL": f"Wheel-Version: 1.0\nTag: {wheel_faults.TAG}\n".encode(),
    }


def record(files: Mapping[str, bytes]) -> Iterable[str]:
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        yield f"{name},sha256={digest},{len(data)}"
    yield f"{METADATA}/RECORD,,"


def pack(
    files: Mapping[str, bytes], wheel: Path, recorded: Mapping[str, bytes] | None = None
) -> Path:
    """recorded: of what RECORD tells, if not of these files."""
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{METADATA}/RECORD", "\n".join(record(recorded or files)))
    return wheel
