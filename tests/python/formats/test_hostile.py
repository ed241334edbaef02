"""Broken and malicious checkpoints end in a CheckpointError that names the file, soon and in little
memory; the cases are in hostile_files.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scripts import report_of

SECONDS = 2  # of a processor
MEGABYTES = 500  # of the whole process, torch included
# Strange, but nothing in them is wrong: keys that nobody asks for.
HARMLESS = {
    *("config: numbers", "config: one long string", "config: escapes"),
    "config: one long string of four bytes",
}


def test_every_hostile_checkpoint_is_refused_soon_and_in_little_memory(repository: Path) -> None:
    fooled = Path("/tmp/mixed_gemm_was_fooled")
    found = report_of("hostile_files.py", repository=repository)
    assert len(found) > 220 and not fooled.exists()
    for name, outcome in found.items():
        expected = "read" if name in HARMLESS else "CheckpointError: /"
        assert outcome["text"].startswith(expected), (name, outcome)
        assert "weights_only" not in outcome["text"], (name, outcome)
        assert outcome["seconds"] < SECONDS and outcome["mb"] < MEGABYTES, (name, outcome)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (r".*mlp\.(gate|up|down)_proj$", ""),
        (r"^(?!.*(lm_head|embed)).*$", ""),
        (r".*layers\.(" + "|".join(map(str, range(90))) + r")\..*(q|k|v)_proj", ""),
        (r"(?:model\.)?layers\.[0-9]+\..*\.fc[12]", ""),
        (r"(a+)+$", "repeats a group"),
        (r"(a|a)*b", "repeats a group"),
        (r"((a|b)c){2,}", "repeats a group"),
        ("(a|a)?" * 30, "too many"),
        (".*.*.*.*.*x", "too many"),
        ("a" * 501, "501 characters"),
        ("[", "no regular expression"),
        ("a{99999999999}", "no regular expression"),
    ],
)
def test_patterns_that_may_take_forever_are_told_from_those_of_real_files(
    pattern: str, problem: str
) -> None:
    from mixed_gemm.formats.name_patterns import pattern_problem

    found = pattern_problem(pattern)
    assert (problem in found) if problem else found == ""
