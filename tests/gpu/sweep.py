"""Random calls of every op against float64: free choice and forced configurations; and pairs of
problems that differ in one thing, one after the other in one thread, for everything that remembers.

    python tests/gpu/sweep.py --count 20000 --processes 10 --out sweep.json
    python tests/gpu/sweep.py --pairs --count 20000 --out pairs.json
    python tests/gpu/sweep.py --case "Case(m=1, k=77, ...)" --config wgmma_m16n128s6     # one again
    python tests/gpu/sweep.py --device cpu --count 2000

``--count`` is of problems. A problem is drawn from (seed, index) alone, so every one can be had
again by its index, or by its repr. Exit status 1 if anything was wrong. Not a pytest file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from problems import registry
from problems.placing import poison_free_memory
from run_info import meta, write, write_part

WEIGHTS = {
    "fpA_intB_gemm": 34,
    "fpA_fpB_gemm": 14,
    "grouped_fpA_intB_gemm": 14,
    "grouped_fpA_fpB_gemm": 8,
    "scaled_mm": 14,
    "qconv2d": 15,
    "qconv2d_int8": 7,
    "block_quant_gemm": 10,
    "awq": 8,
    "dequantize_weights": 4,
    "dequantize_codes": 2,
    "scaled_mm_dynamic": 4,
    "quantize": 3,
    "pack_weights": 2,
    "pack_codes": 1,
    "pack_conv_weights": 1,
    "repack": 2,
}
REMEMBERING = ("fpA_intB_gemm", "fpA_fpB_gemm", "scaled_mm", "scaled_mm_dynamic", "qconv2d",
               "qconv2d_int8", "block_quant_gemm", "awq")  # fmt: skip
CONFIGS_A_PROBLEM = 4
LARGE_EVERY = 40  # problems; the rest are small
SILENCE_S = 90  # a worker that says nothing for so long hangs
SUSPECTS = 12  # problems that a dead worker may have been at: more than are ever unanswered
Check = dict[str, Any]  # op, config, case, index; then ratio or error


STICKY = ("CUDA error", "CUBLAS", "cudaError", "illegal", "misaligned address", "launch failure")


def broke_the_device(error: Exception) -> bool:
    """Whether no call of this process can succeed any more."""
    return any(text in str(error) for text in STICKY)


class Judge:
    """Runs checks, and reads many of their ratios back at once."""

    def __init__(self, device: str, at_once: int) -> None:
        self.device, self.at_once = device, at_once
        self.waiting: list[Check] = []
        self.ratios: list[torch.Tensor] = []
        self.done: list[Check] = []

    def check(self, problem: Any, config: str | None, note: Check) -> None:
        try:
            out = problem.run() if config is None else problem.run(config=config)
            self.add(problem, out, config, note)
        except Exception as error:
            if broke_the_device(error):
                raise
            self.done.append({**note, "error": f"{type(error).__name__}: {error}"[:500]})

    def add(self, problem: Any, out: Any, config: str | None, note: Check) -> None:
        self.ratios.append(problem.verdict(out, config))
        self.waiting.append(note)
        if len(self.waiting) >= self.at_once:
            self.read()

    def read(self) -> None:
        if not self.waiting:
            return
        for note, ratio in zip(self.waiting, torch.stack(self.ratios).tolist(), strict=True):
            self.done.append({**note, "ratio": ratio})
        self.waiting, self.ratios = [], []


def problem_at(args: argparse.Namespace, index: int) -> tuple[random.Random, str, int]:
    """The source of all that problem ``index`` is, its op and the most it may cost."""
    rng = random.Random(f"{args.seed}-{index}")
    ops = [op for op in args.ops if not args.pairs or op in REMEMBERING]
    op = rng.choices(ops, [WEIGHTS[name] for name in ops])[0]
    large = not args.pairs and index % LARGE_EVERY == 0
    return rng, op, 1 << (args.most_log2 + 5 * large)


def run_one(args: argparse.Namespace, index: int, judge: Judge) -> None:
    """Free choice, and some of the configurations."""
    rng, name, most = problem_at(args, index)
    case = registry.OPS[name].draw(rng, most)
    note: Check = {"op": registry.label(case), "config": "free", "case": repr(case), "index": index}
    problem = registry.make(case, args.device, args.device)
    poison_free_memory(args.device, (1 << 16, 1 << 20, 1 << 22))
    judge.check(problem, None, note)
    if args.device != "cpu" and name in registry.FORCED:
        configs = problem.configs()
        for config in rng.sample(configs, min(CONFIGS_A_PROBLEM, len(configs))):
            poison_free_memory(args.device, (1 << 20,))
            judge.check(problem, config, {**note, "config": config})


def run_pairs(args: argparse.Namespace, index: int, judge: Judge) -> None:
    """A problem, another that differs in one factor, and the first one again."""
    rng, name, most = problem_at(args, index)
    op = registry.OPS[name]
    row = op.draw_row(rng, most)
    first = registry.make(op.of(row), args.device, args.device)
    for other_row, factor in op.neighbours(row, rng):
        other_case = op.of(other_row)
        if op.cost(other_case) > most:
            continue
        other = registry.make(other_case, args.device, args.device)
        config = f"pair:{factor}"
        note: Check = {"op": registry.label(other_case), "config": config, "index": index}
        there = {**note, "case": repr(other.case), "after": repr(first.case)}
        back = {**note, "case": repr(first.case), "after": repr(other.case)}
        try:  # nothing in between
            first.run()
            second_out = other.run()
            third_out = first.run()
        except Exception as error:
            if broke_the_device(error):
                raise
            judge.done.append({**there, "error": f"{type(error).__name__}: {error}"[:500]})
            continue
        judge.add(other, second_out, None, there)
        judge.add(first, third_out, None, back)


def work(args: argparse.Namespace, indices: list[int], at_once: int, out: Connection) -> None:
    """Sends (index, checks done by then); ends with (None, ...), or without where it dies."""
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    judge = Judge(args.device, at_once)
    run = run_pairs if args.pairs else run_one
    unanswered = 0
    for index in indices:
        run(args, index, judge)
        unanswered += 1
        if len(judge.waiting) > at_once // 2 or unanswered == SUSPECTS // 2:
            judge.read()
            out.send((index, judge.done))
            judge.done, unanswered = [], 0
    judge.read()
    out.send((None, judge.done))


class Worker:
    """A process, and which problems it has not answered for."""

    def __init__(self, args: argparse.Namespace, indices: list[int], at_once: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.receive, send = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(args, indices, at_once, send))
        self.process.start()
        send.close()
        self.left, self.finished, self.heard = indices, False, time.monotonic()

    def read(self) -> list[Check]:
        """Raises EOFError when the process died."""
        index, checks = self.receive.recv()
        self.heard = time.monotonic()
        if index is None:
            self.finished, self.left = True, []
        else:
            self.left = self.left[self.left.index(index) + 1 :]
        return checks

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def alone(args: argparse.Namespace, indices: list[int]) -> Iterator[list[Check]]:
    """Each problem in a process of its own, every call waited for."""
    for index, worker in [(index, Worker(args, [index], 1)) for index in indices]:
        what = "died"
        try:
            while not worker.finished:
                if not worker.receive.poll(SILENCE_S):
                    what = f"was silent for {SILENCE_S} s"
                    break
                yield worker.read()
        except EOFError:
            pass
        worker.stop()
        if not worker.finished:
            rng, name, most = problem_at(args, index)
            case = "pairs" if args.pairs else repr(registry.OPS[name].draw(rng, most))
            note = {"op": name, "config": "?", "case": case, "index": index}
            yield [{**note, "error": f"the process {what}"}]


def sweep(args: argparse.Namespace) -> Iterator[list[Check]]:
    """All checks, as workers send them. What a dead or silent worker left open is run again, the
    first problems each in a process of its own."""
    shares = [list(range(i, args.count, args.processes)) for i in range(args.processes)]
    workers = [Worker(args, share, args.at_once) for share in shares if share]
    until = time.monotonic() + args.seconds
    while workers and time.monotonic() < until:
        wait([w.receive for w in workers], timeout=1)
        for worker in list(workers):
            dead = time.monotonic() - worker.heard > SILENCE_S
            try:
                while not worker.finished and worker.receive.poll():
                    yield worker.read()
            except EOFError:
                dead = True
            if not worker.finished and not dead:
                continue
            worker.stop()
            workers.remove(worker)
            if dead:
                suspects, rest = worker.left[:SUSPECTS], worker.left[SUSPECTS:]
                yield from alone(args, suspects)
                if rest:
                    workers.append(Worker(args, rest, args.at_once))
    for worker in workers:
        worker.stop()


def summary(args: argparse.Namespace) -> dict[str, Any]:
    start, problems, calls = time.monotonic(), set(), 0
    by_op: dict[str, dict[str, dict[str, Any]]] = {}
    failures: list[Check] = []
    for checks in sweep(args):
        for check in checks:
            calls += 1
            problems.add(check["index"])
            ratio = check.get("ratio", float("inf"))
            wrong = not ratio <= 1
            if wrong:
                failures.append(check)
            entry = by_op.setdefault(check["op"], {}).setdefault(
                check["config"], {"calls": 0, "wrong": 0, "worst": 0.0, "worst_case": ""}
            )
            entry["calls"] += 1
            entry["wrong"] += wrong
            if ratio != float("inf") and not ratio <= entry["worst"]:
                entry["worst"], entry["worst_case"] = ratio, check["case"]
    seconds = time.monotonic() - start
    return {
        "meta": {
            **meta(args.device),
            "seed": args.seed,
            "mode": "pairs" if args.pairs else "sweep",
            "problems": len(problems),
            "asked": args.count,
            "calls": calls,
            "wrong": len(failures),
            "seconds": round(seconds, 1),
        },
        "ops": {op: dict(sorted(entries.items())) for op, entries in sorted(by_op.items())},
        "failures": failures[:500],
    }


def rows_of(ops: dict[str, dict[str, dict[str, Any]]], mode: str) -> Iterator[dict[str, Any]]:
    """By op: free choice apart from forced configurations, pairs as one."""
    for op, entries in ops.items():
        for kind in ("free", "forced") if mode == "sweep" else ("one after another",):
            of_kind = [e for name, e in entries.items() if mode != "sweep" or
                       (name == "free") == (kind == "free")]  # fmt: skip
            count = sum(e["calls"] for e in of_kind)
            if count:
                failed = sum(e["wrong"] for e in of_kind)
                yield {"name": f"{op}, {kind}", "count": count, "failed": failed}


def run_case(args: argparse.Namespace) -> int:
    case = eval(args.case, registry.names())
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    problem = registry.make(case, args.device, args.device)
    poison_free_memory(args.device)
    out = problem.run() if args.config is None else problem.run(config=args.config)
    ratio = float(problem.verdict(out, args.config))
    print(f"{ratio:.4g} of the bound: {case!r} {args.config or 'free choice'}")
    return 0 if ratio <= 1 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20000, help="problems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ops", nargs="+", default=list(WEIGHTS), choices=list(WEIGHTS))
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--most-log2", type=int, default=22, help="multiplications of a problem")
    parser.add_argument("--at-once", type=int, default=32, help="results read back at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--case", help="the repr of one case, to run it alone")
    parser.add_argument("--config", help="with --case: the configuration")
    parser.add_argument("--label", default="", help="of the library, in the table of all parts")
    parser.add_argument("--out", help="JSON")
    args = parser.parse_args()
    if args.case:
        return run_case(args)
    report = summary(args)
    print(report["meta"])
    for failure in report["failures"][:20]:
        print(failure)
    if args.out:
        write(args.out, report)
    mode = report["meta"]["mode"]
    rows = list(rows_of(report["ops"], mode))
    if args.label:
        rows = [{**row, "name": f"{row['name']}, {args.label}"} for row in rows]
    write_part("sweep", args.label or mode, args.device, rows)
    return 1 if report["failures"] or report["meta"]["problems"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
