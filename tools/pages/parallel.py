"""The figures of docs/parallel.md, from benchmarks/results/tensor_parallel_h100x2.json, which
`torchrun --nproc-per-node=2 -m benchmarks.tensor_parallel --all-methods --out FILE` leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .page import Page, parts
from .table import listed, results, table

FILE = "tensor_parallel_h100x2.json"
# Rows of the activations -> what "auto" takes for them (tests/python/parallel/test_methods.py),
# as the rows of the results that force it are named; and what of one GPU's time was aimed at.
OURS = {1: "push, parts of 0", 16: "push, parts of 0", 256: "push, parts of 0",
        2048: "peer, parts of 1024"}  # fmt: skip
AIMED_AT = {1: 0.58, 16: 0.58, 256: 0.56, 2048: 0.52}
TORCH = "torch"
METHODS = {"push": "push", "peer": "peer", "group": "NCCL"}


class Times:
    """The times of the results, in microseconds."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.gpus = f"{found['meta']['ranks']} {found['meta']['gpu'].split()[1]}s"
        rows = found["rows"]
        self.hidden = rows[0]["N"]
        self._of = {(x["op"], x.get("bits"), x["kernel"], x["M"]): float(x["us"]) for x in rows}
        self._several = f"block on {found['meta']['ranks']} GPUs"

    def sum(self, method: str, m: int) -> float:
        return self._of["sum over ranks", None, method, m]

    def one(self, bits: int, m: int) -> float:
        return self._of["block on 1 GPU", bits, "", m]

    def several(self, bits: int, m: int, kernel: str) -> float:
        return self._of[self._several, bits, kernel, m]

    def ours(self, bits: int, m: int) -> float:
        return self.several(bits, m, OURS[m])

    def sizes(self) -> list[int]:
        return sorted({m for op, _, _, m in self._of if op == "sum over ranks"})


def summary(times: Times) -> str:
    def ratios(kernels: dict[int, str]) -> list[str]:
        return [f"{times.several(4, m, kernels[m]) / times.one(4, m):.2f}" for m in OURS]

    first, *rest = ratios(OURS)
    more = (f"{x} with {m}" for x, m in zip(rest, list(OURS)[1:], strict=True))
    missed = [m for m in OURS if times.ours(4, m) > AIMED_AT[m] * times.one(4, m)]
    told = f"missed with {listed(missed)} rows" if missed else "met"
    taken = listed([f"{first} of one GPU's time with one row", *more])
    return f"""\
- **Two GPUs take {taken}** (int4, a
  block of Llama-3-70B's shape, {times.gpus}, the table below) by
  `mixed_gemm.parallel.RowwiseParallel`, where torch's takes
  {listed(ratios(dict.fromkeys(OURS, TORCH)))}. At most {listed(AIMED_AT.values())} was aimed at:
  {"missed at all of them" if missed == list(OURS) else told}."""


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >> 20 else f"{nbytes >> 10} KiB"


def sums(times: Times) -> str:
    rows = (
        [str(m), _size(2 * times.hidden * m), *(f"{times.sum(x, m):.1f}" for x in METHODS)]
        for m in times.sizes()
    )
    return f"""One sum of `[M, {times.hidden}]` in bf16 on {times.gpus}, in a CUDA graph, us:

{table(["M", "message", *METHODS.values()], rows)}"""


def blocks(times: Times) -> str:
    header = ["M", "int4 g128, 1 GPU", "2 GPUs, torch's style", "ours", "of one GPU", "aimed at",
              "both sums alone", "bf16, 1 GPU", "2 GPUs, torch's style", "ours"]  # fmt: skip
    rows = (
        [str(m), f"{times.one(4, m):.0f}", f"{times.several(4, m, TORCH):.0f}",
         f"{times.ours(4, m):.0f}", f"{times.ours(4, m) / times.one(4, m):.2f}",
         f"{AIMED_AT[m]:.2f}", f"{2 * times.sum(OURS[m].split(',')[0], m):.0f}",
         f"{times.one(16, m):.0f}", f"{times.several(16, m, TORCH):.0f}",
         f"{times.ours(16, m):.0f}"]
        for m in OURS
    )  # fmt: skip
    return f"""\
The four linears of a block, SiLU and both sums in a CUDA graph, no attention, us (hidden 8192,
intermediate 28672, 64 and 8 heads of 128, {times.gpus};
[{FILE}](../benchmarks/results/{FILE})):

{table(header, rows)}

{_beside_dense(times)}

{_parts(times)}"""


def _beside_dense(times: Times) -> str:
    slower = [m for m in OURS if times.ours(4, m) >= times.ours(16, m)]
    if not slower:
        return "At every M int4 on two GPUs takes less time than bf16 on two."
    told = listed(f"{times.ours(4, m):.0f} us beside {times.ours(16, m):.0f}" for m in slower)
    return (
        f"On two GPUs int4 takes less time than bf16 but for M = {listed(slower)}, where it takes "
        f"as much or more: {told}."
    )


def _parts(times: Times) -> str:
    """With most rows, what parts gain over a sum after the whole product."""
    m = max(OURS)

    def us(kernel: str) -> str:
        return f"{times.several(4, m, kernel):.0f}"

    whole = listed(f"{us(f'{x}, parts of 0')} by {name}" for x, name in METHODS.items())
    parts = listed(f"{us(f'peer, parts of {x}')} in parts of {x}" for x in (1024, 512))
    return f"""\
With {m} rows it takes {parts} (us),
and with a sum after the whole product {whole}."""


def _measured(part: Callable[[Times], str]) -> Callable[[], str]:
    return lambda: part(Times(results(FILE)))


_PARTS = {part.__name__: _measured(part) for part in (summary, sums, blocks)}
PAGE = Page({"docs/parallel.md": parts(**_PARTS)})
