"""Comments of the C++ and CUDA sources say first what they are about, in the field's words."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("csrc", "tests/cpp", "tests/cuda")
SUFFIXES = {".h", ".cpp", ".cuh", ".cu"}

# A comment that opens so is understood by who knows already what it is about.
SUBJECTLESS = re.compile(r"//+ (Of|What|That of|Those of)\b")
# The field says TMA, PDL, reduce and semaphore.
OWN_WORDS = re.compile(r"copy engine|early_?start|hand_?over|wait_for_kernel_before", re.IGNORECASE)


def faults(pattern: re.Pattern[str], text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if pattern.search(line)]


def found(pattern: re.Pattern[str]) -> dict[str, list[str]]:
    """File -> its lines that match, of the files that have any."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths if path.suffix in SUFFIXES}
    assert len(texts) > 400
    lines = {str(path.relative_to(ROOT)): faults(pattern, text) for path, text in texts.items()}
    return {path: some for path, some in lines.items() if some}


def test_no_comment_opens_without_its_subject() -> None:
    assert found(SUBJECTLESS) == {}


def test_sources_use_the_words_of_the_field() -> None:
    assert found(OWN_WORDS) == {}


def test_faults_are_found() -> None:
    text = "// Of a tile.\n  // What waits.\n// Often\nx;  // of K\n"
    assert faults(SUBJECTLESS, text) == ["// Of a tile.", "// What waits."]
    text = "struct EarlyStart {};\n// The copy engine.\n// early\n"
    assert faults(OWN_WORDS, text) == ["struct EarlyStart {};", "// The copy engine."]
