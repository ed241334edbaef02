"""One block of Llama-3-70B on one GPU and on all GPUs of the group, int4 beside bf16.

    torchrun --nproc-per-node=2 -m benchmarks.tensor_parallel --out FILE.json [--all-methods]

The four linears, SiLU and the two sums over ranks, no attention; in a CUDA graph, on a CPU call by
call over gloo. What is compared takes turns; the time of several GPUs is that of the slowest one.
Weights are random, and what two GPUs compute is held against one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import parallel as torch_parallel

import mixed_gemm
from mixed_gemm.distributed.methods import METHODS
from mixed_gemm.parallel import AllReduce, RowwiseParallel
from mixed_gemm.weights import IntegerWeight

from .about import about_run
from .row import Row, save

ROWS = (1, 16, 256, 2048)
# Blocks in a graph, so that a replay takes long against its launch; as many on every rank.
BLOCKS = {1: 8, 16: 8, 256: 4, 2048: 1}
DTYPE = torch.bfloat16
PARTS = (0, 512, 1024)  # rows, with --all-methods
FAR = 0.05  # relative to the largest output: sums in bf16, in halves and whole
SUM_FAR = 2.0**-7  # relative to the largest sum: of bf16, where some round more than once


@dataclass(frozen=True)
class Shape:
    hidden: int = 8192
    intermediate: int = 28672
    heads: int = 64
    kv_heads: int = 8
    head: int = 128

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """name -> (N, K)."""
        queries = self.heads * self.head
        return {
            "qkv": (queries + 2 * self.kv_heads * self.head, self.hidden),
            "o": (self.hidden, queries),
            "gate_up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
        }


class Block(nn.Module):
    """``ranks`` shares of each column-wise linear lie one after the other, so that each rank's is a
    run of rows."""

    qkv: nn.Module
    o: nn.Module
    gate_up: nn.Module
    down: nn.Module

    def __init__(self, shape: Shape, linears: dict[str, nn.Module], ranks: int) -> None:
        super().__init__()
        self.shape, self.ranks = shape, ranks
        for name, linear in linears.items():
            self.add_module(name, linear)

    def forward(self, x: Tensor) -> Tensor:
        rows, shape = x.shape[0], self.shape
        qkv = self.qkv(x).view(rows, self.ranks, -1)
        of_queries = qkv.shape[2] * shape.heads // (shape.heads + 2 * shape.kv_heads)
        queries = qkv[:, :, :of_queries].reshape(rows, -1)
        x = self.o(queries)
        gate, up = self.gate_up(x).view(rows, self.ranks, 2, -1).unbind(2)
        out: Tensor = self.down((nn.functional.silu(gate) * up).view(rows, -1))
        return out


def int4(n: int, k: int, device: torch.device) -> nn.Module:
    """Random codes in groups of 128, of the variance that keeps activations of one size."""
    weight: Any = IntegerWeight.empty(
        (n, k), mixed_gemm.Scheme.weight_only(4, 128), device=device, dtype=DTYPE
    )
    weight.b_packed.random_(0, 256)
    weight.scales.uniform_(0.5, 1.5).mul_(1 / (4.6 * k**0.5))
    return mixed_gemm.Linear.from_weight(weight)


def bf16(n: int, k: int, device: torch.device) -> nn.Module:
    linear = nn.Linear(k, n, bias=False, device=device, dtype=DTYPE).requires_grad_(False)
    linear.weight.normal_(0, k**-0.5)
    return linear


KINDS: dict[str, Callable[..., nn.Module]] = {"int4": int4, "bf16": bf16}


def whole(kind: str, shape: Shape, device: torch.device, ranks: int) -> Block:
    torch.manual_seed(0)  # the same on all ranks
    linears = {name: KINDS[kind](n, k, device) for name, (n, k) in shape.linears.items()}
    return Block(shape, linears, ranks)


Style = Callable[[], Any]  # makes the style of a row-wise layer


def spread(block: Block, mesh: Any, style: Style) -> Block:
    """The same over the ranks of a mesh; the whole one keeps its weights."""
    linears: dict[str, nn.Module] = {}
    for name in block.shape.linears:
        linear: Any = getattr(block, name)
        if isinstance(linear, mixed_gemm.Linear):
            linears[name] = mixed_gemm.Linear.from_weight(linear.weight)
        else:
            n, k = linear.weight.shape
            copied = nn.Linear(k, n, bias=False, device="meta", dtype=DTYPE)
            copied.weight = nn.Parameter(linear.weight.detach(), requires_grad=False)
            linears[name] = copied
    made = Block(block.shape, linears, 1)
    plan: dict[str, Any] = {name: torch_parallel.ColwiseParallel() for name in ("qkv", "gate_up")}
    plan |= {name: style() for name in ("o", "down")}
    for one in plan.values():
        one.src_data_rank = None  # all ranks have the same weights: nothing is sent
    torch_parallel.parallelize_module(made, mesh, plan)
    return made


class Timer:
    """Samples of one block at one M: a replay of a graph, or a call."""

    def __init__(self, block: Block, x: Tensor) -> None:
        self.count = BLOCKS.get(x.shape[0], 1) if x.is_cuda else 1
        self.block, self.x, self.graph = block, x, None
        with torch.no_grad():
            if not x.is_cuda:
                self.out = block(x)
                return
            stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self.out = block(x)
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                for _ in range(self.count):
                    out: Any = block(x)
                    # torch's style returns a sum that is on its way; it is awaited in the graph.
                    self.out = out.wait() if hasattr(out, "trigger_wait") else out
            self.graph.replay()
            torch.cuda.synchronize()

    def sample_us(self) -> float:
        dist.barrier()
        if self.graph is None:
            start = time.perf_counter()
            with torch.no_grad():
                self.block(self.x)
            return (time.perf_counter() - start) * 1e6
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / self.count


def slowest(us: float, device: torch.device) -> float:
    found = torch.tensor([us], device=device, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found)


def styles(all_methods: bool, rows: int) -> dict[str, Style]:
    """With ``all_methods`` also "METHOD, parts of ROWS", of 0 rows where nothing is cut."""
    found: dict[str, Style] = {"torch": torch_parallel.RowwiseParallel, "auto": RowwiseParallel}
    if not all_methods:
        return found
    for method in METHODS[1:]:
        for part in PARTS if rows >= 2048 and method == "peer" else (0,):
            found[f"{method}, parts of {part}"] = partial(
                RowwiseParallel, all_reduce=method, rows_of_a_part=part
            )
    return found


def measured(
    kind: str, shape: Shape, mesh: Any, rows: Sequence[int], rounds: int, all_methods: bool
) -> list[Row]:
    device, ranks = torch.device(mesh.device_type), mesh.size()
    block, found = whole(kind, shape, device, ranks), []
    for m in rows:
        x = torch.randn(m, shape.hidden, device=device, dtype=DTYPE)
        dist.broadcast(x, 0)
        timers = {(1, ""): Timer(block, x)}
        exact = timers[1, ""].out.clone()
        for name, style in styles(all_methods and x.is_cuda, m).items():
            timers[ranks, name] = Timer(spread(block, mesh, style), x)
            apart = float((timers[ranks, name].out - exact).abs().max() / exact.abs().max())
            if slowest(apart, device) > FAR:
                raise SystemExit(f"{kind}, M={m}, {name}: {apart} from one GPU")
        samples: dict[Any, list[float]] = {key: [] for key in timers}
        order = list(timers)
        for round_ in range(rounds + 1):
            random.Random(round_).shuffle(order)  # the same on all ranks
            for key in order:
                us = slowest(timers[key].sample_us(), device)
                if round_:
                    samples[key].append(us)
        for (gpus, style_name), taken in samples.items():
            found.append(row_of(kind, shape, m, gpus, style_name, taken))
        del timers, exact
    return found


def row_of(kind: str, shape: Shape, m: int, gpus: int, style: str, us: list[float]) -> Row:
    return Row(
        op=f"block on {gpus} GPU{'s' if gpus > 1 else ''}",
        kernel=style,
        selected=style in ("", "auto"),
        dtype="bfloat16",
        N=shape.intermediate,
        K=shape.hidden,
        M=m,
        us=round(statistics.median(us), 1),
        us_min=round(min(us), 1),
        us_max=round(max(us), 1),
        bits=4 if kind == "int4" else 16,
        group_size=128 if kind == "int4" else None,
        layer="Llama-3-70B",
    )


def sums(mesh: Any, hidden: int, rounds: int) -> list[Row]:
    """Each method alone, by the size of the message: 16 sums in a graph. What comes out is held
    against the terms of all ranks, added in float32."""
    device, found = torch.device(mesh.device_type, torch.cuda.current_device()), []
    for method in METHODS[1:]:
        reduce = AllReduce(mesh.get_group(), device, method, 64 * 2**20)
        for m in (1, 16, 32, 64, 128, 256, 512, 1024, 2048):
            term = torch.randn(m, hidden, device=device, dtype=DTYPE)
            terms = [torch.empty_like(term) for _ in range(mesh.size())]
            dist.all_gather(terms, term, group=mesh.get_group())
            want = torch.stack([x.float() for x in terms]).sum(0).to(DTYPE)
            for _ in range(2):
                refuse_wrong(f"{method}, M={m}", reduce(term.clone()), want)
            torch.cuda.synchronize()
            dist.barrier()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for _ in range(16):
                    out = reduce(term)
            us = []
            for _ in range(rounds):
                dist.barrier()
                torch.cuda.synchronize()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                us.append(slowest(float(begin.elapsed_time(end)) * 1e3 / 16, device))
            if reduce.method_for(term.nbytes) != "group":  # which sums in place, 16 times
                refuse_wrong(f"{method}, M={m}, in a graph", out, want)
            found.append(
                Row("sum over ranks", method, False, "bfloat16", hidden, 0, m,
                    round(statistics.median(us), 1), round(min(us), 1), round(max(us), 1))
            )  # fmt: skip
    return found


def refuse_wrong(what: str, out: Tensor, want: Tensor) -> None:
    """On all ranks if on one, so that none waits for another."""
    apart = float((out - want).abs().max() / want.abs().max())
    if not slowest(apart, out.device) <= SUM_FAR:
        raise SystemExit(f"{what}: {apart} from the sum of the terms")


def table(rows: Sequence[Row]) -> str:
    """A line for each M: int4 and bf16, on one GPU and on several, and their ratios."""
    us = {(r.bits, r.op, r.kernel, r.M): r.us for r in rows}
    lines = ["| M | int4, 1 GPU | GPUs | ratio | bf16, 1 GPU | GPUs, torch | GPUs, ours |"]
    lines.append("|---|---|---|---|---|---|---|")
    several = next((r.op for r in rows if r.kernel == "auto"), "")
    for m in sorted({r.M for r in rows if r.op.startswith("block")}):
        one, two = us[4, "block on 1 GPU", "", m], us[4, several, "auto", m]
        dense = us[16, "block on 1 GPU", "", m]
        torchs, ours = (us[16, several, name, m] for name in ("torch", "auto"))
        lines.append(
            f"| {m} | {one:.0f} | {two:.0f} | {two / one:.2f} | {dense:.0f} | {torchs:.0f} | "
            f"{ours:.0f} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--all-methods", action="store_true", help="time each way to sum, too")
    parser.add_argument("--shape", type=int, nargs=5, help="hidden intermediate heads kv head")
    parser.add_argument("--commit", help="where there is no git to ask")
    options = parser.parse_args(argv)
    cuda = options.device == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if cuda else "gloo")
    mesh = init_device_mesh(options.device, (dist.get_world_size(),))
    shape = Shape(*options.shape) if options.shape else Shape()
    rows = sums(mesh, shape.hidden, options.rounds) if cuda and options.all_methods else []
    reason = AllReduce(mesh.get_group(), torch.device(options.device, torch.cuda.current_device())
                       if cuda else torch.device("cpu")).why_not  # fmt: skip
    device = torch.device(options.device)
    meta = {**about_run(device, {}, options.commit), "benchmark": "tensor_parallel",
            "ranks": mesh.size(), "symmetric_memory": reason or "yes"}  # fmt: skip
    for kind in KINDS:
        rows += measured(kind, shape, mesh, options.rows, options.rounds, options.all_methods)
        if dist.get_rank() == 0 and options.out:
            save(options.out, meta, rows)
    if dist.get_rank() == 0:
        print(json.dumps(meta))
        for row in rows:
            print(row.op, row.bits, row.kernel or "-", row.M, row.us, row.us_min, row.us_max)
        print(table(rows))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that is being finalized


if __name__ == "__main__":
    main()
