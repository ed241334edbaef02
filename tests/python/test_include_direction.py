"""csrc/ is ordered: a folder includes only itself and folders above it in the list, and no family
of kernels includes another, but for those that run its kernels for rows of experts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ORDER = (
    "core",
    "contract",
    "layout",
    "problem",
    "dequant",
    "epilogue",
    "mainloop",
    "grid",
    "transform",
    "hopper",
    "grouped",
    "multistage",
    "skinny",
    "wgmma",
    "grouped_multistage",
    "grouped_skinny",
    "grouped_wgmma",
    "grouped_plain",
    "scaled",
    "scaled_skinny",
    "scaled_wgmma",
    "block_gemm",
    "awq",
    "conv",
    "conv_int8",
    "dense",
    "ranks",
    "cpu",
    "dispatch",
    "ops",
)
SHARED = ORDER[: ORDER.index("multistage")]  # rooms of what several families use
FAMILIES = ORDER[len(SHARED) : ORDER.index("cpu")]
# Families that run the kernels of another one for rows of experts.
BASES = {f"grouped_{name}": name for name in ("multistage", "skinny", "wgmma")}
# The CPU backend must build where there is neither nvcc nor CUTLASS.
CPU_MAY_USE = {"core", "problem", "layout", "dequant", "epilogue", "cpu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
SUFFIXES = {".h", ".cuh", ".cpp", ".cu", ".inl"}
TORCH = ("torch/", "ATen/", "c10/", "Python.h", "pybind11/")
CUTLASS = ("cutlass/", "cute/")

CSRC = Path(__file__).resolve().parents[2] / "csrc"
SOURCES = sorted(p for p in CSRC.rglob("*") if p.suffix in SUFFIXES)


def includes(path: Path) -> list[str]:
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return INCLUDE.findall(text)


def test_every_folder_is_in_the_order() -> None:
    folders = {p.name for p in CSRC.iterdir() if p.is_dir()}
    assert folders <= set(ORDER), folders - set(ORDER)
    assert len(SOURCES) > 20
    assert all(p.parent != CSRC for p in SOURCES), "sources live in folders"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(CSRC)))
def test_file_includes_only_itself_and_folders_above(path: Path) -> None:
    folder = path.relative_to(CSRC).parts[0]
    allowed = set(ORDER[: ORDER.index(folder) + 1])
    if folder == "cpu":
        allowed = CPU_MAY_USE
    elif folder in FAMILIES:
        allowed = {*SHARED, folder, BASES.get(folder, folder)}  # between other families nothing
    elif folder not in ("dispatch", "ops"):
        allowed -= {"cpu"}
    for name in includes(path):
        if name.split("/")[0] in ORDER:
            assert name.split("/")[0] in allowed, f'{folder}/ may not include "{name}"'
            assert (CSRC / name).is_file(), f'"{name}" does not exist below csrc/'
        assert folder == "ops" or not name.startswith(TORCH), f"only ops/ may include {name}"
        assert path.suffix in (".cu", ".cuh") or not name.startswith(CUTLASS), (
            f"only .cu and .cuh files may include {name}: the others build without CUTLASS"
        )
        assert "/" in name or not (path.parent / name).is_file(), f'write "{folder}/{name}"'
