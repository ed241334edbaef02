"""vLLM's engine on a GPU with our kernels and with its own: log-probabilities of a small Llama in
every kind of file beside float32 on the CPU.

    python -m benchmarks.serving.gpu_check --out FILE [--seconds 540]

Rows of ``rows.GPU_ROWS`` and the dense model, in two dtypes, vLLM's kernels alone (off) and ours
before them (first), eager and with CUDA graphs. The section "check" of FILE has for each line how
far its log-probabilities lie, of tokens that were decoded and of prompts, and the classes that the
layers hold; "verdicts" says what is wrong. The exit status is 1 then, and 75 where the time was
too short, so that the next call with the same FILE goes on. Logs of engines lie in WORK/logs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .gpu import engines, questions
from .gpu.distances import Said, compare, reference_of
from .gpu.jobs import Job, Line, Point, carry_out, file_name
from .gpu.options import DTYPES, options, section
from .gpu.report import UNFINISHED, Report, about
from .gpu.verdict import DENSE, PARTS, verdicts
from .mixtures import mixture_folder
from .models import SMALL, WIDER, random_folder, write
from .rows import GPU_ROWS, Row

KEYS = ("row", "dtype", "place", "mode")
THREADS = 2
# An engine's ranks meet at a port. Two engines that ask the system for a free one at a time can
# get the same, so each process has its own, below those that the system gives.
FIRST_PORT, PORTS = 20000, 100


# --- models --------------------------------------------------------------------------------------


def rows(parts: Iterable[str] = ()) -> list[Row]:
    """The dense model and GPU_ROWS, or those with one of some parts in their names."""
    chosen = list(parts)
    every = (DENSE, *GPU_ROWS)
    return [x for x in every if not chosen or any(part in x.name for part in chosen)]


def at_once(ranks: int = 1) -> int:
    """Return how many engines start at once: one for each core, which it keeps busy with Python."""
    return max(4, (os.cpu_count() or 1) // ranks)


def limit_threads() -> None:
    """For a process that has others beside it."""
    import torch

    torch.set_num_threads(THREADS)


def folder_of(row: Row, folders: Path) -> Path:
    return folders / file_name(row.name)


def write_model(row: Row, folders: Path, config: dict[str, Any] = WIDER) -> Path:
    """The folder of a row, written where it is not there, and whole as soon as it is. Scales have
    the dtype that files of the kind have; both of DTYPES read them."""
    target = folder_of(row, folders)
    if not target.is_dir():
        part = target.with_name(f"{target.name}.part")
        stored = "bfloat16" if row.file == "compressed-tensors" else "float16"
        try:
            if row.name == DENSE.name:
                random_folder(part, config, "bfloat16")
            elif row.mixture:
                wider = config is not SMALL
                mixture_folder(part, row.mixture, stored, row.file, wider, **row.options)
            else:
                write(row, write_model(DENSE, folders, config), part, stored)
            part.rename(target)
        except Exception:
            questions.unwritten(target).touch()  # an engine waits for it
            raise
    return target


# --- engines -------------------------------------------------------------------------------------


def compared(folder: Path, lines: list[Line]) -> list[Line]:
    """Lines of one model with distances in place of what the engine said."""
    reference = reference_of(folder)
    result = []
    for line in lines:
        parts = {
            part: compare([Said(*x) for x in line[part]], reference, part == "decode")
            for part in PARTS
        }
        result.append({**line, **parts})
    return result


def points(given: argparse.Namespace, report: Report) -> list[Point]:
    """The points that are not measured yet, those with graphs first: they start slowest."""
    return [
        point
        for mode in ("graphs", "eager")
        if mode in given.modes
        for row in rows(given.rows)
        for dtype in row.dtypes
        if dtype in given.dtypes and not (row is DENSE and dtype == "float16")
        for place in given.places
        if not report.done(point := {
            "row": row.name, "dtype": dtype, "place": place, "mode": mode,
            "ranks": given.tensor_parallel, "attention": given.attention,
            "folder": str(folder_of(row, given.work / "models")),
        })
    ]  # fmt: skip


def jobs(found: list[Point], work: Path, count: int) -> list[Job]:
    """Deal the points out to ``count`` processes, in which each has a fork of its own."""
    made = []
    for number, some in enumerate(x for x in (found[i::count] for i in range(count)) if x):
        environment = engines.environment(work, f"check-{number}", some[0]["place"], THREADS)
        environment["VLLM_PORT"] = str(FIRST_PORT + PORTS * number)
        module = f"{__package__}.gpu.questions"
        made.append(Job(f"check {number}", module, tuple(some), environment))
    return made


class Check:
    """One run of the check."""

    def __init__(self, given: argparse.Namespace, report: Report) -> None:
        self.given, self.report = given, report
        self.end = time.monotonic() + given.seconds
        self.said: list[Line] = []

    def note(self, line: Line) -> None:
        print(*(line[x] for x in KEYS), line.get("error", "runs"), flush=True)
        if "error" in line:
            self.report.note(self._short(line))
        else:
            self.said.append(line)

    @staticmethod
    def _short(line: Line) -> Line:
        return {k: v for k, v in line.items() if k not in ("folder", "attention")}

    def run(self) -> list[Point]:
        """Run the check, and return the points that there was no time for."""
        folders, todo = self.given.work / "models", points(self.given, self.report)
        chosen = [x for x in rows(self.given.rows) if any(p["row"] == x.name for p in todo)]
        # Distances take a minute behind the last engine.
        seconds = self.end - time.monotonic()
        engines_end = self.end - min(90, 0.2 * seconds)
        made = jobs(todo, self.given.work, self.given.at_once)
        with ThreadPoolExecutor(max(1, len(made))) as pool, self._on_cpu() as writers:
            # They import vLLM while models are written.
            started = [
                pool.submit(carry_out, job, self.given.work, engines_end, self.note) for job in made
            ]
            write_model(DENSE, folders)
            written = {x.name: writers.submit(write_model, x, folders) for x in chosen}
        for ended in started:
            ended.result()
        self._refuse(todo, written)
        print("engines have ended", flush=True)
        with self._on_cpu() as readers:
            read = {
                x.name: readers.submit(compared, folder_of(x, folders), some)
                for x in chosen
                if (some := [line for line in self.said if line["row"] == x.name])
            }
        self._refuse(self.said, read)
        for future in read.values():
            if not future.exception():
                for line in future.result():
                    self.report.note(self._short(line))
        noted = {self.report.key(x) for x in self.report.lines}
        return [x for x in todo if self.report.key(x) not in noted]

    @staticmethod
    def _on_cpu() -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(at_once(THREADS), spawn, limit_threads)

    def _refuse(self, lines: list[Line], of_rows: dict[str, Future[Any]]) -> None:
        """Lines of models that were not written, or not read in float32."""
        for line in lines:
            if error := of_rows[line["row"]].exception():
                point = {k: line[k] for k in (*KEYS, "ranks")}
                self.report.note({**point, "error": f"on the CPU: {error}"})


def arguments() -> argparse.ArgumentParser:
    parser = options(__doc__)
    parser.add_argument("--rows", nargs="*", default=[], help="parts of names; all by default")
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--places", nargs="*", default=list(engines.PLACES), choices=engines.PLACES)
    parser.add_argument("--modes", nargs="*", default=list(engines.MODES), choices=engines.MODES)
    parser.add_argument("--at-once", type=int, help="engines; by default as many as cores for them")
    return parser


def main() -> int:
    given = arguments().parse_args()
    given.at_once = given.at_once or at_once(given.tensor_parallel)
    meta = about(given.commit, tensor_parallel=given.tensor_parallel, attention=given.attention)
    report = Report(given.out, section("check", given.tensor_parallel), KEYS, meta)
    left = Check(given, report).run()
    found = verdicts(report.lines)
    report.add(verdicts=[x.told() for x in found])
    wrong = [x for x in found if x.wrong]
    for verdict in wrong:
        print("WRONG", verdict.told())
    print(f"{len(found)} lines of ours, {len(wrong)} wrong, {len(left)} not measured")
    return 1 if wrong else UNFINISHED if left else 0


if __name__ == "__main__":
    sys.exit(main())
