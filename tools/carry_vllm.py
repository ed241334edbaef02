"""vLLM for a GPU machine that has torch 2.11 and no network: its wheel cut to what an H100 runs,
and the packages that it imports, in about 50 MB.

    python3.12 tools/carry_vllm.py prepare FOLDER [--wheel FILE] [--library FILE]   here, 5 min
    python3 tools/carry_vllm.py unpack FOLDER TARGET                                there, 10 s

vLLM 0.26.0 is the last that pins torch 2.11. Nothing in it is replaced: its Python files, its
kernels (machine code of 9.0 alone) and FlashAttention 3 (heads of 64 and 128). FlashInfer, which
it can do without, is left out. `unpack` lays all of it into a folder for PYTHONPATH, with the entry
point of our plug-in; --library brings the library of a build along, as TARGET/libmixed_gemm.so.
"""

from __future__ import annotations

import argparse
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

from cut_fatbin import Wanted, common_heads, cut_library

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.serving.installed import write_metadata  # noqa: E402

VLLM, ARCH, PYTHON = "vllm==0.26.0", 90, "3.12"
PACKAGES = Path(__file__).with_suffix(".txt")
LIBRARY = "libmixed_gemm.so"
# As small as xz makes them: files on their way to a GPU machine may be limited, to 64 MiB say. The
# types of tarfile know no flag in a preset.
SMALLEST: Any = 9 | lzma.PRESET_EXTREME
# Versions of glibc up to that of the GPU machine, the newest first, which pip prefers.
_GLIBC = ("_2_31", "_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "_2_12", "2014", "1")
PLATFORMS = [text for x in _GLIBC for text in ("--platform", f"manylinux{x}_x86_64")]
PIP = [*PLATFORMS, "--only-binary=:all:", "--no-deps", "--implementation", "cp",
       "--python-version", PYTHON]  # fmt: skip

# Libraries of the wheel: with the GPU code to keep of them, or as they are.
CUT: dict[str, Wanted] = {
    "vllm/_C_stable_libtorch.abi3.so": lambda _: True,
    "vllm/_moe_C_stable_libtorch.abi3.so": lambda _: True,
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": common_heads,
}
WHOLE = {f"vllm/{x}.abi3.so" for x in ("spinloop", "cumem_allocator", "fs_io_C")}
SUFFIXES, NAMES = {".py", ".json", ".jinja", ".txt"}, {"METADATA", "WHEEL"}
OTHER_GPUS = ("third_party/fmha_sm100/", "deep_gemm/include/")
# Files of the packages that are left out: those that only compilers read, and data of features that
# the engine starts without.
UNUSED_SUFFIXES = {".a", ".h"}
UNUSED = ("zstandard", "mistral_common/data/tekken", "pycountry/locales")


def wanted_of_wheel(name: str) -> bool:
    path = PurePosixPath(name)
    if any(x in name for x in OTHER_GPUS):
        return False
    return name in CUT or name in WHOLE or path.suffix in SUFFIXES or path.name in NAMES


def wanted_of_packages(name: str) -> bool:
    return not name.startswith(UNUSED) and PurePosixPath(name).suffix not in UNUSED_SUFFIXES


# --- here ----------------------------------------------------------------------------------------


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


def downloaded(folder: Path) -> Path:
    pip("download", "--quiet", *PIP, "--abi", "abi3", "--abi", "cp38", "-d", str(folder), VLLM)
    (wheel,) = folder.glob("vllm-*.whl")
    return wheel


def pack_wheel(wheel: Path, target: Path) -> None:
    with ZipFile(wheel) as archive, tarfile.open(target, "w:xz", preset=SMALLEST) as out:
        for name in filter(wanted_of_wheel, archive.namelist()):
            data = archive.read(name)
            if name in CUT:
                with tempfile.NamedTemporaryFile(suffix=".so") as whole:
                    whole.write(data)
                    whole.flush()
                    data = cut_library(Path(whole.name), ARCH, CUT[name])
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755 if name.endswith(".so") else 0o644
            out.addfile(member, io.BytesIO(data))


def pack_packages(site: Path, target: Path) -> None:
    with tarfile.open(target, "w:xz", preset=SMALLEST) as out:
        for path in sorted(x for x in site.rglob("*") if x.is_file()):
            name = path.relative_to(site).as_posix()
            if wanted_of_packages(name):
                out.add(path, name)


def pack_library(library: Path, folder: Path) -> None:
    (folder / f"{LIBRARY}.xz").write_bytes(lzma.compress(library.read_bytes()))


def prepare(folder: Path, wheel: Path | None, library: Path | None) -> None:
    if sys.version_info[:2] != (3, 12):  # the packages below are for it, and one of them runs here
        raise SystemExit(f"prepare: run me with Python {PYTHON}, the one of the GPU machine")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        site = Path(work) / "site"
        pip("install", "--quiet", *PIP, "--no-compile", "--target", str(site), "-r", str(PACKAGES))
        sys.path.insert(0, str(site))
        pack_packages(site, folder / "packages.txz")
        pack_wheel(wheel or downloaded(Path(work)), folder / "vllm.txz")
    if library is not None:
        pack_library(library, folder)
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


# --- there ---------------------------------------------------------------------------------------


def unpack(folder: Path, target: Path) -> None:
    """Does nothing where the same archives are laid out already."""
    archives = sorted(folder.glob("*.xz")) + sorted(folder.glob("*.txz"))
    if not any(x.name == "vllm.txz" for x in archives):
        raise SystemExit(f"unpack: no vllm.txz in {folder}: carry_vllm.py prepare writes it")
    stamp = "".join(f"{x.name} {x.stat().st_size} {x.stat().st_mtime_ns}\n" for x in archives)
    ready = target / "ready"
    if ready.is_file() and ready.read_text() == stamp:
        return
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda x: _lay_out(x, target), archives))
    write_metadata(target)
    ready.write_text(stamp)


def _lay_out(archive: Path, target: Path) -> None:
    if archive.suffix == ".txz":
        with tarfile.open(archive) as found:
            found.extractall(target, filter="data")
    else:
        (target / archive.stem).write_bytes(lzma.decompress(archive.read_bytes()))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    here = commands.add_parser("prepare")
    here.add_argument("folder", type=Path)
    here.add_argument("--wheel", type=Path, help="of vLLM, where it is downloaded already")
    here.add_argument("--library", type=Path, help="of a build, to carry it along")
    there = commands.add_parser("unpack")
    there.add_argument("folder", type=Path)
    there.add_argument("target", type=Path)
    return parser


if __name__ == "__main__":
    given = arguments().parse_args()
    if given.command == "prepare":
        prepare(given.folder, given.wheel, given.library)
    else:
        unpack(given.folder, given.target)
