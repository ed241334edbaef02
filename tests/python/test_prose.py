"""The prose of each room that has been read aloud: docstrings and comments begin with their
subject or their verb, and words that were replaced by the field's do not come back.

A room is done once it stands in ``ROOMS``; ``REPLACED`` has the words that left it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import prose

ROOMS = (
    "benchmarks",
    "examples",
    "mixed_gemm/cli",
    "mixed_gemm/distributed",
    "mixed_gemm/doctor",
    "mixed_gemm/formats",
    "mixed_gemm/integrations",
    "mixed_gemm/nn",
    "mixed_gemm/ops",
    "mixed_gemm/quantization",
    "mixed_gemm/reference",
    "mixed_gemm/selection",
    "mixed_gemm/weights",
    "tools",
)
# Room -> words of its own that the field's words have taken the place of.
REPLACED = {
    "mixed_gemm/distributed": ("Span", "span_of", "piece", "pieces"),
    "mixed_gemm/quantization": (
        *("Site", "Stage", "Chain", "Around", "Moments", "way_of", "spend"),
    ),
    "mixed_gemm/weights": ("Span", "span_of", "piece", "spread"),
}
OPENING = re.compile(r"[\"'`*(]*(of|what|that of|those of)\b", re.IGNORECASE)


def badly_opened(path: Path) -> list[str]:
    """Docstrings and comments that open with a word that has its subject elsewhere."""
    return [
        f"{path.name}:{number}: {text.splitlines()[0][:70]}"
        for number, text in prose.of_file(path)
        if OPENING.match(text)
    ]


def replaced_words(path: Path, words: tuple[str, ...]) -> list[str]:
    """Lines with a word that was replaced."""
    found = re.compile(rf"\b({'|'.join(words)})\b")
    return [
        f"{path.name}:{number}: {line.strip()[:70]}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if found.search(line)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_prose_begins_with_its_subject(room: str) -> None:
    files = prose.files_of(room)
    assert files, room
    assert [line for path in files for line in badly_opened(path)] == []


@pytest.mark.parametrize("room", REPLACED)
def test_replaced_words_stay_away(room: str) -> None:
    files = prose.files_of(room)
    assert files, room
    assert [line for path in files for line in replaced_words(path, REPLACED[room])] == []


BAD = '''"""Of a weight."""
SIZE = 3  # of a row
# Those of the whole
# weight.
TEXT = "# of no comment"


class A:
    """What a row holds."""

    def b(self) -> None:
        """That of ``A``."""
'''
GOOD = '''"""A weight, and what of it is read."""
# A row
# of the weight.
SIZE = 3  # elements; what a row holds


def whatever() -> None:
    """Offer it."""
'''


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("bad.py", BAD, [1, 2, 3, 9, 12]),
        ("good.py", GOOD, []),
        ("bad.cu", "int a;  // of a row\n// What it\n// is.\n", [1, 2]),
        ("good.cu", '// A row\n// of it.\nauto x = "https://of";\n', []),
        ("bad.sh", "#!/bin/sh\n# what it does\necho  # of it\n", [2, 3]),
    ],
)
def test_the_checker_sees_it(name: str, text: str, lines: list[int], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = [int(line.split(":")[1]) for line in badly_opened(path)]
    assert found == lines


def test_the_checker_sees_words(tmp_path: Path) -> None:
    path = tmp_path / "words.py"
    path.write_text("class Site:\n    website = 'Sites'\n")
    assert replaced_words(path, ("Site",)) == ["words.py:1: class Site:"]
