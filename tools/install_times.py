"""What installing takes: writes benchmarks/results/install_cpu.json.

    python tools/install_times.py

Makes a virtual environment with torch for CPUs, then installs this tree without and with its
extras, each into a copy of that. Runs for some minutes, with an index that pip can reach.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks" / "results" / "install_cpu.json"
EXTRAS = ("", "[hf]", "[cli]", "[hf,cli]")
TORCH = "torch==2.13.0+cpu"  # as tools/setup_env.sh installs it


def megabytes(folder: Path) -> float:
    return sum(x.stat().st_size for x in folder.rglob("*") if x.is_file()) / 1e6


def main() -> None:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        for extra in EXTRAS:
            place = Path(scratch) / "env"
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, with_pip=True)
            python = str(place / "bin" / "python")
            subprocess.run([python, "-m", "pip", "install", "-q", TORCH], check=True)
            before, begun = megabytes(place), time.perf_counter()
            subprocess.run(
                [python, "-m", "pip", "install", "-q", f"{ROOT}{extra}"],
                check=True, env=environment,
            )  # fmt: skip
            rows.append(
                {
                    "command": f"pip install '.{extra}'" if extra else "pip install .",
                    "seconds": round(time.perf_counter() - begun, 1),
                    "megabytes": round(megabytes(place) - before, 1),
                }
            )
            print(rows[-1], file=sys.stderr)
    OUT.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
