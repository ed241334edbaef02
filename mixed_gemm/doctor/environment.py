"""The environment: versions that are installed and hardware; ``mixed_gemm.env()``."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from typing import Any

import torch

from .. import _library
from ..ops.problem import LAYOUT_VERSION


@dataclass(frozen=True)
class EnvReport:
    """Versions and hardware.

    Attributes:
        mixed_gemm, torch, python, system: versions.
        torch_cuda: the CUDA version torch was built with, or None.
        gpus: one line per visible GPU: name, sm, multiprocessors, memory.
        threads: what torch.get_num_threads() says; the CPU kernels use as many.
        library: path of libmixed_gemm.so, or None.
        error: why it did not load, or None.
        layout_version: of the packed weight, as this Python package writes it.
        build: what the library says of itself (instruction set, CUDA, compiled architectures).
    """

    mixed_gemm: str
    torch: str
    torch_cuda: str | None
    python: str
    system: str
    gpus: tuple[str, ...]
    threads: int
    library: str | None
    error: str | None
    layout_version: int
    build: dict[str, Any]

    def __str__(self) -> str:
        rows: dict[str, Any] = {
            "mixed_gemm": self.mixed_gemm,
            "torch": f"{self.torch} (CUDA {self.torch_cuda or 'no'})",
            "python": self.python,
            "system": self.system,
            "threads": self.threads,
            "gpus": "\n".join(self.gpus) or "none visible",
            "library": self.library or "not loaded",
        }
        if self.error:
            rows["error"] = self.error
        rows["layout version"] = self.layout_version
        for name, value in self.build.items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            rows[f"built: {name}"] = text or "none"
        width = max(map(len, rows))
        indent = "\n" + " " * (width + 2)
        return "\n".join(
            f"{name:<{width}}  {str(value).replace(chr(10), indent)}"
            for name, value in rows.items()
        )


def _gpus() -> tuple[str, ...]:
    if not torch.cuda.is_available():
        return ()
    lines = []
    for index in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(index)
        lines.append(
            f"cuda:{index} {p.name}, sm_{p.major}{p.minor}, {p.multi_processor_count} "
            f"multiprocessors, {p.total_memory / 2**30:.0f} GiB"
        )
    return tuple(lines)


def env() -> EnvReport:
    """Collect the report. Never raises for a library that did not load: the report says why."""
    build = json.loads(torch.ops.mixed_gemm._env()) if _library.available else {}
    path = _library.path or os.environ.get(_library.OVERRIDE)
    if _library.available and path is None:
        path = "loaded before by this process"
    return EnvReport(
        mixed_gemm=_library.package_version(),
        torch=str(torch.__version__),
        torch_cuda=torch.version.cuda,
        python=platform.python_version(),
        system=f"{platform.platform()}, {platform.machine()}",
        gpus=_gpus(),
        threads=torch.get_num_threads(),
        library=str(path) if path else None,
        error=_library.error,
        layout_version=LAYOUT_VERSION,
        build=build,
    )
