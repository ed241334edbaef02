"""A copy of the sources that can make every mistake. The sources themselves know of none, so that
who reads a kernel reads the kernel.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from . import cpu, eight_bits, experts, packing, products, selection
from .edit import Edit
from .rows import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
EDITS: tuple[Edit, ...] = (
    *packing.EDITS,
    *selection.EDITS,
    *products.EDITS,
    *eight_bits.EDITS,
    *cpu.EDITS,
    *experts.EDITS,
)
_LIST = "core/mutant_list.h"
_INCLUDE = '#include "core/mutant.h"\n'
_PRAGMA = "#pragma once\n"


def mutated(sources: Path = ROOT / "csrc") -> dict[str, str]:
    """Every file below csrc/ that differs, and its text.

    Raises:
        ValueError: the lines of an edit are not there, or not only once.
    """
    edits: dict[str, list[Edit]] = defaultdict(list)
    for edit in EDITS:
        edits[edit.file].append(edit)
    found = {}
    for file, of_file in edits.items():
        text = (sources / file).read_text(encoding="utf-8")
        for edit in of_file:
            text = edit.applied(text)
        before, pragma, after = text.rpartition(_PRAGMA) if _PRAGMA in text else ("", "", text)
        found[file] = f"{before}{pragma}{_INCLUDE}{after}"
    for file in ("mutant.h", "mutant.cpp"):
        found[f"core/{file}"] = (HERE / file).read_text(encoding="utf-8")
    found[_LIST] = "".join(f"X({one.name})\n" for one in MUTANTS)
    return found


def write(target: Path) -> None:
    """Make ``target`` a tree that builds as this one does: csrc/ is a copy with the mistakes in it,
    everything else a link. Files that stay as they are keep their times, so that a build folder is
    good for another run.
    """
    target.mkdir(parents=True, exist_ok=True)
    for entry in ROOT.iterdir():
        link = target / entry.name
        if entry.name not in ("csrc", "build", ".git") and not link.is_symlink():
            link.symlink_to(entry)
    texts = {
        str(path.relative_to(ROOT / "csrc")): path.read_text(encoding="utf-8")
        for path in (ROOT / "csrc").rglob("*")
        if path.is_file()
    }
    texts |= mutated()
    csrc = target / "csrc"
    for old in [x for x in csrc.rglob("*") if x.is_file()]:
        if str(old.relative_to(csrc)) not in texts:
            old.unlink()
    for file, text in texts.items():
        path = csrc / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
