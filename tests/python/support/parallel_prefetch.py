"""RowwiseParallel(followed_by=...) eager and compiled as one graph, in one of several processes.

    python -m support.parallel_prefetch RANK STORE

Nothing is brought into a cache on a CPU; what is tried is that the weight of the layer behind is
found where a plan has sharded it, and that it changes no result.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from support import ranks
from torch import nn
from torch.distributed.tensor import parallel

import mixed_gemm
from mixed_gemm.parallel import AllReduce, RowwiseParallel
from mixed_gemm.parallel.prefetch import first_bytes


def followed(bits: int | None, mesh: Any, rank: int) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(256, 128).bfloat16(), nn.Linear(128, 256).bfloat16()]
    if bits is not None:
        layers = [mixed_gemm.Linear.from_float(x, bits=bits, group_size=64) for x in layers]
    model = nn.Sequential(*layers).requires_grad_(False)
    style = RowwiseParallel(followed_by=model[1], prefetch_bytes=2**20)
    parallel.parallelize_module(model, mesh, {"0": style, "1": parallel.ColwiseParallel()})
    rows = {None: (128, 256), 4: (32, 256), 8: (64, 256)}[bits]  # of this rank's half
    found = first_bytes(model[1].weight, 2**20)
    assert found is not None and found.shape == rows, found
    x = torch.randn(4, 256, dtype=torch.bfloat16).chunk(2, -1)[rank].contiguous()
    want = model[0](x)
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(model[0], fullgraph=True, backend="aot_eager", dynamic=dynamic)
        assert torch.equal(compiled(x), want)
        assert compiled(x[:3]).shape == (3, 128)


def main() -> None:
    rank = int(sys.argv[1])
    mesh = ranks.join(rank, sys.argv[2])
    AllReduce.prefetches = lambda *_: True  # type: ignore[method-assign]  # as "push" does
    ranks.try_all({str(bits): partial(followed, bits, mesh, rank) for bits in (None, 4, 8)})


if __name__ == "__main__":
    main()
