"""Scripts of this folder in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def report_of(script: str, *arguments: str | Path, repository: Path) -> Any:
    """Run the script on one thread, and return what it prints as JSON.

    Raises:
        AssertionError: it failed; the text is its standard error.
    """
    done = subprocess.run(
        [sys.executable, script, *arguments],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
