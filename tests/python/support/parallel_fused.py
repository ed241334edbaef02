"""Layers that are fused, and then spread over ranks by torch, in one of several processes.

    python -m support.parallel_fused RANK STORE

prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done".
"""

from __future__ import annotations

import copy
import sys
from functools import partial
from typing import Any

import torch
from support import ranks
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.nn.joint import Joint
from mixed_gemm.nn.plain_mlp import PlainMLP

K = 64


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name in ("q", "k", "v"):
            dense = nn.Linear(K, 128)
            setattr(self, name, mixed_gemm.Linear.from_float(dense, group_size=32))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.q(x), self.k(x), self.v(x)


def models() -> tuple[Any, Any, Tensor]:
    """(fused, apart, activations)."""
    apart = Attention().eval()
    model: Any = copy.deepcopy(apart)
    Joint([model.q, model.k, model.v])
    assert all(x.piece is not None for x in (model.q, model.k, model.v))
    return model, apart, torch.randn(3, K)


def tensor_parallel(mesh: Any) -> None:
    """Each rank multiplies by its rows."""
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model, apart, x = models()
    rank, size = mesh.get_local_rank(), 128 // mesh.size()
    for name in ("q", "k"):
        parallelize_module(model, mesh, {name: ColwiseParallel()})
    found, wanted = model(x), apart(x)
    for i, (mine, other) in enumerate(zip(found, wanted, strict=True)):
        assert torch.equal(mine, other[:, rank * size :][:, :size] if i < 2 else other), i
    report = mixed_gemm.fuse_(model, example_inputs=x)
    assert not report.sets
    assert report.apart["q"] == (
        "its weight is spread over ranks. Hint: each rank runs its shard by itself"
    )


def sharded(mesh: Any) -> None:
    """FSDP2 gathers the weights of each layer for its forward."""
    from torch.distributed.fsdp import fully_shard

    model, apart, x = models()
    fully_shard(model, mesh=mesh)
    assert all(map(torch.equal, model(x), apart(x)))


def replicated(mesh: Any) -> None:
    """DDP broadcasts the parameters, and leaves the layers joined."""
    model, apart, x = models()
    wrapped = nn.parallel.DistributedDataParallel(model)
    assert all(map(torch.equal, wrapped(x), apart(x)))
    assert model.q.piece is not None


def mlps() -> tuple[Any, Any, Tensor]:
    """(in three ops, one by one, activations); with relu they have the same bits."""
    torch.manual_seed(0)
    layers = [
        mixed_gemm.Linear.from_float(nn.Linear(*sizes), group_size=32)
        for sizes in ((K, 128), (K, 128), (128, K))
    ]
    apart = PlainMLP(*layers, "relu").eval()
    own = copy.deepcopy(apart)
    parts = own.gate_proj, own.up_proj, own.down_proj
    return mixed_gemm.GatedMLP.from_modules(*parts, activation="relu"), apart, torch.randn(3, K)


def tensor_parallel_mlp(mesh: Any) -> None:
    """Each rank has its columns of what is between the products, by the code of the MLP."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    from mixed_gemm.parallel import RowwiseParallel as Overlapped

    for rowwise in (RowwiseParallel, Overlapped):
        model, apart, x = mlps()
        wanted = apart(x)
        plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel()}
        parallelize_module(model, mesh, {**plan, "down_proj": rowwise()})
        assert torch.allclose(model(x), wanted, atol=1e-5)
        report = mixed_gemm.fuse_(model, example_inputs=x, mlps=True)
        assert not report.mlps
        assert "spread over ranks" in report.apart["gate_proj"], report.apart


def sharded_mlp(mesh: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    model, apart, x = mlps()
    fully_shard(model, mesh=mesh)
    assert torch.equal(model(x), apart(x))
    mixed_gemm.unfuse_(model)
    assert torch.equal(model(x), apart(x))


def replicated_mlp(mesh: Any) -> None:
    model, apart, x = mlps()
    wrapped = nn.parallel.DistributedDataParallel(model)
    assert torch.equal(wrapped(x), apart(x))


def main(rank: int, store: str) -> None:
    mesh = ranks.join(rank, store)
    cases = (
        tensor_parallel, sharded, replicated, tensor_parallel_mlp, sharded_mlp, replicated_mlp
    )  # fmt: skip
    torch.set_grad_enabled(False)
    ranks.try_all({case.__name__: partial(case, mesh) for case in cases})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
