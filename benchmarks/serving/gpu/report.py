"""The results file of vLLM's engine on a GPU: a section for each program, which the next run of the
program goes on with.
"""

from __future__ import annotations

import json
import subprocess
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .jobs import Line

Section = dict[str, Any]
UNFINISHED = 75  # EX_TEMPFAIL: call again
SAME = ("commit", "gpu", "shape")  # else earlier lines are of something else, and go
QUERY = "clocks.sm,clocks.mem,clocks.max.sm,power.limit"


def versions() -> dict[str, str]:
    found = {}
    for name in ("vllm", "torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def clocks() -> dict[str, str]:
    """Return MHz and W, as the driver tells them now."""
    try:
        told = subprocess.run(
            ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (FileNotFoundError, subprocess.CalledProcessError):
        return {}
    values = told.splitlines()[0].split(", ")
    return dict(zip(QUERY.split(","), values, strict=True))


def about(commit: str | None, **more: Any) -> dict[str, Any]:
    """Return the GPU, its clocks and driver, the versions, the commit, and what a program adds."""
    import torch

    from ...about import about_run

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    said = about_run(device, {}, commit)
    del said["ceilings"]
    return {**said, "clocks": clocks(), "versions": versions(), **more}


class Report:
    """Written anew whenever a line comes, from any thread.

    Args:
        name: of the section. keys: of a line, by which it replaces an earlier one.
    """

    def __init__(self, file: Path, name: str, keys: tuple[str, ...], meta: dict[str, Any]) -> None:
        self._file, self._name, self._keys = file, name, keys
        self._lock = threading.Lock()
        self._meta, self._more = meta, dict[str, Any]()
        before = self._sections().get(name, {})
        same = all(before.get("meta", {}).get(x) == meta.get(x) for x in SAME)
        self._lines = {self.key(x): x for x in before.get("rows", [])} if same else {}

    def key(self, line: Line) -> tuple[Any, ...]:
        return tuple(line[x] for x in self._keys)

    def _sections(self) -> dict[str, Section]:
        return json.loads(self._file.read_text()) if self._file.is_file() else {}

    def done(self, line: Line) -> bool:
        """Tell whether a line is there, without an error."""
        return "error" not in self._lines.get(self.key(line), {"error": ""})

    @property
    def lines(self) -> list[Line]:
        with self._lock:
            return list(self._lines.values())

    def note(self, line: Line) -> None:
        with self._lock:
            self._lines[self.key(line)] = line
            self._write()

    def add(self, **more: Any) -> None:
        """Beside the lines."""
        with self._lock:
            self._more |= more
            self._write()

    def _write(self) -> None:
        section = {"meta": self._meta, **self._more, "rows": list(self._lines.values())}
        whole = {**self._sections(), self._name: section}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(whole, indent=1) + "\n")
        part.replace(self._file)
