"""Tensor parallelism: slices of a Linear against the whole one, and DTensor's rules, on two
processes with gloo.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import mixed_gemm

if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)
from mixed_gemm.nn.distributed import colwise, rowwise

WORLD = 2
SCHEMES: list[dict[str, Any]] = [
    {"bits": 4, "group_size": 32, "symmetric": False},
    {"bits": 8, "group_size": -1, "symmetric": True},
    {"bits": 4, "group_size": 48, "symmetric": False, "zero_mode": "add"},
]


def whole(**scheme: Any) -> mixed_gemm.Linear:
    torch.manual_seed(1)
    linear = mixed_gemm.Linear.from_float(torch.nn.Linear(192, 128), **scheme)
    linear.pre_scale = 0.5 + torch.rand(192)
    return linear


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colwise_parts_make_the_whole_output(scheme: dict[str, Any]) -> None:
    linear, x = whole(**scheme), torch.randn(5, 192)
    parts = [colwise(linear, rank, WORLD)(x) for rank in range(WORLD)]
    torch.testing.assert_close(torch.cat(parts, -1), linear(x))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rowwise_parts_sum_to_the_whole_output(scheme: dict[str, Any]) -> None:
    linear, x = whole(**scheme), torch.randn(5, 192)
    parts = [rowwise(linear, rank, WORLD) for rank in range(WORLD)]
    sums = [part.local(x[:, i * 96 : (i + 1) * 96]) for i, part in enumerate(parts)]
    torch.testing.assert_close(sums[0] + sums[1] + parts[0].bias, linear(x))


def test_colwise_keeps_the_permutation_and_rowwise_refuses_it() -> None:
    linear = whole(bits=4, group_size=32)
    linear.permutation = torch.randperm(192)
    x = torch.randn(2, 192)
    parts = [colwise(linear, rank, WORLD)(x) for rank in range(WORLD)]
    torch.testing.assert_close(torch.cat(parts, -1), linear(x))
    with pytest.raises(ValueError, match="permutation"):
        rowwise(linear, 0, WORLD)


def test_parts_that_do_not_fit_are_refused() -> None:
    linear = whole(bits=4, group_size=64)
    with pytest.raises(ValueError, match="out_features=128 must be a multiple of 1 for each of 3"):
        colwise(linear, 0, 3)
    with pytest.raises(ValueError, match="in_features=192 must be a multiple of 64 for each of 2"):
        rowwise(linear, 0, WORLD)
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.1, got 2"):
        colwise(linear, 2, WORLD)


TWO_PROCESSES = """
import os
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import mixed_gemm
from mixed_gemm.nn.distributed import colwise, rowwise

rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group(
    "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=120)
)
torch.manual_seed(0)
first = mixed_gemm.Linear.from_float(torch.nn.Linear(64, 192), 4, 32, symmetric=False)
second = mixed_gemm.Linear.from_float(torch.nn.Linear(192, 64), 8, -1)
x = torch.randn(6, 64)

# a colwise layer, then a rowwise one, forward and backward
a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
out = rowwise(second, rank, 2)(torch.relu(colwise(first, rank, 2)(a)))
exact = second(torch.relu(first(b)))
torch.testing.assert_close(out, exact)
out.sum().backward()
exact.sum().backward()
grad = a.grad.clone()
dist.all_reduce(grad)  # the input of a colwise layer is everyone's: its gradient is the sum
torch.testing.assert_close(grad, b.grad, rtol=1e-4, atol=1e-5)

# DTensor: outputs are where the rules say, and equal
mesh = init_device_mesh("cpu", (2,))
linear = mixed_gemm.Linear.from_float(torch.nn.Linear(64, 256), 4, 32, symmetric=False)
args = (linear.b_packed, linear.scales, linear.zeros, linear.bias.detach())
options = {"bits": 4, "group_size": 32}
want = mixed_gemm.fpA_intB_gemm(x, *args, **options)


def run(row, packed, group, channel):
    places = (packed, group, group, channel)
    tensors = [distribute_tensor(t, mesh, [p]) for t, p in zip(args, places, strict=True)]
    a = distribute_tensor(x, mesh, [row])
    return torch.ops.mixed_gemm.fpA_intB_gemm(a, *tensors, **options)


whole = Replicate()
for places, expected in (
    ((whole, Shard(0), Shard(1), Shard(0)), Shard(1)),
    ((Shard(0), whole, whole, whole), Shard(0)),
    ((whole, whole, whole, whole), whole),
):
    out = run(*places)
    assert out.placements == (expected,), (places, out.placements)
    torch.testing.assert_close(out.full_tensor(), want)
# K cut: no rule, so DTensor gathers it first
torch.testing.assert_close(run(Shard(1), whole, whole, whole).full_tensor(), want)
dist.destroy_process_group()
print("done", flush=True)
# Not through the interpreter's end: DTensor's caches keep the group, and so gloo's threads, alive.
# One that drops the last reference to a collective's tensor by then aborts the process, since a
# thread that asks for the GIL of a finalizing interpreter is ended within a noexcept destructor
# (seen in a core dump, torch 2.13, Python 3.11: one process in 20).
os._exit(0)
"""


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="no gloo")
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    # One thread each: the machine may have one core. Loopback: gloo would resolve the host's name,
    # which containers without a network cannot.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_PROCESSES, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(WORLD)
    ]
    try:
        # A rank that fails closes its connection, so the other one fails too, and does not wait.
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, output in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0 and "done\n" in output, "\n".join(
            text[-4000:] for text in outputs
        )
