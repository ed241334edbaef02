"""Writes the tables of docs/calibration.md from benchmarks/results/quality_smollm2_h100.json.

python tools/write_quality.py          writes them
python tools/write_quality.py --check  exit status 1 if they would change
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from written import settle, with_part

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "calibration.md"
RESULTS = ROOT / "benchmarks" / "results" / "quality_smollm2_h100.json"
BEGIN, END = (f"<!-- quality: {x} tools/write_quality.py -->" for x in ("written by", "end of"))


def _cells(row: dict[str, Any]) -> list[str]:
    news, licence = (row["percent"][x] for x in ("news", "licence"))
    memory = f"{row['peak_mb'] / 1000:.1f} GB" if "peak_mb" in row else ""
    return [
        row["name"], f"{news:.1f} %", f"{licence:.1f} %", f"{row['weights_mb']:.0f} MB",
        f"{row['seconds']:.0f} s", memory,
    ]  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> str:
    header = ["scheme", "news", "licence", "weights", "time", "peak memory"]
    lines = [header, ["---"] * len(header), *map(_cells, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def part() -> str:
    """Both tables: the best method of each scheme, and every method of one scheme."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    best = [row for row in found["rows"] if row["goal"] is not None]
    others = [row for row in found["rows"] if row["goal"] is None]
    tokens, about = found["calibration"]["tokens"], found["about"]
    dense = " and ".join(f"{found['dense'][x]:.2f} ({x})" for x in ("news", "licence"))
    return f"""Perplexity above that of the dense model, which has {dense}; {tokens} tokens of
calibration; one {about["gpu"]} that other runs shared, so that one alone takes half the time.

{_table(best)}

4 bits in groups of 64, by method (`None`: each weight to the nearest):

{_table(others)}"""


if __name__ == "__main__":
    sys.exit(settle(PAGE, with_part(PAGE, BEGIN, part(), END), sys.argv[1:]))
