"""What every kernel of every op keeps, whatever it computes: its result does not turn on where its
operands lie, on what was there before, on its other rows, or on how often it is asked. Each
function is one of these, for a case of problems/registry.py on a device: ops/test_promises.py runs
them on the CPU, tests/gpu/test_gpu_contract.py on a GPU.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from problems import registry, scaled
from problems.placing import poison_of
from problems.recorder import Recorded, Recorder
from torch import Tensor
from torch.utils import _pytree

import mixed_gemm

CASES = [case for cases in registry.TYPICAL.values() for case in cases]
FIRST = [cases[0] for cases in registry.TYPICAL.values()]  # of each op, for what takes seconds
FLOAT8 = torch.float8_e4m3fn


def ids(case: Any) -> str:
    """For pytest: short, and unlike for any two cases."""
    return f"{registry.op_of(case)}-{CASES.index(case)}"


def make(case: Any, device: str, seed: int = 1) -> Any:
    """With the same values wherever the case says that they lie."""
    return registry.OPS[registry.op_of(case)].make(case, device, seed)


def few_of(problem: Any) -> list[str | None]:
    """The op's own choice, then three tiles of each family in each way to share its work out. On
    the CPU one op alone can be asked for a configuration."""
    ways: dict[tuple[str, str], list[str]] = {}
    on_cpu = {x.device.type for x in tensors_of(problem).values()} == {"cpu"}
    listed = not on_cpu or registry.op_of(problem.case) == "fpA_intB_gemm"
    for name in problem.configs() if listed else ():
        family, _, rest = name.partition("_")
        ways.setdefault((family, re.sub(r"^[^_]*|\d+", "", rest)), []).append(name)
    some = ((names[0], names[len(names) // 2], names[-1]) for names in ways.values())
    return [None, *dict.fromkeys(itertools.chain.from_iterable(some))]


def is_ours(case: Any, config: str | None, device: str) -> bool:
    """Whether a kernel of ours runs, whose order of adding up does not turn on alignment; not the
    op's choice among several, and not torch's library."""
    if device == "cpu":
        return True
    if config is not None:
        return not config.startswith("dequantize")
    name = registry.op_of(case)
    return name not in registry.FORCED and not (name == "awq" and case.m > 128)


def bits(x: Tensor) -> Tensor:
    """Which torch.equal compares, NaN with NaN too."""
    x = x.contiguous()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.view(integer) if x.dim() else x[None].view(integer)


def assert_same(found: Any, expected: Any, what: object) -> None:
    """Bit for bit, leading dimensions aside."""
    pairs = zip(_pytree.tree_leaves(found), _pytree.tree_leaves(expected), strict=True)
    for x, y in pairs:
        assert (x is None) == (y is None), what
        if y is not None:
            assert x.dtype == y.dtype, what
            assert torch.equal(bits(x).reshape(-1), bits(y).reshape(-1)), what


def assert_right(problem: Any, out: Any, config: str | None, what: object) -> None:
    ratio = float(problem.verdict(out, config))
    assert ratio <= 1, (what, ratio)


def tensors_of(problem: Any) -> dict[str, Tensor]:
    found = {field.name: getattr(problem, field.name) for field in fields(problem)}
    return {name: x for name, x in found.items() if isinstance(x, Tensor)}


# --- places ---------------------------------------------------------------------------------------


def placed(case: Any) -> Iterator[tuple[str, Any]]:
    """The same values with one tensor in another place, or rows in more dimensions."""
    for name, places in registry.OPS[registry.op_of(case)].factors.items():
        if not (name.endswith(("place", "layout")) or name == "lead"):
            continue
        for where in places:  # expanded changes the values
            if where not in (getattr(case, name), "expanded") and (where != "1d" or case.m == 1):
                yield f"{name} {where}", replace(case, **{name: where})


def check_places(case: Any, device: str) -> None:
    problem = make(case, device)
    expected = {config: problem.run(config=config) for config in few_of(problem)}
    for what, other in placed(case):
        moved = make(other, device)
        for config, result in expected.items():
            out = moved.run(config=config)
            if is_ours(case, config, device):
                assert_same(out, result, (what, config))
            else:
                assert_right(moved, out, config, (what, config))


def check_empty(case: Any, device: str) -> None:
    """Each size that may be 0 is."""
    factors = registry.OPS[registry.op_of(case)].factors
    for size in ("m", "n", "k", "images"):
        if 0 in factors.get(size, ()):
            whole = {x: -1 for x in ("group_size", "block_size") if size == "k" and x in vars(case)}
            problem = make(replace(case, **{size: 0}, **whole), device)
            assert_right(problem, problem.run(), None, size)


# --- repeats, neighbours, other rows --------------------------------------------------------------


def check_repeats(case: Any, device: str, times: int) -> None:
    problem = make(case, device)
    for config in few_of(problem):
        first = problem.run(config=config)
        for _ in range(times):
            assert_same(problem.run(config=config), first, config)


def check_canary(case: Any, device: str) -> None:
    """Memory around a fresh output keeps its pattern."""
    problem = make(case, device)
    for config in few_of(problem):
        arena = torch.full((1 << 18,), 0x7E7E, dtype=torch.int16, device=device)
        problem.run(config=config)
        assert bool((arena == 0x7E7E).all()), config


def check_rows(case: Any, device: str) -> None:
    """A row of NaN, or of other integers, changes its own row of the result alone."""
    problem = make(case, device)
    configs = [x for x in few_of(problem) if x is None or is_ours(case, x, device)]
    whole = {config: problem.run(config=config) for config in configs}
    row = case.m // 2
    problem.a[row] = 127 if problem.a.dtype == torch.int8 else float("nan")
    keep = torch.arange(case.m, device=device) != row
    for config, before in whole.items():
        out = problem.run(config=config)
        assert_same(out[keep], before[keep], config)
        if problem.a.is_floating_point():
            assert bool(out[row].isnan().all()), config
        else:
            assert not torch.equal(out[row], before[row]), config


# Ops on rows of activations, and those of them that multiply.
BATCHES = [x for x in CASES if hasattr(x, "m") and getattr(x, "op", "gemm") == "gemm"]
MOVED = ("moe_permute", "moe_combine")  # whose rows are others than those of the result
ROWS = [x for x in BATCHES if registry.op_of(x) not in ("quantize", *MOVED)]


# --- torch ----------------------------------------------------------------------------------------


def recorded(case: Any, device: str) -> tuple[list[Recorded], Any]:
    problem = make(case, device)
    with Recorder() as recorder:
        out = problem.run()
    return recorder.calls, out


def check_opcheck(case: Any, device: str) -> None:
    if isinstance(case, scaled.ScaledCase):  # some of float8 runs in torch
        scaled.opcheck(make(case, device))
        return
    calls, _ = recorded(case, device)
    assert calls
    for call in calls:
        leaves = _pytree.tree_leaves((call.arguments, dict(call.options), call.out))
        in_float8 = any(isinstance(x, Tensor) and x.dtype == FLOAT8 for x in leaves)
        without = {"test_utils": ("test_faketensor",)} if in_float8 else {}
        torch.library.opcheck(call.op, call.arguments, dict(call.options), **without)


def check_compiles(case: Any, device: str) -> None:
    """One graph for any number of rows."""

    def named(case: Any) -> tuple[str, dict[str, Any], Any]:
        (call,), out = recorded(case, device)
        schema = call.op._schema.arguments
        given = dict(zip([x.name for x in schema], call.arguments, strict=False))
        return call.name, {**given, **call.options}, out

    def tensors(given: dict[str, Any]) -> dict[str, Tensor]:
        return {name: x for name, x in given.items() if isinstance(x, Tensor)}

    name, given, _ = named(case)
    rest = {key: x for key, x in given.items() if not isinstance(x, Tensor)}
    op = getattr(mixed_gemm.ops, name)
    torch._dynamo.reset()
    compiled = torch.compile(
        functools.partial(op, **rest), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for m in (case.m, 2, 3, 70, 1):
        _, given, out = named(replace(case, m=m))
        assert_same(compiled(**tensors(given)), out, m)


def runs_in_torch(case: Any, device: str) -> bool:
    """Float8 products on a GPU, of which no op of ours is seen."""
    return isinstance(case, scaled.ScaledCase) and case.operand == FLOAT8 and device != "cpu"


# --- streams: values that come late ---------------------------------------------------------------


def poison(result: Any) -> None:
    """In every tensor of a result."""
    for x in _pytree.tree_leaves(result):
        if not isinstance(x, Tensor):
            continue
        if x.dtype == FLOAT8:
            x.view(torch.uint8).fill_(0x7F)
        else:
            x.fill_(poison_of(x.dtype))


def spoil(problem: Any) -> dict[str, Tensor]:
    """Poison in every tensor; what stood there."""
    kept = {name: x.clone() for name, x in tensors_of(problem).items()}
    poison(tensors_of(problem))
    return kept


def fill(problem: Any, values: dict[str, Tensor]) -> None:
    for name, x in tensors_of(problem).items():
        x.copy_(values[name])


def may_be_captured(case: Any) -> bool:
    """Not where a call reads a tensor on the host: the order of act-order is checked there."""
    return not getattr(case, "permuted", False)


def on_cpu(result: Any) -> Any:
    return _pytree.tree_map(lambda x: x.cpu() if isinstance(x, Tensor) else x, result)
