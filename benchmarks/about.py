"""The part of a results file on the machine and the run that made it."""

from __future__ import annotations

import datetime
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import mixed_gemm


def _output(*command: str) -> str:
    """Run a command, and return what it prints; empty where it is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _gpu(device: torch.device) -> dict[str, Any]:
    driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "gpu": torch.cuda.get_device_name(device),
        "driver": driver.splitlines()[0] if driver else "unknown",
        "cuda": torch.version.cuda,
    }


def _cpu() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "instruction_set": mixed_gemm.env().build["cpu_instruction_set"],
        "torch_instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def about_run(
    device: torch.device, ceilings: Mapping[str, float], commit: str | None = None
) -> dict[str, Any]:
    """Describe the run. ``commit``: where there is no git to ask."""
    return {
        **(_gpu(device) if device.type == "cuda" else _cpu()),
        "torch": torch.__version__,
        "commit": commit or _output("git", "rev-parse", "HEAD") or "unknown",
        "date": datetime.date.today().isoformat(),
        "ceilings": dict(ceilings),
    }
