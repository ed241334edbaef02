"""Experts of every form and scheme, shared by one of several processes, against the same experts in
this process alone.

    python -m support.parallel_experts RANK STORE

prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done". Cases are drawn, each
property by itself, from a seed that all ranks share.
"""

from __future__ import annotations

import copy
import os
import random
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from support import ranks
from support.stacked_experts import HIDDEN, dense_experts
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import parallelize_module

import mixed_gemm
from mixed_gemm.distributed import exchange
from mixed_gemm.nn.experts import Experts
from mixed_gemm.parallel import ExpertParallel, ExpertTensorParallel

CASES = int(os.environ.get("MIXED_GEMM_PARALLEL_CASES", "36"))
SEED = int(os.environ.get("MIXED_GEMM_PARALLEL_SEED", "0"))
SCHEMES: dict[str, dict[str, Any]] = {
    "w4a16": {"group_size": 64},
    "w4a16_asym": {"group_size": 32},
    "w8a16": {"group_size": -1},
    "mxfp4": {},
    "nvfp4": {},
    "nf4": {},
    "w8a8": {},
    "fp8": {},
    "fp8_block": {},
    "dense": {},
    "mixed": {},  # down stays dense
}
ROUNDED = ("w8a8", "fp8", "fp8_block")  # each rank finds a scale for its share of a row
BLOCKS = mixed_gemm.Scheme.fp8(strategy="block", block=(48, 32))
STYLES = {
    "cut": ExpertTensorParallel,
    "whole": ExpertParallel,
    "exchanged": partial(ExpertParallel, input_layouts=Shard(0)),
}
BOUNDS = {torch.float32: 2e-4, torch.bfloat16: 0.03}  # relative to the largest result


@dataclass(frozen=True)
class Case:
    form: str
    scheme: str
    way: str
    count: int
    inner: int
    k: int
    dtype: torch.dtype
    trains: bool
    idle: bool = True  # the last rank has no expert that was chosen

    def __str__(self) -> str:
        trains = (" trains" if self.trains else "") + (" idle" if self.idle else "")
        return (
            f"{self.form}, {self.scheme}, {self.way}, {self.count} experts of {self.inner}, top "
            f"{self.k}, {self.dtype}{trains}"
        )


def draw(world: int, seed: int) -> Case:
    pick = random.Random(seed)
    form = pick.choice(["mixtral", "gpt-oss", "nemotron", "llama4"])
    scheme, way = pick.choice(list(SCHEMES)), pick.choice(list(STYLES))
    if form == "llama4" and way == "exchanged":
        way = "whole"
    unit = 32 if scheme == "mxfp4" else 16
    sizes = [64 * world, 128 * world, 64 * (world + 1), unit * (world + 1), unit * (2 * world + 1)]
    return Case(
        form=form,
        scheme=scheme,
        way=way,
        count=pick.choice([world, world + 1, 2 * world + 1, 8]),
        inner=max(pick.choice(sizes), 64 if scheme == "nf4" else 0),
        k=pick.choice([1, 2, 4]) if world > 1 else 1,
        dtype=pick.choice(list(BOUNDS)),
        trains=pick.random() < 0.5,
        idle=pick.random() < 0.5,
    )


def experts_of(form: str, scheme: str, count: int, inner: int, dtype: torch.dtype) -> Experts:
    found = dense_experts(form, count, inner, dtype)
    for expert in found.experts:
        for name, linear in list(expert._modules.items()):
            assert isinstance(linear, nn.Linear)
            if scheme == "dense" or (scheme == "mixed" and name == expert.names.down):
                continue
            setattr(expert, name, quantized(linear, "w4a16" if scheme == "mixed" else scheme))
    return found


def quantized(linear: nn.Linear, scheme: str) -> mixed_gemm.Linear:
    options = dict(SCHEMES[scheme])
    if options.get("group_size", -1) > linear.in_features:
        options["group_size"] = 16
    kind = BLOCKS if scheme == "fp8_block" else scheme
    return mixed_gemm.Linear.from_float(linear, kind, **options)


def given(case: Case, world: int, seed: int = 7) -> list[Tensor]:
    """The arguments of a call: the same on all ranks, or, where tokens travel, others on each."""
    rank = torch.distributed.get_rank() if case.way == "exchanged" else 0
    random = torch.Generator().manual_seed(seed + rank)
    tokens = [11, 0, 5, 1][rank]
    if case.form == "llama4":
        return [torch.randn(case.count * 3, HIDDEN, generator=random).to(case.dtype)]
    index = torch.randint(-1, case.count + 1, (tokens, case.k), generator=random)
    if world > 1 and case.idle:
        index = torch.where(index >= case.count - case.count // world, 0, index)
    return [
        torch.randn(tokens, HIDDEN, generator=random).to(case.dtype),
        index,
        torch.rand(tokens, case.k, generator=random).to(case.dtype),
    ]


def shared(experts: Experts, way: str, mesh: Any) -> Experts:
    found = parallelize_module(copy.deepcopy(experts), mesh, STYLES[way]())
    assert isinstance(found, Experts)
    return found


def apart(found: Tensor, wanted: Tensor) -> float:
    if wanted.numel() == 0:
        return 0.0
    return float((found.float() - wanted.float()).abs().max() / wanted.float().abs().max())


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {
        name: x.full_tensor() if hasattr(x, "full_tensor") else x
        for name, x in module.state_dict().items()
    }


def check_state(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        assert found[name].dtype == x.dtype and found[name].shape == x.shape, name
        mine, whole = (y.contiguous().flatten().view(torch.uint8) for y in (found[name], x))
        assert torch.equal(mine, whole), name


def check(case: Case, mesh: Any) -> None:
    world = mesh.size()
    exact = experts_of(case.form, case.scheme, case.count, case.inner, case.dtype)
    mine = shared(exact, case.way, mesh)
    held = sum(x.numel() for e in mine.experts for x in weights_of(e))
    whole = sum(x.numel() for e in exact.experts for x in weights_of(e))
    assert held < whole * (1 if world > 1 else 2), (held, whole)
    args, bound = given(case, world), BOUNDS[case.dtype]
    if case.scheme in ROUNDED and case.way == "cut":
        bound = 0.1
    found, wanted = mine(*args), exact(*args)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert apart(found, wanted) <= bound, apart(found, wanted)
    assert torch.equal(found, mine(*args)), "another result the next time"
    assert torch.equal(copy.deepcopy(mine)(*args), found), "another result of a copy"
    if case.trains:
        for ours, theirs in zip(gradients(mine, args), gradients(exact, args), strict=True):
            assert apart(ours, theirs) <= bound * 2, f"gradient {apart(ours, theirs)} apart"
    state = exact.state_dict()
    check_state(state_of(mine), state)
    for part in mine.state_dict().values():
        part = part.to_local() if hasattr(part, "to_local") else part
        if part.is_floating_point() and part.dtype != torch.float8_e4m3fn:
            part.add_(1)  # a part of the module or a copy
    mine.load_state_dict(state)
    assert torch.equal(mine(*args), found), "another result after load_state_dict"


def weights_of(expert: Any) -> list[Tensor]:
    found = [getattr(x, "own_weight", x.weight) for x in expert.linears]
    return [x for x in found if x is not None]


def gradients(experts: Experts, args: list[Tensor], loss: Tensor | None = None) -> list[Tensor]:
    """Of the sum of squares; or of ``loss`` times the result."""
    x, *routing = args
    leaves = [x.clone().requires_grad_()]
    if routing:
        leaves.append(routing[1].clone().requires_grad_())
    call = [leaves[0]] if len(leaves) == 1 else [leaves[0], routing[0], leaves[1]]
    out = experts(*call).float()
    (out.square() if loss is None else out * loss).sum().backward()
    return [torch.zeros_like(y) if y.grad is None else y.grad for y in leaves]


def lattice(way: str, mesh: Any) -> None:
    """Sums of integers that float32 holds exactly have the same bits however they are cut: here
    through the groups of scales, and in shards of several sizes."""
    torch.manual_seed(1)
    count, inner = 2 * mesh.size() + 1, 16 * (2 * mesh.size() + 1)
    exact = experts_of("nemotron", "dense", count, inner, torch.float32)
    for expert in exact.experts:
        for name, linear in list(expert._modules.items()):
            n, k = linear.weight.shape  # type: ignore[union-attr]
            q = torch.randint(-2, 3, (n, k), dtype=torch.int8)
            scales = 2.0 ** torch.randint(-1, 1, (-(-k // 32), n))
            made = mixed_gemm.Linear.from_quantized(q, scales, bits=4, group_size=32)
            setattr(expert, name, made)
    case = Case("nemotron", "w4a16", way, count, inner, 4, torch.float32, False, False)
    x, index, _ = given(case, mesh.size())
    x, weights = x.sign(), torch.full(index.shape, 0.5)
    mine = shared(exact, way, mesh)
    found, wanted = mine(x, index, weights), exact(x, index, weights)
    assert torch.equal(found, wanted)
    loss = torch.randint(-2, 3, x.shape).float()
    for ours, theirs in zip(
        gradients(mine, [x, index, weights], loss),
        gradients(exact, [x, index, weights], loss),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    if way != "exchanged":
        assert wanted.abs().max() > 100


def stacked(way: str, mesh: Any) -> None:
    """What a rank has is multiplied together; one graph has it, but for tokens that travel."""
    count, inner = mesh.size() + 1, 64 * (mesh.size() + 1)
    exact = experts_of("gpt-oss", "w4a16", count, inner, torch.float32)
    mine = shared(exact.requires_grad_(False), way, mesh)
    assert mine.why_one_by_one == "" and mine._stacked is not None
    case = Case("gpt-oss", "w4a16", way, count, inner, 1, torch.float32, False)
    args = given(case, mesh.size())
    wanted = mine(*args)
    torch._dynamo.reset()
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=way != "exchanged")
    with torch.no_grad():
        assert apart(compiled(*args), wanted) <= 1e-5
    assert apart(compiled(*args), wanted) <= 1e-5


def rows_sent(mesh: Any) -> None:
    """A row travels once to each rank that has some of its experts, and one comes back."""
    world, k = mesh.size(), 4
    exact = experts_of("gpt-oss", "w4a16", 4 * world, 64, torch.float32)
    mine = shared(exact, "exchanged", mesh)
    case = Case("gpt-oss", "w4a16", "exchanged", 4 * world, 64, k, torch.float32, True, False)
    x, index, weights = given(case, world)
    sent: list[int] = []
    moved = exchange._moved

    def counted(rows: Tensor, *way: Any) -> Tensor:
        found = moved(rows, *way)
        if rows.shape[1:] == (HIDDEN,):
            sent.append(len(rows) if not len(sent) % 2 else len(found))
        return found

    owners = torch.where((index >= 0) & (index < 4 * world), index // 4, -1)
    ranks_of = sum(len(set(row) - {-1}) for row in owners.tolist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_moved", counted)
        gradients(mine, [x, index, weights])
    # To experts, back, and both ways once more for gradients.
    assert sent == [ranks_of] * 4 and ranks_of <= min(k, world) * len(x), (sent, ranks_of)
    assert len(x) < 5 or world == 1 or len(x) < ranks_of < int((owners >= 0).sum())
    assert torch.equal(exchange.once_each(torch.tensor([[2, 0, 2, -1], [1, 1, 1, 1]]), 3),
                       torch.tensor([[-1, 0, 2], [-1, -1, 1]]))  # fmt: skip


def refusals(mesh: Any) -> None:
    world = mesh.size()
    few = experts_of("mixtral", "w4a16", world, 16 * world, torch.float32)
    if world > 1:
        less = experts_of("mixtral", "w4a16", world - 1, 64, torch.float32)
        with pytest.raises(ValueError, match=f"{world - 1} experts cannot be shared by {world}"):
            shared(less, "whole", mesh)
        narrow = experts_of("mixtral", "w4a16", 2, 16 * (world - 1), torch.float32)
        with pytest.raises(ValueError, match=f"0.gate_proj: .*at most {world - 1} ranks"):
            shared(narrow, "cut", mesh)
        assert narrow.spread is None
        ordered = experts_of("mixtral", "w4a16", world, 64 * world, torch.float32)
        down: Any = ordered.expert(1).linears[-1]
        down.weight.permutation = torch.randperm(64 * world)
        with pytest.raises(ValueError, match=r"1.down_proj: .*act-order.*ExpertParallel"):
            shared(ordered, "cut", mesh)
        shared(ordered, "whole", mesh)
    once = shared(few, "whole", mesh)
    number = next(iter(once.own))
    once.expert(number).add_module("up_proj", nn.Linear(HIDDEN, 16 * world))
    with pytest.raises(ValueError, match=rf"{number}\.up_proj is a torch.*Linear now"):
        once(*given(Case("mixtral", "w4a16", "whole", world, 16, 1, torch.float32, False), world))
    with pytest.raises(ValueError, match="already"):
        parallelize_module(once, mesh, ExpertTensorParallel())
    with pytest.raises(ValueError, match=r"takes experts .*got a Linear\. Hint: quantize_ first"):
        parallelize_module(nn.Linear(4, 4), mesh, ExpertParallel())
    with pytest.raises(ValueError, match=r"input_layouts must be Replicate\(\) or Shard\(0\)"):
        ExpertParallel(input_layouts=Shard(1))
    with pytest.raises(ValueError, match="all_reduce must be one of"):
        ExpertParallel(input_layouts=Replicate(), all_reduce="nccl")
    sorted_rows = experts_of("llama4", "w4a16", world, 64, torch.float32)
    with pytest.raises(ValueError, match="sorted rows"):
        shared(sorted_rows, "exchanged", mesh)


def main(rank: int, store: str) -> None:
    mesh = ranks.join(rank, store)
    world = mesh.size()
    drawn = [draw(world, SEED * 1000 + seed) for seed in range(CASES)]
    cases = {f"{i}: {case}": partial(check, case, mesh) for i, case in enumerate(drawn)}
    for way in STYLES:
        cases[f"lattice, {way}"] = partial(lattice, way, mesh)  # type: ignore[assignment]
        cases[f"stacked, {way}"] = partial(stacked, way, mesh)  # type: ignore[assignment]
    cases["rows sent"] = partial(rows_sent, mesh)  # type: ignore[assignment]
    cases["refusals"] = partial(refusals, mesh)  # type: ignore[assignment]
    ranks.try_all(cases)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
