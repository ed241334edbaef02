"""docs/round_trips.md is what its script finds: every cell of it is run here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

for package in ("transformers", "peft", "accelerate", "compressed_tensors", "typer"):
    pytest.importorskip(package, reason="of the group test in pyproject.toml")


@pytest.mark.slow
def test_every_cell_is_as_the_page_says(repository: Path) -> None:
    script = repository / "tools" / "round_trips.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
