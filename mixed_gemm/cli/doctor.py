"""``mixed-gemm doctor``: what runs here, whether it is right, and why the rest does not run."""

from __future__ import annotations

import typer

from .options import Device, Json, device_text
from .output import print_json, reports_errors, say


@reports_errors
def command(device: Device = "", json: Json = False) -> None:
    """Say what runs here, and multiply with every op to see whether it is right.

    One screen, for a bug report too: library, machine code, driver, GPUs, packages with the
    versions that the tests are run with, a product of every op on every device, compared with
    float64, and why what does not run does not. Fails on a fault; with --device also where no op
    runs on that device.
    """
    only = device_text(device)
    from mixed_gemm.doctor.diagnosis import diagnose
    from mixed_gemm.doctor.text import text

    found = diagnose(only)
    if json:
        print_json(found.as_dict())
    else:
        say(text(found))
    if not found.ok:
        raise typer.Exit(1)
