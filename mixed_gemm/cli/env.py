"""``mixed-gemm env``: versions, hardware, and whether the library loads."""

from __future__ import annotations

from dataclasses import asdict

import typer

from .options import Json
from .output import print_json, reports_errors, say


@reports_errors
def command(json: Json = False) -> None:
    """Versions and hardware, as a bug report wants them.

    Fails when the library does not load.
    """
    import mixed_gemm

    report = mixed_gemm.env()
    if json:
        print_json(asdict(report))
    else:
        say(str(report))
    if report.error:
        raise typer.Exit(1)
