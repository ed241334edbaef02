"""Quantized weights over processes: slices against the whole, torch's own tensor parallelism and
FSDP2, on two processes with gloo.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import ranks

import mixed_gemm

if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)
from mixed_gemm import QuantizedTensor

SCHEMES: list[dict[str, Any]] = [
    {"bits": 4, "group_size": 32, "symmetric": False},
    {"bits": 8, "group_size": -1, "symmetric": True},
    {"bits": 4, "group_size": 48, "symmetric": False, "zero_mode": "add"},
    {"scheme": "w8a8"},
    {"scheme": "w8a8", "activations": "dynamic_azp"},
    {"scheme": "fp8"},
    {"scheme": "w8a8_block", "group_size": 48, "symmetric": False},
]
BY_GROUP = [*SCHEMES[:3], SCHEMES[-1]]


def whole(n: int = 128, **scheme: Any) -> QuantizedTensor:
    torch.manual_seed(1)
    weight = mixed_gemm.Linear.from_float(torch.nn.Linear(192, n), **scheme).weight
    weight.pre_scale = 0.5 + torch.rand(192)  # type: ignore[attr-defined]
    return weight


@pytest.mark.parametrize("n", [128, 100])  # rows in whole blocks of 64, and not
@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_are_those_of_the_whole_and_join_again(scheme: dict[str, Any], n: int) -> None:
    weight, x = whole(n, **scheme), torch.randn(5, 192)
    parts = [weight.cut(0, 0, n // 2), weight.cut(0, n // 2, n)]
    assert torch.equal(torch.cat([part.dequantize() for part in parts]), weight.dequantize())
    torch.testing.assert_close(
        torch.cat([part.product(x) for part in parts], -1), weight.product(x)
    )
    again = type(weight).join(parts)
    assert all(torch.equal(t, again.tensors()[name]) for name, t in weight.tensors().items())


@pytest.mark.parametrize("scheme", BY_GROUP)
def test_columns_are_those_of_the_whole(scheme: dict[str, Any]) -> None:
    weight, x = whole(**scheme), torch.randn(5, 192)
    parts = [weight.cut(1, 0, 96), weight.cut(1, 96, 192)]
    assert torch.equal(torch.cat([part.dequantize() for part in parts], 1), weight.dequantize())
    sums = [part.product(x[:, i * 96 : (i + 1) * 96]) for i, part in enumerate(parts)]
    torch.testing.assert_close(sums[0] + sums[1], weight.product(x))


@pytest.mark.parametrize("scheme", BY_GROUP)
@pytest.mark.parametrize("width", [96, 64, 32, 192])
def test_columns_join_again(scheme: dict[str, Any], width: int) -> None:
    weight = whole(**scheme)
    parts = [weight.cut(1, at, at + width) for at in range(0, 192, width)]
    size = None if weight.scheme.group_size == -1 else weight.scheme.group_size
    again = type(weight).join_columns(parts, -1 if size is None else size)
    assert again.scheme == weight.scheme
    assert all(torch.equal(t, again.tensors()[name]) for name, t in weight.tensors().items())


@pytest.mark.parametrize(
    "scheme",
    [
        {"bits": 4, "group_size": 64, "symmetric": False},
        {"bits": 8, "group_size": 128},
        {"scheme": "w8a8_block", "group_size": 64, "symmetric": False},
        {"scheme": mixed_gemm.Scheme.fp8(None, strategy="block", block=(128, 80))},
    ],
)
def test_a_cut_through_a_group_makes_smaller_groups_of_the_same_values(
    scheme: dict[str, Any],
) -> None:
    weight = whole(**scheme)
    parts = [weight.cut(1, 0, 96), weight.cut(1, 96, 192)]
    assert parts[0].scheme == parts[1].scheme != weight.scheme
    assert torch.equal(torch.cat([x.dequantize() for x in parts], 1), weight.dequantize())
    block = weight.scheme.weights.block
    size = weight.scheme.group_size if block is None else block[1]
    again = type(weight).join_columns(parts, size)
    assert again.scheme == weight.scheme
    assert all(torch.equal(t, again.tensors()[name]) for name, t in weight.tensors().items())


def test_columns_of_a_permuted_weight_need_activations_of_the_whole_width() -> None:
    weight: Any = whole(bits=4, group_size=64)
    weight.permutation = torch.randperm(192)
    assert torch.equal(weight.cut(0, 0, 64).dequantize(), weight.dequantize()[:64])
    parts, x = [weight.cut(1, 0, 64), weight.cut(1, 64, 192)], torch.randn(5, 192)
    sums = [part.in_order().product(x.index_select(-1, part.permutation)) for part in parts]
    torch.testing.assert_close(sums[0] + sums[1], weight.product(x))
    with pytest.raises(ValueError, match=r"act-order.*activations of the whole width.*Hint"):
        parts[0].product(x[:, :64])
    again = type(parts[0]).join_columns(parts)
    assert torch.equal(again.dequantize(), weight.dequantize())


def test_cuts_that_do_not_fit_are_refused() -> None:
    weight = whole(bits=4, group_size=64)
    with pytest.raises(ValueError, match=r"columns 0 to 40 of 192 cut a group of 64.*Hint"):
        weight.cut(1, 0, 40)
    with pytest.raises(ValueError, match=r"columns cannot be filled up with zeros.*192.*Hint"):
        torch.nn.functional.pad(weight, (0, 1))
    blocks = whole(scheme=mixed_gemm.Scheme.fp8(None, strategy="block", block=(64, 64)))
    with pytest.raises(ValueError, match=r"rows of .* are shared out evenly only.*Hint"):
        torch.nn.functional.pad(blocks, (0, 0, 0, 3))
    padded = torch.nn.functional.pad(weight, (0, 0, 0, 3))
    assert type(padded) is type(weight) and not bool(padded.dequantize()[128:].any())


TWO_PROCESSES = """
import copy
import os
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import mixed_gemm
from support import ranks

rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group(
    "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=120)
)
mesh = init_device_mesh("cpu", (2,))


WEIGHT_ONLY = mixed_gemm.Scheme.fp8(None)
BLOCKS = mixed_gemm.Scheme.fp8(strategy="block", block=(128, 80))  # which shards cut in two
CUT = mixed_gemm.Scheme.fp8(None, strategy="block", block=(128, 80))
KEPT = mixed_gemm.Scheme.fp8(strategy="block", block=(128, 32))  # whole along K


def near(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


# Stock tensor parallelism: a column-wise layer, then a row-wise one, forward and backward.
for up, down in (
    ({"bits": 4, "group_size": 32, "symmetric": False}, {"bits": 8, "group_size": -1}),
    ({"scheme": "w8a8"}, {"bits": 4, "group_size": 32}),
    ({"scheme": "fp8"}, {"scheme": WEIGHT_ONLY}),
    ({"scheme": "w8a8_block", "group_size": 32}, {"scheme": "w8a8_block", "group_size": 48}),
    ({"scheme": BLOCKS}, {"scheme": CUT}),
    ({"scheme": CUT}, {"scheme": KEPT}),
):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        mixed_gemm.Linear.from_float(torch.nn.Linear(64, 192), **up),
        torch.nn.ReLU(),
        mixed_gemm.Linear.from_float(torch.nn.Linear(192, 80), **down),
    )
    exact = copy.deepcopy(net)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(net, mesh, plan)
    assert isinstance(net[0].weight, DTensor) and net[0].weight.to_local().shape == (96, 64)
    assert isinstance(net[0].weight.to_local(), mixed_gemm.QuantizedTensor)
    x = torch.randn(6, 64)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, want = net(a), exact(b)
    near(out, want)
    out.square().sum().backward()
    want.square().sum().backward()
    near(a.grad, b.grad)
    near(net[2].bias.grad.full_tensor(), exact[2].bias.grad)
    with torch.no_grad():
        near(net(x), want)

# FSDP2 of frozen quantized weights with adapters that train: one step is that of one process.
for scheme in (
    {"bits": 4, "group_size": 32, "symmetric": False},
    {"scheme": "w8a8"},
    {"scheme": "w8a8_block", "group_size": 32, "symmetric": False},
    {"scheme": "fp8"},
    {"scheme": BLOCKS},
):
    for width in (128, 100):  # rows in whole blocks of 64, and not
        torch.manual_seed(2)

        class Adapted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                dense = torch.nn.Linear(64, width)
                self.base = mixed_gemm.Linear.from_float(dense, **scheme).requires_grad_(False)
                self.down = torch.nn.Linear(64, 4, bias=False)
                self.up = torch.nn.Linear(4, width, bias=False)

            def forward(self, x):
                return self.base(x) + self.up(self.down(x))

        net = Adapted()
        exact = copy.deepcopy(net)
        fully_shard(net)
        shard = net.base.weight.to_local()
        assert isinstance(shard, mixed_gemm.QuantizedTensor) and shard.shape == (width // 2, 64)
        x = torch.randn(6, 64)
        steps = []
        for model in (net, exact):
            optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
            for _ in range(2):
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            steps.append((loss.detach(), model.up.weight.detach(), model(x).detach()))
        near(steps[0][0], steps[1][0])
        near(steps[0][1].full_tensor(), steps[1][1])
        near(steps[0][2], steps[1][2])
        with torch.no_grad():
            net.unshard()
            whole = net.base.weight
            assert torch.equal(whole.dequantize(), exact.base.weight.dequantize())
            if scheme.get("scheme") == BLOCKS:  # they became smaller
                continue
            for name, part in exact.base.weight.tensors().items():
                assert torch.equal(whole.tensors()[name], part), name

# Layers that FSDP2 gathers again for the backward pass, which multiplies by their weights.
for scheme in ({"group_size": 32}, {"scheme": "w8a8"}, {"scheme": "fp8"}, {"scheme": "nf4"}):
    torch.manual_seed(3)
    kind = mixed_gemm.Linear.from_float
    net = torch.nn.Sequential(*[kind(torch.nn.Linear(64, 64), **scheme) for _ in range(3)])
    exact = copy.deepcopy(net)
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    for _ in range(2):
        a, b = (torch.ones(6, 64, requires_grad=True) for _ in range(2))
        net(a).square().sum().backward()
        exact(b).square().sum().backward()
        near(a.grad, b.grad)
    with torch.inference_mode():
        near(net(torch.ones(2, 64)), exact(torch.ones(2, 64)))

# Ranks with different numbers of rows: refused by name, and nothing is lost on the way.
net = torch.nn.Sequential(mixed_gemm.Linear.from_float(torch.nn.Linear(64, 101), group_size=32))
exact = net[0].dequantize()
fully_shard(net)
mine = net[0].weight.to_local()
assert torch.equal(mine.dequantize(), exact[51 * rank : 51 * rank + mine.shape[0]])
try:
    net(torch.randn(2, 64))
except ValueError as error:
    assert "over 2 ranks needs a number of output channels that they divide, got 101" in str(error)
else:
    raise AssertionError("an uneven shard was gathered")

dist.destroy_process_group()
ranks.leave()
"""


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="no gloo")
def test_several_processes_agree_with_one(tmp_path: Path) -> None:
    ranks.run(["-c", TWO_PROCESSES], tmp_path)
