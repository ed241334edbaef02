"""The record of what the tests of a process tried, for tools/pages/reliability.py. conftest.py
writes it at the end of a run for which $MIXED_GEMM_RELIABILITY names a folder.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path

_ROWS: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))


def note(what: str, name: str, count: int, failed: int) -> None:
    """``what`` as reliability_parts.SUBJECTS has it; counts of one name are added up."""
    row = _ROWS[what][name]
    row[0] += count
    row[1] += failed


def write() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
    from reliability_parts import write_part

    part = "pytest-" + os.environ.get("PYTEST_XDIST_WORKER", "main")
    for what, rows in _ROWS.items():
        write_part(
            what,
            [{"name": name, "count": n, "failed": failed} for name, (n, failed) in rows.items()],
            part=part,
        )
