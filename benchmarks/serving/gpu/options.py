"""Options that the programs for a GPU have in common."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from .engines import ATTENTION

DTYPES = ("bfloat16", "float16")


def options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    work = Path(tempfile.gettempdir()) / "serving-gpu"
    parser.add_argument("--out", type=Path, required=True, help="the results file")
    parser.add_argument("--tensor-parallel", type=int, default=1, choices=(1, 2), help="GPUs")
    parser.add_argument("--attention", default=ATTENTION, help="vLLM's name of a backend")
    parser.add_argument("--seconds", type=float, default=540, help="what is done then is kept")
    parser.add_argument("--work", type=Path, default=work, help="models, logs, caches")
    parser.add_argument("--commit", help="whose code it is, where there is no git to ask")
    return parser


def section(name: str, ranks: int) -> str:
    """Name the section of the results file."""
    return name if ranks == 1 else f"{name} on {ranks} GPUs"
