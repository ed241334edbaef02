"""Every op with a sharding rule on DTensors, in one of two processes: each way of its record, and
tensors that are cut in any other way, against the same call on plain tensors.

    python -m support.sharded_calls RANK STORE

prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done".
"""

from __future__ import annotations

import sys
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from problems import registry
from problems.lattice import TORCH, Sample
from support import ranks
from torch import Tensor

FP8 = torch.float8_e4m3fn
RANKS = 2
CALLS = registry.SHARDED


def check(call: Sample, mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    from mixed_gemm.distributed.op_rules import of_type
    from mixed_gemm.ops.registry import OPS as RECORDS

    (sharding,) = (op.sharding for op in RECORDS if op.name == call.op)
    assert not isinstance(sharding, str)
    op = getattr(TORCH, call.op)
    tensors = {name: x for name, x in call.arguments.items() if isinstance(x, Tensor)}
    whole = dict.fromkeys(tensors)

    def place(x: Tensor, dim: int | None) -> DTensor:
        # A column-major matrix is the view of a row-major one, on every rank too.
        flip = x.dim() == 2 and x.stride(0) == 1 < x.stride(1)
        placement = Replicate() if dim is None else Shard(1 - dim if flip else dim)
        given = x.t() if flip else x
        as_bytes = given.view(torch.uint8) if x.dtype == FP8 else given  # gloo knows no float8
        found = distribute_tensor(as_bytes, mesh, [placement])
        found = of_type(found, FP8) if x.dtype == FP8 else found
        return found.t() if flip else found

    def run(dims: dict[str, int | None], result: int | None = None, exact: bool = False,
            summed: bool = False) -> None:  # fmt: skip
        """dims: argument -> the dimension that is cut; result: that of the result, or summed."""
        training = bool(call.trains)
        given = {name: place(x, dims[name]) for name, x in tensors.items()}
        plain = {name: x.clone() for name, x in tensors.items()}
        for name in call.trains:
            given[name].requires_grad_()
            plain[name].requires_grad_()
        out = op(**{**call.arguments, **given})
        want = op(**{**call.arguments, **plain})
        outs, wants = ((x,) if isinstance(x, Tensor) else x for x in (out, want))
        for mine, theirs in zip(outs, wants, strict=True):
            assert (mine is None) == (theirs is None)
            if theirs is None:
                continue
            if exact:
                expected = Replicate() if result is None else Shard(result % theirs.dim())
                expected = Partial() if summed else expected
                assert mine.placements == (expected,), (dims, mine.placements)
            assert mine.shape == theirs.shape and mine.stride() == theirs.stride(), dims
            if theirs.dtype == FP8:
                mine, theirs = of_type(mine, torch.uint8), theirs.view(torch.uint8)
            assert torch.equal(mine.full_tensor(), theirs), dims
        if training:
            out.square().sum().backward()
            want.square().sum().backward()
            for name in call.trains:
                torch.testing.assert_close(given[name].grad.full_tensor(), plain[name].grad)

    sizes = {name: tuple(x.shape) for name, x in tensors.items()}
    sizes |= {name: (x,) for name, x in call.arguments.items() if type(x) is int}
    sizes |= {name: tuple(x) for name, x in call.arguments.items() if type(x) is list}
    if call.arguments.get("activation", "identity") != "identity":
        sizes["activation"] = ()
    for cut in sharding.cuts(sizes, RANKS):
        run({**whole, **{name: d for name, d in cut.dims.items() if name in tensors}},
            cut.result, exact=True, summed=cut.summed)  # fmt: skip
    for name, x in tensors.items():
        for dim in range(x.dim()):
            if x.shape[dim] % RANKS == 0:
                run({**whole, name: dim})
    run({name: 0 if x.dim() and x.shape[0] > 1 else None for name, x in tensors.items()})


def main(rank: int, store: str) -> None:
    import mixed_gemm

    assert mixed_gemm.__version__
    assert "torch.distributed.tensor" not in sys.modules
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, RANKS),
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=300),
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    for name, make in CALLS.items():
        torch.manual_seed(0)
        try:
            check(make(), mesh)
            print(f"{name}: ok", flush=True)
        except Exception:
            print(f"{name}: {traceback.format_exc()!r}", flush=True)
    dist.destroy_process_group()
    ranks.leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
