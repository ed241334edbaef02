"""Layers of every scheme under torch's parallelize_module, in one of several processes, against the
same pieces multiplied by this process alone.

    python -m support.parallel_layers RANK STORE

prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done". Cases are drawn, each
property by itself, from a seed that all ranks share.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from compiled_layers import Spy
from support import ranks
from torch import Tensor

import mixed_gemm
from mixed_gemm import QuantizedTensor, Scheme, reference
from mixed_gemm.reference.gemm import LAM

CASES = int(os.environ.get("MIXED_GEMM_PARALLEL_CASES", "40"))
COMPILED = int(os.environ.get("MIXED_GEMM_PARALLEL_COMPILED", "4"))  # each takes seconds
SEED = int(os.environ.get("MIXED_GEMM_PARALLEL_SEED", "0"))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SCHEMES: dict[str, dict[str, Any]] = {
    "w4 group": {"bits": 4, "group_size": 32},
    "w4 group sub": {"bits": 4, "group_size": 64, "symmetric": False},
    "w4 group add": {"bits": 4, "group_size": 16, "symmetric": False, "zero_mode": "add"},
    "w4 channel": {"bits": 4, "group_size": -1},
    "w8 group": {"bits": 8, "group_size": 128},
    "w8 channel sub": {"bits": 8, "group_size": -1, "symmetric": False},
    "w8a8 dynamic": {"scheme": "w8a8"},
    "w8a8 dynamic_azp": {"scheme": "w8a8", "activations": "dynamic_azp"},
    "w8a8 static": {"scheme": "w8a8", "activations": "static", "input_range": (-3.0, 3.5)},
    "w8a8 static_azp": {"scheme": "w8a8", "activations": "static_azp", "input_range": (-3.0, 4.0)},
    "w8a8_block": {"scheme": "w8a8_block", "group_size": 32},
    "w8a8_block offsets": {"scheme": "w8a8_block", "group_size": 64, "symmetric": False},
    "fp8 dynamic": {"scheme": "fp8"},
    "fp8 weight-only": {"scheme": Scheme.fp8(None)},
    "fp8 tensor": {"scheme": Scheme.fp8(None, strategy="tensor")},
    "fp8 block": {"scheme": Scheme.fp8(strategy="block", block=(64, 48))},
    "dense": {},
}


@dataclass(frozen=True)
class Case:
    scheme: str
    style: str  # "colwise" or "rowwise"
    n: int
    k: int
    rows: tuple[int, ...]
    dtype: torch.dtype
    bias: bool
    pre_scale: bool
    act_order: bool
    given: str  # how the input comes: "usual", "sequence" (rows), "other"
    wanted: str  # how the output goes: the same
    use_local_output: bool
    trains: bool
    compiled: bool

    def __str__(self) -> str:
        yes = [x for x in ("bias", "pre_scale", "act_order", "use_local_output", "trains",
                           "compiled") if getattr(self, x)]  # fmt: skip
        return (
            f"{self.scheme}, {self.style}, {self.n} x {self.k} @ {self.rows}, {self.dtype}, "
            f"{self.given} -> {self.wanted}, {' '.join(yes)}"
        )


def draw(world: int, seed: int) -> Case:
    pick = random.Random(seed)
    scheme, style = pick.choice(list(SCHEMES)), pick.choice(["colwise", "rowwise"])
    integers = scheme.startswith(("w4", "w8 "))
    n = pick.choice([64 * world, 128 * world, 48 * world, 64 * world + pick.choice([0, 4, 37])])
    k = world * pick.choice([16, 32, 48, 64, 128, 192, 256])
    if style == "rowwise":
        n = pick.choice([n, 100, 72])
    if scheme == "fp8 block" and style == "colwise":  # whose rows are shared out evenly
        n = 128 * world
    rows = pick.choice([(world * pick.choice([1, 3]),), (2, world * 2), (world, 3)])
    return Case(
        scheme=scheme,
        style=style,
        n=n,
        k=max(k, 192),
        rows=rows,
        dtype=pick.choice(DTYPES),
        bias=pick.random() < 0.5,
        pre_scale=pick.random() < 0.4 and not scheme.startswith(("fp8", "dense")),
        act_order=pick.random() < 0.3 and integers and "channel" not in scheme,
        given=pick.choice(["usual", "usual", "sequence", "other"]),
        wanted=pick.choice(["usual", "usual", "sequence", "other"]),
        use_local_output=pick.random() < 0.6,
        trains=pick.random() < 0.6,
        compiled=False,
    )


def layer_of(case: Case) -> Any:
    torch.manual_seed(hash((case.n, case.k)) % 1000)
    dense = torch.nn.Linear(case.k, case.n, bias=case.bias, dtype=case.dtype)
    if case.scheme == "dense":
        return dense
    layer = mixed_gemm.Linear.from_float(dense, **SCHEMES[case.scheme])
    weight: Any = layer.weight
    if case.pre_scale:
        weight.pre_scale = (0.5 + torch.rand(case.k)).to(case.dtype)
    if case.act_order:
        weight.permutation = torch.randperm(case.k)
    return layer


def pieces_of(layer: Any, style: str, world: int) -> list[Any]:
    """(weight, permutation of the whole's activations or None) of each rank."""
    dim, weight = (0 if style == "colwise" else 1), layer.weight
    size = -(-weight.shape[dim] // world)
    spans = [(i * size, min((i + 1) * size, weight.shape[dim])) for i in range(world)]
    found = []
    for start, stop in spans:
        if not isinstance(weight, QuantizedTensor):
            found.append((weight.detach().narrow(dim, start, stop - start), None))
            continue
        piece: Any = weight.cut(dim, start, stop)
        order = getattr(piece, "permutation", None) if dim else None
        if order is not None:
            piece = piece.in_order() if hasattr(piece, "in_order") else _without_order(piece)
        found.append((piece, order))
    return found


def _without_order(weight: Any) -> Any:
    parts = {**weight.tensors(), "permutation": None}
    return type(weight)(parts, weight.scheme, weight.shape, weight.dtype)


def multiplied(weight: Any, x: Tensor) -> Tensor:
    if isinstance(weight, QuantizedTensor):
        return weight.product(x)
    return torch.nn.functional.linear(x, weight)


@dataclass(frozen=True)
class Wanted:
    """A sum that one process finds.

    pieces: the magnitudes of what the ranks add up, float64. terms: |x| @ |w| of all that was
    summed. count: how many products each sum has. walk: the deviation of a sum whose weights were
    rounded twice, in units of u: a gradient may come from the dense weight, rounded with its
    pre_scale or without.
    """

    value: Tensor
    pieces: Tensor
    terms: Tensor
    count: int
    walk: Tensor | float = 0.0


def wanted(case: Case, layer: Any, x: Tensor, world: int) -> tuple[Wanted, Wanted]:
    """(the result, the gradient of the input)."""
    outs, grads, dense = [], [], []
    dy = torch.ones(*case.rows, case.n, dtype=case.dtype, device=x.device) / 4
    share, start = case.k // world, 0
    for i, (weight, order) in enumerate(pieces_of(layer, case.style, world)):
        a = x.clone().requires_grad_()
        if case.style == "colwise":
            out = multiplied(weight, a)
            out.backward(dy[..., start : start + out.shape[-1]])
            start += out.shape[-1]
        else:
            columns = slice(i * share, (i + 1) * share)
            given = a[..., columns] if order is None else a.index_select(-1, order)
            out = multiplied(weight, given)
            out.backward(dy)
        outs.append(out.detach())
        assert a.grad is not None
        grads.append(a.grad)
    whole = layer.weight
    values = whole.dequantize(torch.float32) if case.scheme != "dense" else whole.detach()
    dense = values.double().abs()
    bias = None if layer.bias is None else layer.bias.detach()
    if case.style == "colwise":
        value = torch.cat(outs, -1)
        pieces = value.abs().double()
    else:
        value, pieces = sum(outs[1:], outs[0]), torch.stack([x.double().abs() for x in outs]).sum(0)
    if bias is not None:
        value, pieces = value + bias, pieces + bias.abs().double()
    total = torch.stack([g.double() for g in grads])
    return (
        Wanted(value, pieces, x.double().abs() @ dense.t(), case.k),
        Wanted(
            total.sum(0),
            total.abs().sum(0),
            dy.double() @ dense,
            case.n,
            (2 * dy.double().square() @ dense.square()).sqrt(),
        ),
    )


def near(found: Tensor, want: Wanted, roundings: int) -> None:
    """As far apart as so many roundings of the pieces allow, rounded operands and another order of
    sums in float32: the first two terms of the bound in docs/numerics.md."""
    found, value = found.detach(), want.value.detach()
    assert found.shape == value.shape, (found.shape, value.shape)
    u = ROUNDING[found.dtype]
    allowed = u * (roundings * want.pieces + LAM * want.walk)
    allowed = allowed + (want.count / 16 + 5) * 2.0**-23 * want.terms
    apart = ((found.double() - value.double()).abs() / (allowed + 1e-30)).max()
    assert float(apart) <= 1, f"{float(apart)} of what {roundings} roundings allow"


def check(case: Case, mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    world, device = mesh.size(), ranks.DEVICE
    layer = layer_of(case).to(device)
    x = torch.randn(*case.rows, case.k, dtype=case.dtype).to(device)
    want, slope = wanted(case, layer, x, world)
    last, rows = len(case.rows), (1 if len(case.rows) == 2 and case.rows[1] % world == 0 else 0)
    column = case.style == "colwise"
    layouts: dict[str, Any] = {"sequence": Shard(rows)}
    given = {**layouts, "usual": Replicate() if column else Shard(last),
             "other": Shard(last) if column else Replicate()}[case.given]  # fmt: skip
    to = {**layouts, "usual": Shard(last) if column else Replicate(),
          "other": Replicate() if column else Shard(last)}[case.wanted]  # fmt: skip
    if isinstance(to, Shard) and to.dim == rows and case.rows[rows] % world:
        to = Replicate()
    if case.n % world and to == Shard(last):
        to = Replicate()
    if isinstance(given, Shard) and given.dim == rows and case.rows[rows] % world:
        given = Replicate()
    style = (ColwiseParallel if column else RowwiseParallel)(
        input_layouts=given, output_layouts=to, use_local_output=case.use_local_output
    )
    exact = layer_of(case).to(device)
    net = parallelize_module(torch.nn.Sequential(layer), mesh, {"0": style})
    weight = net[0].weight
    assert isinstance(weight, DTensor) and weight.shape == (case.n, case.k)
    if case.scheme != "dense":
        assert isinstance(weight.to_local(), QuantizedTensor)
    call = net
    if case.compiled:
        torch._dynamo.reset()
        spy = Spy("aot_eager")
        call = torch.compile(net, backend=spy, fullgraph=True)
    a = distribute_tensor(x, mesh, [given]).to_local().contiguous().requires_grad_(case.trains)
    with torch.set_grad_enabled(case.trains):
        out = call(a)
    assert isinstance(out, DTensor) != case.use_local_output
    if case.compiled and plain_share_runs(case, world):
        assert spy.subclasses <= case.bias, f"{spy.subclasses} subclasses are inputs"
    spread = DTensor.from_local(out, mesh, [to], run_check=False) if case.use_local_output else out
    assert spread.placements == (to,)
    found = spread.full_tensor()
    near(found, want, 2 if column else world + 3)
    if case.trains:
        dy = torch.ones(*case.rows, case.n, dtype=case.dtype, device=device) / 4
        share = distribute_tensor(dy, mesh, [to])
        out.backward(share.to_local() if case.use_local_output else share)
        # A replicated input's gradient is the same on all ranks; DTensor leaves it whole.
        grad = DTensor.from_local(a.grad, mesh, [given], run_check=False).full_tensor()
        near(grad, slope, world + 3)
        if case.bias:
            bias: Any = net[0].bias
            torch.testing.assert_close(
                bias.grad.full_tensor(), dy.sum(tuple(range(last))), msg="gradient of the bias"
            )
    bounded(case, exact, x, found)


def plain_share_runs(case: Case, world: int) -> bool:
    """Whether a compiled graph has the parts of the share for inputs: it is as large as the others,
    and no gradient of a bias passes through the sum over the ranks."""
    if case.scheme == "dense":
        return False
    column = case.style == "colwise"
    even = (case.n if column else case.k) % world == 0
    return even and (column or not (case.bias and case.trains))


def bounded(case: Case, layer: Any, x: Tensor, found: Tensor) -> None:
    """Integers against float64: within the bounds of all pieces, and the rounding of their sum."""
    weight = layer.weight
    if not isinstance(weight, mixed_gemm.weights.IntegerWeight):
        return
    plain, permutation = weight.unpacked(), weight.permutation
    if permutation is not None:
        weight = _without_order(weight)
    a = x if plain.permutation is None else x.index_select(-1, plain.permutation)
    world = int(os.environ["WORLD_SIZE"]) if case.style == "rowwise" else 1
    expected, bound = 0.0, 0.0
    options = {"group_size": plain.group_size, "zero_mode": weight.scheme.op_zero_mode}
    bias = None if layer.bias is None else layer.bias.detach().cpu()
    exact = reference.fpA_intB_gemm(
        a.cpu(), plain.q.cpu(), plain.scales.cpu(), _cpu(plain.zeros), bias,
        _cpu(plain.pre_scale), **options,
    )  # fmt: skip
    size = case.k // world
    for i in range(world):
        piece: Any = weight.cut(1, i * size, (i + 1) * size) if world > 1 else weight
        part = piece.unpacked()
        operands = (
            a[..., i * size : (i + 1) * size].cpu() if world > 1 else a.cpu(),
            part.q.cpu(), part.scales.cpu(), _cpu(part.zeros),
            bias if world == 1 else None, _cpu(part.pre_scale),
        )  # fmt: skip
        piece_options = {**options, "group_size": part.group_size}
        bound = bound + reference.error_bound(*operands, **piece_options)
        expected = expected + reference.fpA_intB_gemm(*operands, **piece_options).abs()
    if world > 1:
        rounded = expected if bias is None else expected + bias.double().abs()
        bound = bound + (world + 1) * ROUNDING[case.dtype] * rounded
    elif bias is not None:  # DTensor may add it after the product is rounded
        bound = bound + 2 * ROUNDING[case.dtype] * (expected + bias.double().abs())
    ratio = ((found.cpu().double() - exact).abs() / bound).max()
    assert ratio <= 1, f"{float(ratio)} of the bound"


def _cpu(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.cpu()


def swapped(mesh: Any) -> None:
    """torch refuses to exchange a weight that is spread, since the layer multiplies by its parts;
    converting the layer, which exchanges it too where torch is told to, is no outside."""
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    def spread() -> torch.nn.Module:
        layer = mixed_gemm.Linear.from_float(torch.nn.Linear(64, 64), "w8a16")
        return parallelize_module(torch.nn.Sequential(layer), mesh, {"0": ColwiseParallel()})

    net, other, x = spread(), spread(), torch.randn(3, 64)
    want = net(x)
    try:
        torch.utils.swap_tensors(net[0].weight, other[0].weight)
        raise AssertionError("a spread weight was exchanged")
    except RuntimeError as error:
        assert "weakref" in str(error), error
    assert torch.equal(net(x), want)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.to(torch.bfloat16)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    found = net(x.bfloat16())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), want, rtol=0.02, atol=0.02)


def main(rank: int, store: str) -> None:
    mesh = ranks.join(rank, store)
    world = mesh.size()
    from dataclasses import replace

    cases = [draw(world, 1000 * SEED + i) for i in range(CASES)]
    cases += [replace(draw(world, 1000 * SEED + 500 + i), compiled=True) for i in range(COMPILED)]
    tried = {str(case): partial(check, case, mesh) for case in cases}
    ranks.try_all({**tried, "swapped": partial(swapped, mesh)})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
