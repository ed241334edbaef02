"""The command ``mixed-gemm``. Importing this package needs nothing; running it needs the extra
``cli`` (typer, rich and tqdm).

The folder is installed twice. As ``mixed_gemm_cli`` it is what ``mixed-gemm`` runs: Python imports
the parents of a package first, and ``mixed_gemm`` imports torch, which takes seconds. So help,
``--version`` and wrong usage are answered at once, as long as modules of this folder import torch,
mixed_gemm and rich inside of functions only, and name mixed_gemm in full: it is not their parent.
As ``mixed_gemm.cli`` it serves ``python -m mixed_gemm.cli``, which waits for torch; after an
install ``python -m mixed_gemm_cli`` is the command that does not.

Exit status: 0 done, 1 it failed (the reason is on stderr), 2 the command line is wrong. With
``--json`` stdout holds one JSON object and nothing else.
"""

from __future__ import annotations

import importlib.util
import sys

REQUIRED = ("typer", "rich")


def main() -> None:
    """Entry point of ``mixed-gemm`` and of ``python -m mixed_gemm.cli``."""
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"mixed-gemm needs {' and '.join(missing)}, which the package leaves out unless asked. "
            "Hint: pip install 'mixed-gemm[cli]', or pip install typer rich"
        )
    from .app import app

    app(prog_name="mixed-gemm")
