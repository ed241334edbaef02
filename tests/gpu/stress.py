"""What a kernel must survive: repeats on two streams, eager and captured; first calls of eight
threads; graphs that outlive each other; memory that runs out; memory that holds wrong locks.

    python tests/gpu/stress.py --out stress.json [--iterations 10000] [--parts repeats threads ...]

Every result must equal the first one bit by bit, and the first one must be right. Exit status 1 if
anything was not. ``--device cpu`` tries what needs no GPU. Not a pytest file.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from problems import placing, registry
from problems.awq import AwqCase
from problems.block import BlockCase
from problems.conv import ConvCase
from problems.conv_int8 import ConvInt8Case
from problems.gemm import Case
from problems.quantize import QuantizeCase
from problems.scaled import ScaledCase
from problems.scaled_dynamic import ScaledDynamicCase
from run_info import meta, write, write_part

F16, BF16 = torch.float16, torch.bfloat16
FLOAT8 = torch.float8_e4m3fn
# Two different problems each, so that two streams never do the same. More k-tiles than stages.
CASES: dict[str, tuple[Any, Any]] = {
    "fpA_intB_gemm": (
        Case(48, 520, 1048, BF16, 4, 128, "sub", bias=True),
        Case(40, 384, 1001, F16, 8, 64, "add", pre_scale=True, activation="silu"),
    ),
    "fpA_intB_gemm, few rows": (
        Case(4, 520, 2080, F16, 4, 64, "sub_real", bias=True),
        Case(9, 384, 1536, BF16, 8, -1, "sub"),
    ),
    "scaled_mm": (
        ScaledCase(48, 520, 2080, F16, azp="per_row", bias=True),
        ScaledCase(100, 384, 1040, BF16, column_scales=False),
    ),
    "scaled_mm of float8": (
        ScaledCase(48, 520, 2080, F16, FLOAT8, bias=True),
        ScaledCase(100, 384, 1040, BF16, FLOAT8, column_scales=False),
    ),
    "scaled_mm of float8 by blocks": (
        ScaledCase(48, 520, 2080, F16, FLOAT8, bias=True, block=(128, 128)),
        ScaledCase(100, 384, 1040, BF16, FLOAT8, block=(128, 128)),
    ),
    "scaled_mm_dynamic": (
        ScaledDynamicCase(48, 520, 2080, F16, azp=True, bias=True),
        ScaledDynamicCase(100, 384, 1040, BF16),
    ),
    "quantize_fp8": (
        QuantizeCase(48, 4100, BF16, "float8_128"),
        QuantizeCase(100, 1040, F16, "float8"),
    ),
    "block_quant_gemm": (
        BlockCase(48, 520, 1040, F16, 128, sums=True),
        BlockCase(33, 384, 1000, BF16, 48),
    ),
    "qconv2d": (
        ConvCase(2, 128, 72, (14, 14), block_size=64, offsets=True, bias=True),
        ConvCase(1, 96, 136, (9, 9), (1, 1), padding=(0, 0), bits=8),
    ),
    "qconv2d_int8": (
        ConvInt8Case(2, 128, 72, (14, 14), bias=True, sums=True),
        ConvInt8Case(1, 65, 136, (9, 9), input_zero_point=37),
    ),
    "awq": (AwqCase("gemm", 40, 520, 1024, 8, F16), AwqCase("gemm", 4, 264, 640, 5, BF16)),
}
MODES = ("none", "streamk", "parallel", "cluster")
CONFIGS_A_MODE = 6
IN_A_GRAPH = 25  # calls a branch
FILLS = (0xFF, 0x01, 0x00, 0x7F)  # what free memory held: NaN and wrong locks, a lock of one, zeros
Failures = list[dict[str, Any]]


def problems_of(device: str) -> dict[str, tuple[Any, Any]]:
    return {
        name: (registry.make(a, device, device), registry.make(b, device, device))
        for name, (a, b) in CASES.items()
    }


def mode_of(config: str | None) -> str:
    return next((m for m in MODES[1:] if config and f"_{m}" in config), "none")


def configs_by_mode(problem: Any) -> dict[str, list[str | None]]:
    """Some of each split mode, spread over the tiles; and the op's own choice."""
    names = problem.configs()
    found: dict[str, list[str | None]] = {}
    for mode in MODES:
        of_mode = [name for name in names if mode_of(name) == mode]
        step = max(1, len(of_mode) // CONFIGS_A_MODE)
        if of_mode:
            found[mode] = list(of_mode[::step])
    found.setdefault("none", []).append(None)
    return found


def tensors(out: Any) -> list[torch.Tensor]:
    """Of one result or several; float8 as bytes, which torch compares and fills everywhere."""
    found = [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None]
    return [x.view(torch.uint8) if x.dtype == FLOAT8 else x for x in found]


def unequal(out: Any, first: Any) -> torch.Tensor:
    """Whether an element differs, on the device."""
    pairs = zip(tensors(out), tensors(first), strict=True)
    return torch.stack([(x != y).any() for x, y in pairs]).any()


def equal(out: Any, first: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(tensors(out), tensors(first), strict=True))


def copied(out: Any) -> Any:
    return tuple(x.clone() for x in out) if isinstance(out, tuple) else out.clone()


def first_result(problem: Any, config: str | None, failures: Failures) -> Any:
    """Checked against float64."""
    out = problem.run(config=config)
    ratio = float(problem.verdict(out, config))
    if not ratio <= 1:
        failures.append({"what": "wrong", "case": repr(problem.case), "config": config,
                         "ratio": ratio})  # fmt: skip
    return out


# --- repeats ------------------------------------------------------------------------------------


class Repeats:
    """Two calls that repeat, each on a stream of its own, and how often they differed."""

    def __init__(self, calls: list[tuple[Any, str | None]], failures: Failures) -> None:
        self.calls = calls
        self.first = [first_result(p, config, failures) for p, config in calls]
        self.different = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in calls]
        self.streams = [torch.cuda.Stream() for _ in calls]
        torch.cuda.synchronize()

    def once(self, i: int) -> None:
        problem, config = self.calls[i]
        self.different[i] += unequal(problem.run(config=config), self.first[i])

    def eager(self, times: int) -> None:
        for _ in range(times):
            for i, stream in enumerate(self.streams):
                with torch.cuda.stream(stream):
                    self.once(i)
        torch.cuda.synchronize()

    def captured(self, times: int) -> None:
        """Both branches of one graph, so that kernels of both are on the GPU at a time."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            main = torch.cuda.current_stream()
            for i, stream in enumerate(self.streams):
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    for _ in range(IN_A_GRAPH):
                        self.once(i)
            for stream in self.streams:
                main.wait_stream(stream)
        for _ in range(-(-times // IN_A_GRAPH)):
            graph.replay()
        torch.cuda.synchronize()


def repeats(args: argparse.Namespace, failures: Failures) -> dict[str, Any]:
    """Each split mode of each op, ``iterations`` times on two streams together."""
    counts: dict[str, Any] = {}
    for name, (a, b) in problems_of(args.device).items():
        modes_a, modes_b = configs_by_mode(a), configs_by_mode(b)
        for mode in modes_a:
            pairs = list(zip(modes_a[mode], modes_b.get(mode, [None]) * 9, strict=False))
            each = -(-args.iterations // (4 * len(pairs)))  # two streams, twice
            for config_a, config_b in pairs:
                work = Repeats([(a, config_a), (b, config_b)], failures)
                work.eager(each)
                work.captured(each)
                for (problem, config), different in zip(work.calls, work.different, strict=True):
                    if int(different):
                        failures.append({"what": "repeat differs", "case": repr(problem.case),
                                         "config": config, "times": int(different)})  # fmt: skip
            counts[f"{name}: {mode}"] = {"configs": len(pairs), "iterations": 4 * each * len(pairs)}
    return counts


# --- threads ------------------------------------------------------------------------------------


def moved(problem: Any, device: str) -> Any:
    """The same problem elsewhere, by copies alone: no op of ours runs for it."""
    tensors = {k: v.to(device) for k, v in vars(problem).items() if isinstance(v, torch.Tensor)}
    return dataclasses.replace(problem, **tensors)


def run_threads(count: int, body: Callable[[int], None]) -> list[str]:
    """All at once from one barrier; what they raised."""
    barrier, raised = threading.Barrier(count), []

    def run(i: int) -> None:
        try:
            barrier.wait()
            body(i)
        except Exception as error:
            raised.append(f"{type(error).__name__}: {error}"[:300])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def on_own_stream(device: str, call: Callable[[], Any]) -> Any:
    if device == "cpu":
        return call()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        out = call()
    stream.synchronize()
    return out


def first_calls(device: str, name: str, results: Any) -> None:
    """In a fresh process: 8 threads whose first calls are the first of the process."""
    wrong: Failures = []
    case = CASES[name][0]
    problems = [moved(registry.make(case), device) for _ in range(8)]
    outs: list[Any] = [None] * 8

    def call(i: int) -> None:
        outs[i] = on_own_stream(device, problems[i].run)

    if device != "cpu":
        torch.cuda.synchronize()
    raised = run_threads(8, call)
    if raised:
        wrong.append({"what": "first call of a thread raised", "case": repr(case), "error": raised})
    else:
        first = first_result(problems[0], None, wrong)
        wrong += [
            {"what": "first call of a thread differs", "case": repr(case), "thread": i}
            for i, out in enumerate(outs)
            if not equal(out, first)
        ]
    results.put(wrong)


def in_fresh_processes(target: Callable[..., None], arguments: list[tuple[Any, ...]]) -> Failures:
    """All at a time; what they put into the queue they are given."""
    context = multiprocessing.get_context("spawn")
    started = []
    for each in arguments:
        results = context.Queue()
        process = context.Process(target=target, args=(*each, results))
        process.start()
        started.append((each, process, results))
    deadline, found = time.monotonic() + 180, []
    for each, process, results in started:
        while results.empty() and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.2)
        died = [{"what": f"{target.__name__}: the process died or hung", "args": repr(each)}]
        found += died if results.empty() else results.get()
        process.kill()
        process.join()
    return found


def threads(args: argparse.Namespace, failures: Failures) -> dict[str, Any]:
    failures += in_fresh_processes(first_calls, [(args.device, name) for name in CASES])
    # Then all ops at once, each thread another problem on its own stream.
    problems = [p for pair in problems_of(args.device).values() for p in pair]
    first = [first_result(p, None, failures) for p in problems]
    times = max(1, args.iterations // (8 * len(problems)))
    different = [0] * len(problems)
    if args.device != "cpu":
        torch.cuda.synchronize()

    def body(thread: int) -> None:
        def work() -> None:
            for turn in range(times * len(problems)):
                i = (thread + turn) % len(problems)
                if not equal(problems[i].run(), first[i]):
                    different[i] += 1

        on_own_stream(args.device, work)

    for error in run_threads(8, body):
        failures.append({"what": "a thread raised", "error": error})
    for problem, count in zip(problems, different, strict=True):
        if count:
            failures.append({"what": "thread differs", "case": repr(problem.case), "times": count})
    return {"first_calls": len(CASES), "calls": 8 * times * len(problems)}


# --- graphs -------------------------------------------------------------------------------------


def fill_free_memory(value: int, device: str) -> None:
    """What the allocator hands out next held this byte."""
    for size in (512, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24):
        blocks = [torch.full((size,), value, dtype=torch.uint8, device=device) for _ in range(3)]
        del blocks


def capture(problem: Any, config: str | None) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = problem.run(config=config)
    return graph, out


def first_call_is_captured(name: str, results: Any) -> None:
    """In a fresh process: the first call ever is captured."""
    wrong: Failures = []
    problem = moved(registry.make(CASES[name][0]), "cuda")
    torch.ones(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    try:
        graph, out = capture(problem, None)
        graph.replay()
        torch.cuda.synchronize()
        ratio = float(problem.verdict(copied(out), None))
        if not ratio <= 1:
            wrong.append({"what": "captured first call is wrong", "case": repr(problem.case),
                          "ratio": ratio})  # fmt: skip
    except Exception as error:
        wrong.append({"what": "capture of a first call raised", "case": repr(problem.case),
                      "error": str(error)[:300]})  # fmt: skip
    results.put(wrong)


def graphs(args: argparse.Namespace, failures: Failures) -> dict[str, Any]:
    """Two graphs are captured; one is destroyed and its memory overwritten; the other replays."""
    count = 0
    for a, b in problems_of(args.device).values():
        for mode, configs in configs_by_mode(a).items():
            config = configs[0]
            first = first_result(a, config, failures)
            kept, out = capture(a, config)
            other, _ = capture(b, None)
            other.replay()
            del other, _
            gc.collect()
            torch.cuda.empty_cache()
            fill_free_memory(0xFF, args.device)
            different = torch.zeros((), dtype=torch.int64, device="cuda")
            for _turn in range(100):
                for each in tensors(out):
                    each.fill_(0)
                kept.replay()
                different += unequal(out, first)
            count += 1
            if int(different):
                failures.append({"what": "replay differs", "case": repr(a.case), "config": config,
                                 "mode": mode, "times": int(different)})  # fmt: skip
    failures += in_fresh_processes(first_call_is_captured, [(name,) for name in CASES])
    return {"pairs": count, "replays": 100 * count, "first_calls": len(CASES)}


# --- memory -------------------------------------------------------------------------------------

OOM_CASES: dict[str, tuple[Any, str | None]] = {
    "free": (Case(4096, 8192, 512, F16, 4, 64, "sub"), None),
    "dense": (Case(4096, 8192, 512, F16, 4, 64, "sub"), "dequantize_dense"),
    "parallel": (Case(1024, 4096, 1024, F16, 4, 128, "sub"), "multistage_m64n128s4_parallel3"),
    "streamk": (Case(1024, 4096, 1024, F16, 4, 128, "sub"), "multistage_m64n128s4_streamk1"),
    "scaled": (ScaledCase(4096, 8192, 512, F16), None),
    "float8": (ScaledCase(4096, 8192, 512, F16, FLOAT8), None),
    "float8 blocks": (ScaledCase(4096, 8192, 512, F16, FLOAT8, block=(128, 128)), None),
    "dynamic": (ScaledDynamicCase(4096, 8192, 512, F16, azp=True), None),
    "quantize_fp8": (QuantizeCase(4096, 8192, F16, "float8_128"), None),
    "block": (BlockCase(4096, 4096, 512, F16), None),
    "awq": (AwqCase("gemm", 2048, 8192, 512, 4), None),
    "awq dequantize": (AwqCase("dequantize", 1, 8192, 4096, 32), None),
    "conv": (ConvCase(16, 64, 256, (56, 56), channels_last=False), None),
    "conv int8": (ConvInt8Case(16, 64, 256, (56, 56), layout="nchw"), None),
}


def ran_out_of_memory(error: Exception, forced: bool) -> bool:
    """Forced configurations are ops of ``torch.ops``, which raise RuntimeError with the text. A
    torch before 2.13 does not hand over why its convolution or its product failed."""
    if torch.__version__ < (2, 13) and "aten::" in str(error) and "on stderr" in str(error):
        return True
    if forced and type(error) is RuntimeError:
        return torch.ops.mixed_gemm._error_kind(str(error)) == "memory"
    return isinstance(error, torch.OutOfMemoryError)


def oom(args: argparse.Namespace, failures: Failures) -> dict[str, Any]:
    """With less memory than a call needs it raises torch.OutOfMemoryError; with enough of it the
    next call is right."""
    placing.POISONS_OUTPUTS = False  # or torch would run out of memory for that
    total = torch.cuda.get_device_properties(0).total_memory
    counts = {"refused": 0, "served": 0}
    for name, (case, config) in OOM_CASES.items():
        problem = registry.make(case, "cuda", "cuda")
        expected = copied(problem.run(config=config))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        problem.run(config=config)
        torch.cuda.synchronize()
        needs = torch.cuda.max_memory_allocated() - held
        for share in (0.0, 0.3, 0.6, 0.9):
            gc.collect()
            torch.cuda.empty_cache()
            limit = torch.cuda.memory_reserved() + int(share * needs)
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
            try:
                problem.run(config=config)
                counts["served"] += 1
            except Exception as error:
                counts["refused"] += 1
                if not ran_out_of_memory(error, forced=config is not None):
                    text = f"{type(error).__name__}: {error}"[:300]
                    failures.append({"what": "no OutOfMemoryError", "name": name, "error": text})
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
            again = problem.run(config=config)
            torch.cuda.synchronize()
            if not equal(again, expected):
                failures.append({"what": "retry after OOM differs", "name": name, "share": share})
        del problem, expected, again
    placing.POISONS_OUTPUTS = True
    if counts["refused"] == 0:
        failures.append({"what": "no call ever ran out of memory"})
    return counts


def locks(args: argparse.Namespace, failures: Failures) -> dict[str, Any]:
    """Whatever free memory held, the result is the same: locks and sums are zeroed in the call."""
    count = 0
    for a, b in problems_of(args.device).values():
        for problem in (a, b):
            names = problem.configs() if args.device != "cpu" else []
            for config in [None, *names]:
                first = first_result(problem, config, failures)
                for value in FILLS:
                    fill_free_memory(value, args.device)
                    count += 1
                    if not equal(problem.run(config=config), first):
                        failures.append({"what": f"differs in memory of {value:#x}",
                                         "case": repr(problem.case), "config": config})  # fmt: skip
    return {"calls": count}


PARTS: dict[str, Callable[[argparse.Namespace, Failures], dict[str, Any]]] = {
    "repeats": repeats,
    "threads": threads,
    "graphs": graphs,
    "oom": oom,
    "locks": locks,
}
ON_CPU = ("threads", "locks")


def parts_of(args: argparse.Namespace) -> Iterator[tuple[str, Callable[..., dict[str, Any]]]]:
    for name in args.parts:
        if args.device != "cpu" or name in ON_CPU:
            yield name, PARTS[name]


def rows_of(name: str, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of each op and mode for the repeats, else of the part; its failures stand in one row."""
    failed = part["failures"]
    if name == "repeats":
        for mode, counts in part.items():
            if isinstance(counts, dict):
                yield {"name": mode, "count": counts["iterations"], "failed": 0}
        if failed:
            yield {"name": "wrong, or different", "count": failed, "failed": failed}
        return
    counts = [v for k, v in part.items() if k not in ("seconds", "failures")]
    yield {"name": name, "count": sum(counts) or failed, "failed": failed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=10_000, help="of each op and split mode")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="JSON")
    args = parser.parse_args()
    report: dict[str, Any] = {"meta": meta(args.device), "parts": {}, "failures": []}
    for name, part in parts_of(args):
        start, failures = time.monotonic(), []
        try:
            done = part(args, failures)
        except Exception as error:
            done = {}
            failures.append({"what": "raised", "error": f"{type(error).__name__}: {error}"[:1000]})
        seconds = round(time.monotonic() - start, 1)
        report["parts"][name] = {**done, "seconds": seconds, "failures": len(failures)}
        report["failures"] += [{"part": name, **failure} for failure in failures[:200]]
        print(name, report["parts"][name], flush=True)
        if args.out:
            write(args.out, report)  # after each part: a crash loses the rest only
    for failure in report["failures"][:20]:
        print(failure)
    for what, of_what in (("repeats", ("repeats",)), ("faults", tuple(PARTS)[1:])):
        done = {name: report["parts"][name] for name in of_what if name in report["parts"]}
        rows = [row for name, part in done.items() for row in rows_of(name, part)]
        write_part(what, "stress", args.device, rows)
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
