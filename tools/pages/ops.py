"""docs/ops.md, from the records of the ops in mixed_gemm/ops and their contracts in the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mixed_gemm.ops.families import FAMILIES
from mixed_gemm.ops.op import Op
from mixed_gemm.ops.registry import OPS

from . import op_arguments
from .page import Page, whole
from .table import table

PUBLIC = [op for op in OPS if op.is_public]


def names(of: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in of)


def trained(op: Op) -> tuple[str, ...]:
    rule = op.derivatives.rule
    return () if rule is None else rule.trained


def gradient(op: Op) -> str:
    return names(trained(op)) or op.derivatives.why.partition(". Hint")[0]


def autocast(op: Op) -> str:
    return op.autocast if isinstance(op.autocast, str) else "yes"


def vmap(op: Op) -> str:
    if isinstance(op.vmap, str):
        return op.vmap
    ways = ((op.vmap.merged, "one call: "), (op.vmap.looped, "a call each: "))
    return "; ".join(text + names(of) for of, text in ways if of)


def flops(op: Op) -> str:
    return op.flops if isinstance(op.flops, str) else "counted"


def sharding(op: Op) -> str:
    if isinstance(op.sharding, str):
        return op.sharding
    return "; ".join(way.what for way in op.sharding.ways)


def opcheck(op: Op) -> str:
    return op.opcheck if isinstance(op.opcheck, str) else "passes"


COLUMNS: dict[str, Callable[[Op], str]] = {
    "op": lambda op: f"`{op.name}`",
    "gradient": gradient,
    "autocast": autocast,
    "vmap": vmap,
    "FLOPs": flops,
    "DTensor, cut by": sharding,
    "opcheck": opcheck,
}


def what_they_compute() -> str:
    rows = []
    for family in FAMILIES:
        path = f"mixed_gemm/{family.__name__.partition('.')[2].replace('.', '/')}.py"
        for op in family.OPS:
            rows.append([f"`{op.name}`", op.doc, f"[{Path(path).name}](../{path})"])
    return table(["op", "computes", "record"], rows)


def text() -> str:
    count = len(PUBLIC)
    trains = sum(bool(trained(op)) for op in PUBLIC)
    casts = sum(op.autocast is True for op in PUBLIC)
    batches = sum(not isinstance(op.vmap, str) for op in PUBLIC)
    counts = sum(not isinstance(op.flops, str) for op in PUBLIC)
    cuts = sum(not isinstance(op.sharding, str) for op in PUBLIC)
    return f"""# The ops

- **All {count} public ops compile to one graph, export, run on fake tensors and in inference
  mode.** {trains} have a gradient, {casts} follow autocast, {batches} have a batching rule,
  {counts} count FLOPs and {cuts} take DTensors; a cell without a rule says why there is none.
- **Every op with tensors is one record** (`mixed_gemm/ops/op.py`) in the file of its family, beside
  the Python function in front of it: what trains and how, autocast, vmap, FLOPs and DTensor.
- **What an op takes and gives is one table** in C++ (`csrc/ops/<op>/contract.cpp`). Its schema, the
  checks of its kernels and its fake kernel are made from it, so that a call is refused in the same
  words everywhere.
- **What torch asks of all ops is written once.** `mixed_gemm/ops/registry.py` is the table of the
  records, and hands each kind of rule to the file that tells torch: `contract.py`, `autograd.py`,
  `autocast.py`, `vmap.py`, `flops.py`; `distributed/op_rules.py` tells it how DTensors are cut.
  These know no op by name.

`python -m tools.pages ops` writes this page from the records and the contracts.

## What each supports

{table(COLUMNS, [[cell(op) for cell in COLUMNS.values()] for op in PUBLIC])}

- Gradient: these arguments train, backward and forward, under every transform of `torch.func`, and
  twice. Another argument that asks for a derivative is refused by name.
- vmap: "one call" makes a batch part of a call, "a call each" stacks the results of calls.
- DTensor: ranks keep their shard where arguments are cut so already; the rest is moved, and where
  nothing fits gathered. Results are cut in the same way.

## What each computes

Names with an underscore are for tests and benchmarks, on CUDA tensors.

{what_they_compute()}

## What each takes

- M is the product of all sizes of `a` but the last, K its last size, N the output channels. Of a
  convolution Ci and Co are the channels, and K is the size of a filter, as it is packed. `words`
  are the rows of a `qweight` whose columns are words of 32 bits. Of the products of experts E is
  the number of experts.
- All tensors are on one device. Strides may be any where a table does not say otherwise: what a
  kernel cannot read in place is copied. `ceil(K/group_size)` is 1 where `group_size` is -1.
- `pack_weights` and `pack_conv_weights` make what is packed;
  [the layout](architecture.md#the-packed-layout) is in one place.

{op_arguments.sections()}

## Add an op

1. Its contract and its kernels in a folder of `csrc/ops/`, its name in `csrc/ops/contracts.h`.
2. Its function and its record in a file of `mixed_gemm/ops/`, with a text for each rule that it
   cannot have; the file and the function in `families.py`.
3. A file in `tests/problems/` with its rows in `OPS` and `CALLS`, in `TRAINED` where it trains and
   in `SHARDED` where DTensors may be cut. `ops/test_op_contract.py`, `test_derivatives.py`,
   `test_refusals.py` and `test_sharding.py` then ask for the rest.
4. `python -m tools.pages ops`.
"""


PAGE = Page({"docs/ops.md": whole(text)})
