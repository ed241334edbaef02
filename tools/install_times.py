"""Measures how long installing takes, into benchmarks/results/.

    python tools/install_times.py
        install_cpu.json: this tree, without and with its extras, each into a copy of an environment
        with torch for CPUs
    python tools/install_times.py wheel WHEEL [--torch VERSION@PYTHON]...
        wheel_install.json: a wheel (make wheel) into an empty environment with each torch, up to
        the first products that are right (tools/first_product.py); without --torch the oldest and
        the newest (tools/matrix.py), and that of tools/setup_env.sh
    python tools/install_times.py wheel WHEEL --here
        wheel_install_gpu.json: the same with the torch of the Python that runs this and without a
        network, for a GPU machine where the wheel and this tree were carried

Runs for some minutes, with an index that pip can reach unless --here. Exit status 1 where a product
is wrong, the small library for that torch did not load, or all of it takes longer than a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path
from typing import Any

import matrix
from matrix_environment import NotHere

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
EXTRAS = ("", "[hf]", "[cli]", "[hf,cli]")
TORCH = "torch==2.13.0+cpu"  # as tools/setup_env.sh installs it
MOST_SECONDS = 60
FIRST_PRODUCT = ROOT / "tools" / "first_product.py"


def megabytes(folder: Path) -> float:
    return sum(x.stat().st_size for x in folder.rglob("*") if x.is_file()) / 1e6


def pip(python: str, *arguments: str, **variables: str) -> float:
    """Seconds. By the pip of the Python that runs this, where that one has none of its own."""
    has_pip = any(Path(python).parent.glob("pip*"))
    whose = [python, "-m", "pip"] if has_pip else [sys.executable, "-m", "pip", "--python", python]
    command = [*whose, "install", "--quiet", *arguments]
    begun = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, **variables})
    return round(time.perf_counter() - begun, 1)


# --- a source tree -------------------------------------------------------------------------------


def install_tree() -> int:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for extra in EXTRAS:
            place = Path(scratch) / "env"
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, with_pip=True)
            python = str(place / "bin" / "python")
            pip(python, TORCH)
            before = megabytes(place)
            seconds = pip(python, f"{ROOT}{extra}", CCACHE_DISABLE="1")
            rows.append(
                {
                    "command": f"pip install '.{extra}'" if extra else "pip install .",
                    "seconds": seconds,
                    "megabytes": round(megabytes(place) - before, 1),
                }
            )
            print(rows[-1], file=sys.stderr)
    report = {"cores": os.cpu_count(), "rows": rows}
    (RESULTS / "install_cpu.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


# --- a wheel -------------------------------------------------------------------------------------


def environment(place: Path, base: Path, *options: str) -> str:
    """Make an empty environment; return its Python."""
    subprocess.run([base, "-m", "venv", *options, place], check=True)
    return str(place / "bin" / "python")


def install_torch(python: str, version: str) -> float:
    """Install the CPU build of torch where an index with it is reached, else PyPI's, which brings
    CUDA."""
    elsewhere = ("--extra-index-url", matrix.CPU_INDEX, "--timeout", "15", "--retries", "1")
    try:
        return pip(python, f"torch=={version}+cpu", *elsewhere)
    except subprocess.CalledProcessError:
        return pip(python, f"torch=={version}")


def lend_torch(place: Path) -> None:
    """The torch of the Python that runs this, by a path file."""
    import torch

    (site,) = place.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")


def measured(place: Path, python: str, wheel: Path, *options: str) -> dict[str, Any]:
    """Install the wheel, and run the first products in an empty folder."""
    before = megabytes(place)
    seconds = pip(python, str(wheel), *options)
    begun = time.perf_counter()
    said = subprocess.run(
        [python, str(FIRST_PRODUCT)],
        cwd=place, env={**os.environ, "PYTHONPATH": "", "MIXED_GEMM_LIBRARY": ""},
        check=True, text=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    product = round(time.perf_counter() - begun, 1)
    row: dict[str, Any] = json.loads(said)
    return {
        **row,
        "megabytes": round(megabytes(place) - before, 1),
        "install_seconds": seconds,
        "product_seconds": product,
    }


def contents(wheel: Path) -> dict[str, Any]:
    """Return bytes of the archive, and of its libraries as they are stored and as they are."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = {
            one.filename.rpartition("/")[2]: {"packed": one.compress_size, "bytes": one.file_size}
            for one in archive.infolist()
            if one.filename.endswith(".so")
        }
    return {"name": wheel.name, "bytes": wheel.stat().st_size, "libraries": libraries}


def asked(torches: list[str]) -> list[tuple[str, str]]:
    """Return (version of torch, of Python) of each environment."""
    if torches:
        return [(version, python) for version, _, python in (x.partition("@") for x in torches)]
    own = TORCH.removeprefix("torch==").partition("+")[0]
    rows = [(cell.torch, here(cell.pythons)) for cell in matrix.CELLS]
    return [*rows, (own, f"{sys.version_info.major}.{sys.version_info.minor}")]


def here(pythons: tuple[str, ...]) -> str:
    """Return the first Python that this machine has."""
    for version in pythons:
        try:
            matrix.find_python(version)
        except NotHere:
            continue
        return version
    raise SystemExit(f"none of Python {', '.join(pythons)} is here")


def install_wheel(wheel: Path, torches: list[str], offline: bool) -> int:
    rows: list[dict[str, Any]] = []
    for version, number in [("", "")] if offline else asked(torches):
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch) / "env"
            base = matrix.find_python(number) if number else Path(sys.executable)
            if offline:  # where ensurepip may be missing
                python = environment(place, base, "--without-pip")
                lend_torch(place)
                row = measured(place, python, wheel, "--no-deps", "--no-index")
            else:
                python = environment(place, base)
                seconds = install_torch(python, version)
                row = {**measured(place, python, wheel), "torch_seconds": seconds}
        rows.append(row)
        print(row, file=sys.stderr)
    report = {"cores": os.cpu_count(), "wheel": contents(wheel), "rows": rows}
    out = RESULTS / ("wheel_install_gpu.json" if offline else "wheel_install.json")
    out.write_text(json.dumps(report, indent=1) + "\n")
    slow = [r for r in rows if r["install_seconds"] + r["product_seconds"] > MOST_SECONDS]
    wrong = [r for r in rows if not all(r["products"].values()) or not r["has_autograd"]]
    for row in wrong:
        print(f"torch {row['torch']}: wrong, or without its small library", file=sys.stderr)
    for row in slow:
        print(f"torch {row['torch']}: longer than {MOST_SECONDS} s", file=sys.stderr)
    return int(bool(slow or wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("wheel",))
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--torch", action="append", default=[], metavar="VERSION@PYTHON")
    parser.add_argument("--here", action="store_true")
    arguments = parser.parse_args()
    if not arguments.what:
        return install_tree()
    if arguments.wheel is None:
        parser.error("which wheel?")
    return install_wheel(arguments.wheel.resolve(), arguments.torch, arguments.here)


if __name__ == "__main__":
    sys.exit(main())
