"""The table of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from . import bench, convert, demo, doctor, env, eval, inspect, output, quantize, tune

app = typer.Typer(
    name="mixed-gemm",
    help="GEMMs with 4- and 8-bit weights for PyTorch: checkpoints, measurements, self-test.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain text: rich's help takes twice as long, 0.1 s more
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, Callable[..., None]] = {
    "quantize": quantize.command,
    "convert": convert.command,
    "inspect": inspect.command,
    "eval": eval.command,
    "doctor": doctor.command,
    "env": env.command,
    "demo": demo.command,
    "bench": bench.command,
    "tune": tune.command,
}
for name, command in COMMANDS.items():
    # A command without a short help of its own shows as much of its text as fits into a line.
    app.command(name, short_help=(command.__doc__ or "").split("\n\n")[0])(command)


def installed_version() -> str:
    """Return what ``mixed_gemm.__version__`` says, without importing it: see __init__.py."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mixed-gemm")
    except PackageNotFoundError:
        return "0+unknown"


def _print_version(wanted: bool) -> None:
    if wanted:
        output.say(installed_version())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="On failure, show where it came from.")
    ] = False,
) -> None:
    output.state["traceback"] = traceback
