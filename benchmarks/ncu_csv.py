"""Condenses what `ncu --csv --page raw` writes: per kernel the numbers that tell what limits it.
profile_gemm.py collects them. Imports no torch."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Column -> the counters that may hold it (names differ between GPUs and ncu versions); the largest
# one counts: the mma.sync and the wgmma pipe are one unit under two names.
COLUMNS: dict[str, tuple[str, ...]] = {
    "us": ("gpu__time_duration.sum",),
    "dram_pct": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_pct": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "l1_pct": ("l1tex__throughput.avg.pct_of_peak_sustained_active",),
    "tensor_pct": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    ),
    "alu_pct": ("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",),
    "fma_pct": (
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active",
    ),
    "lsu_pct": ("sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",),
    "issue_pct": (
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
    ),
    "occupancy_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "registers": ("launch__registers_per_thread",),
    "waves": ("launch__waves_per_multiprocessor",),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "shared_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "shared_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "l1_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu.sum",),
    "instructions": ("smsp__inst_executed.sum", "sm__inst_executed.sum"),
}
# These warps wait while one issues. Neither the one that does ("selected") nor the counters of
# cycles in which nothing issues, which these contain, is among them.
STALL = re.compile(
    r"smsp__average_warps_issue_stalled_(?P<reason>(?!selected_|\w*_not_issued_)\w+)"
    r"_per_issue_active(\.ratio)?$"
)
TO_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
TO_US |= {"s": 1e6, "second": 1e6}


def counters_of(query: str) -> list[str]:
    """Select the counters above that a GPU has, from what `ncu --query-metrics` prints: ncu
    refuses a run that names another one."""
    known = {line.split()[0] for line in query.splitlines() if line.strip()}
    wanted = (name for names in COLUMNS.values() for name in names)
    stalls = sorted(f"{name}.ratio" for name in known if STALL.match(name))
    return [name for name in wanted if name.split(".")[0] in known] + stalls


@dataclass(frozen=True)
class Profile:
    """One launch of one kernel.

    Attributes:
        kernel: its name without namespaces and template arguments.
        numbers: column of COLUMNS -> value; what this ncu did not collect is missing.
        stalls: reason -> warps that wait for it while one issues (cycles an instruction), most
            first.
    """

    kernel: str
    numbers: dict[str, float]
    stalls: dict[str, float]


def short_name(kernel: str) -> str:
    """Turn `void a::b<c>::kernel<d>(e)` into `kernel`."""
    kernel = kernel.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    depth, plain = 0, ""
    for letter in kernel.split("(")[0]:
        depth += {"<": 1, ">": -1}.get(letter, 0)
        plain += letter if depth == 0 and letter != ">" else ""
    return plain.split("::")[-1].split(" ")[-1]


def parse(text: str) -> list[Profile]:
    """Return the launches in `text`, in their order. Reads a column for each counter ("wide", units
    in the second line) and a line for each counter ("long"), as versions of ncu differ.

    Raises:
        ValueError: there is no table in the text.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise ValueError(f"no table of ncu in: {text[-2000:]}")
    header, *rows = (row for row in csv.reader(lines[start:]) if row and not row[0].startswith("="))
    rows = [row for row in rows if len(row) == len(header)]
    launches = _long(header, rows) if "Metric Name" in header else _wide(header, rows)
    return [_profile(name, counters) for name, counters in launches]


Launches = Iterator[tuple[str, dict[str, float]]]


def _wide(header: list[str], rows: list[list[str]]) -> Launches:
    units = dict(zip(header, rows[0], strict=True))
    for row in rows[1:]:
        cells = dict(zip(header, row, strict=True))
        numbers = {name: _number(cell, units[name]) for name, cell in cells.items()}
        yield cells["Kernel Name"], {name: x for name, x in numbers.items() if x is not None}


def _long(header: list[str], rows: list[list[str]]) -> Launches:
    found: dict[str, tuple[str, dict[str, float]]] = {}
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        _, counters = found.setdefault(cells["ID"], (cells["Kernel Name"], {}))
        value = _number(cells["Metric Value"], cells["Metric Unit"])
        if value is not None:
            counters[cells["Metric Name"]] = value
    yield from found.values()


def _number(cell: str, unit: str) -> float | None:
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    return value * TO_US.get(unit, 1.0)


def _profile(kernel: str, counters: Mapping[str, float]) -> Profile:
    numbers = {}
    for column, names in COLUMNS.items():
        values = [counters[name] for name in names if name in counters]
        if values:
            numbers[column] = max(values)
    stalls = {
        match["reason"]: value for name, value in counters.items() if (match := STALL.match(name))
    }
    by_size = dict(sorted(stalls.items(), key=lambda item: -item[1]))
    return Profile(short_name(kernel), numbers, by_size)


def by_marker(profiles: list[Profile], marker: str) -> list[list[Profile]]:
    """Return the launches between two of the kernel `marker`, and after the last one."""
    segments: list[list[Profile]] = []
    for profile in profiles:
        if profile.kernel == marker:
            segments.append([])
        elif segments:
            segments[-1].append(profile)
    return segments


# Return title -> column, format.
TABLE = {
    "us": ("us", "{:.1f}"),
    "DRAM %": ("dram_pct", "{:.0f}"),
    "L2 %": ("l2_pct", "{:.0f}"),
    "L1 %": ("l1_pct", "{:.0f}"),
    "tensor %": ("tensor_pct", "{:.0f}"),
    "ALU %": ("alu_pct", "{:.0f}"),
    "FMA %": ("fma_pct", "{:.0f}"),
    "issue %": ("issue_pct", "{:.0f}"),
    "warps %": ("occupancy_pct", "{:.0f}"),
    "registers": ("registers", "{:.0f}"),
    "waves": ("waves", "{:.2f}"),
}


def table_rows(point: str, profiles: list[Profile]) -> list[list[str]]:
    """Return cells of a table for notes/: title_cells() names them."""
    return [
        [
            point,
            p.kernel,
            *(f.format(p.numbers[c]) if c in p.numbers else "-" for c, f in TABLE.values()),
            _conflicts(p.numbers),
            ", ".join(f"{reason} {cycles:.1f}" for reason, cycles in list(p.stalls.items())[:3]),
        ]
        for p in profiles
    ]


def title_cells() -> list[str]:
    return ["point", "kernel", *TABLE, "shared conflicts", "stalls (cycles an instruction)"]


def _conflicts(numbers: Mapping[str, float]) -> str:
    """Return wavefronts lost to bank conflicts, of all of shared memory."""
    if "shared_conflicts" not in numbers or not numbers.get("shared_wavefronts"):
        return "-"
    return f"{numbers['shared_conflicts'] / numbers['shared_wavefronts']:.0%}"
