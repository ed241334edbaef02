"""What every report of a GPU script says about the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

REPOSITORY = Path(__file__).resolve().parents[2]


def commit() -> str:
    if "MIXED_GEMM_COMMIT" in os.environ:
        return os.environ["MIXED_GEMM_COMMIT"]
    git = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return git.stdout.strip() or "unknown"


def meta(device: str) -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else "none",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": commit(),
    }


def write(path: str, report: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(report, indent=1) + "\n")


def write_part(what: str, part: str, device: str, rows: Iterable[dict[str, Any]]) -> None:
    """For the table of all that was tried, where $MIXED_GEMM_RELIABILITY names a folder; rows are
    {"name", "count", "failed"}."""
    sys.path.insert(0, str(REPOSITORY / "tools"))
    from reliability_parts import write_part as write_rows

    rows = list(rows)
    if rows:
        about = meta(device)
        name = about["gpu"] if device.startswith("cuda") else "cpu"
        write_rows(what, rows, device=name, part=part, commit=about["commit"])
