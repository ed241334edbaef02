"""What a results file says of the machine and the run that made it."""

from __future__ import annotations

import datetime
import subprocess
from typing import Any

import torch


def about_run(ceilings: dict[str, float], commit: str | None) -> dict[str, Any]:
    """`commit`: where there is no git to ask."""

    def output(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    driver = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver.splitlines()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": commit or output("git", "rev-parse", "HEAD") or "unknown",
        "date": datetime.date.today().isoformat(),
        "ceilings": ceilings,
    }
