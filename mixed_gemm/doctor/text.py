"""A diagnosis on one screen."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from .. import _library
from .devices import Device
from .diagnosis import Diagnosis
from .packages import REQUIRED, TESTED_TORCH, Found
from .products import Product

WIDTH = 100  # columns
NAMES = 13  # columns for the names of rows, or as many as the longest has
REPORT = (
    "this screen (--json has more); the shortest program or command that shows it, with the whole "
    "error; for a wrong or slow kernel what mixed_gemm.plan(...) prints. What others may not see "
    "goes the way of SECURITY.md."
)

Row = tuple[str, str]


def compute_capabilities(archs: str) -> str:
    """Turn "80,90+PTX" into "8.0, 9.0+PTX"."""
    return re.sub(r"(\d)\b", r".\1", archs.replace(",", ", ")).replace("+.", "+") or "none"


def machine_code(found: Diagnosis) -> str:
    build = found.environment.build
    if not build:
        return "unknown, since the library is not loaded"
    if not build.get("cuda"):
        return "CPU; no CUDA kernels in this build"
    return f"CPU; CUDA {compute_capabilities(str(build['cuda_archs']))}"


def version_of(found: Found) -> str:
    """Return "peft 0.21.2 (tested)", or the version that the tests are run with."""
    tested = found.package.tested
    if not tested and found.package in REQUIRED:
        return f"{found.package.name} {found.version}"
    how = "tested" if not found.untested else f"tested: {tested}" if tested else "in no test"
    return f"{found.package.name} {found.version} ({how})"


def products_on(device: Device, products: Iterable[Product]) -> str:
    """Tell how many ops are right there, and how near the worst is to its bound."""
    ran = [x for x in products if x.device == device.name and x.skipped is None]
    right = [x for x in ran if x.ok]
    worst = max((x.error_over_bound or 0.0 for x in right), default=0.0)
    seconds = sum(x.seconds for x in ran)
    return (
        f"{len(right)} of {len(ran)} checks right, {seconds:.1f} s; largest error {worst:.2f} of "
        "what rounding may do"
    )


def rows_of_machine(found: Diagnosis) -> Iterator[Row]:
    report = found.environment
    tested = "tested" if found.torch_tested else f"tested: {', '.join(TESTED_TORCH)}"
    yield "library", report.library or "not loaded"
    yield "machine code", machine_code(found)
    if not report.error:
        yield "gradients", f"recorded in {'C++' if _library.has_autograd else 'Python'}"
    yield "torch", f"{report.torch} ({tested}), CUDA {report.torch_cuda or 'none'}"
    yield "python", f"{report.python}, {report.system}"
    instructions = report.build.get("cpu_instruction_set", "unknown instruction set")
    yield "CPU", f"{instructions}, threads: {report.threads}"
    yield "driver", found.driver or "none of NVIDIA"
    for line in report.gpus:
        name, _, text = line.partition(" ")
        yield name, text


def rows_of_products(found: Diagnosis) -> Iterator[Row]:
    """List the answer of each device, and the kernels that GPUs of one kind take, once."""
    shown: list[dict[str, str]] = []
    for device in found.devices:
        if device.name not in found.kernels:
            continue
        yield f"ops on {device.name}", products_on(device, found.products)
        families = found.kernels[device.name]
        if device.name != "cpu" and families not in shown:
            shown.append(families)
            for problem, names in families.items():
                yield "", f"{problem}: {names}"


def rows_of_rest(found: Diagnosis) -> Iterator[Row]:
    """List the products that do not run, and why."""
    if found.no_gpu:
        yield "GPU", found.no_gpu
    for device in found.devices:
        if device.refusal:
            yield device.name, device.refusal
        for problem, reason in found.refused.get(device.name, {}).items():
            yield device.name, f"{problem}: {reason}"
    for package in found.packages:
        if package.problem:
            yield package.package.name, f"{package.problem} (for: {package.package.purpose})"


def section(title: str, rows: Iterable[Row]) -> Iterator[str]:
    listed = list(rows)
    if listed:
        yield ""
        yield title
    indent = 3 + max([NAMES, *(len(name) for name, _ in listed)])
    for name, text in listed:
        lines = textwrap.wrap(text, WIDTH - indent, break_long_words=False) or [""]
        yield f"  {name}".ljust(indent) + lines[0]
        yield from (" " * indent + line for line in lines[1:])


def text(found: Diagnosis) -> str:
    """Write the diagnosis in at most 100 columns, but for names of files that are longer."""
    faults = f"faults: {len(found.faults)}, at the end"
    verdict = "all that can run here is right" if found.ok else faults
    here = ", ".join(version_of(x) for x in found.packages if x.version and not x.problem)
    lines = [f"mixed_gemm {found.environment.mixed_gemm}: {verdict}"]
    lines += section("Here", rows_of_machine(found))
    lines += section("Packages", [("", here)])
    lines += section("Multiplied, and compared with float64", rows_of_products(found))
    lines += section("Does not run here", rows_of_rest(found))
    lines += section("A report holds", [("", REPORT)])
    lines += section("Faults", [("", fault) for fault in found.faults])
    return "\n".join(lines)
