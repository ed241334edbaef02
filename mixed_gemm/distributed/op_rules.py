"""The ops on DTensors: every rank calls the op with its shard, as the ``sharding`` of the op's
record says.

DTensor's own ``register_sharding`` is not enough here: it remembers the shape of a result by the
integer arguments alone, so that a convolution with another stride gets the shape of the first; it
cannot change an argument that counts rows; and a matrix that it gathers is row-major.

Importing this imports torch.distributed.tensor, which takes longer than all of ``mixed_gemm``: so
``__init__`` does it once somebody else has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement
from torch.utils._pytree import tree_map_only

from ..ops.errors import ArgumentTypeError, ArgumentValueError
from ..ops.sharding import Cut, Sharding

_Tensors = dict[str, DTensor]


def _only_distributed(op: str, given: Mapping[str, Any]) -> _Tensors:
    """The tensors of a call, which must be on one mesh.

    Raises:
        TypeError: one is a plain tensor.
        ValueError: they are on several meshes.
    """
    for name, x in given.items():
        if isinstance(x, Tensor) and not isinstance(x, DTensor):
            raise ArgumentTypeError(
                f"{op}: {name} must be a DTensor as other arguments are, got a plain tensor. Hint: "
                "distribute_tensor(x, mesh, [Replicate()]) where every rank has it"
            )
    tensors = {name: x for name, x in given.items() if isinstance(x, DTensor)}
    meshes = {name: x.device_mesh for name, x in tensors.items()}
    (first, mesh), *others = meshes.items()
    for name, other in others:
        if other != mesh:
            raise ArgumentValueError(
                f"{op}: all tensors must be on one device mesh, got {first} on {mesh} and {name} "
                f"on {other}"
            )
    return tensors


def _traffic(x: DTensor, now: Placement, wanted: Placement, ranks: int) -> float:
    """About how many bytes a rank receives when a placement changes."""
    size = float(math.prod(x.shape) * x.element_size())
    if now == wanted or isinstance(now, Replicate):
        return 0.0
    if isinstance(wanted, Shard):
        return size / ranks
    return 2 * size if isinstance(now, Partial) else size


def _plan(given: Mapping[str, Any], tensors: _Tensors, sharding: Sharding) -> list[Cut]:
    """Choose for every dimension of the mesh the cut that moves the fewest bytes, and then changes
    the fewest placements."""
    mesh = next(iter(tensors.values())).device_mesh
    sizes: dict[str, tuple[int, ...]] = {name: tuple(x.shape) for name, x in tensors.items()}
    counts = {name: x for name, x in given.items() if isinstance(x, (int, torch.SymInt))}
    sizes |= {name: (cast(int, count),) for name, count in counts.items()}
    if isinstance(given.get("block_size"), (list, tuple)):
        sizes["block_size"] = tuple(given["block_size"])
    if given.get("activation") not in (None, "identity"):
        sizes["activation"] = ()
    chosen = []
    for mesh_dim in range(mesh.ndim):
        ranks = mesh.size(mesh_dim)

        def cost(cut: Cut, mesh_dim: int = mesh_dim, ranks: int = ranks) -> tuple[float, int]:
            moves = [
                (x, x.placements[mesh_dim], _placement(cut, name)) for name, x in tensors.items()
            ]
            traffic = sum(_traffic(x, now, wanted, ranks) for x, now, wanted in moves)
            return traffic, sum(now != wanted for _, now, wanted in moves)

        cut = min(sharding.cuts(sizes, ranks), key=cost)
        for name, dim in cut.dims.items():
            shard = -(-sizes[name][dim] // ranks)
            sizes[name] = (*sizes[name][:dim], shard, *sizes[name][dim + 1 :])
        chosen.append(cut)
    return chosen


def _placement(cut: Cut, name: str) -> Placement:
    return Shard(cut.dims[name]) if name in cut.dims else Replicate()


def _of_result(cut: Cut, dims: int) -> Placement:
    if cut.result is not None:
        return Shard(cut.result % dims)
    return Partial() if cut.summed else Replicate()


def of_type(x: DTensor, dtype: torch.dtype) -> DTensor:
    """View the same bytes as elements of another dtype of that size."""
    shard = x.to_local().view(dtype)
    return DTensor.from_local(
        shard, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=x.stride()
    )


def moved(x: DTensor, placements: list[Placement]) -> Tensor:
    """The shard of this rank after ``redistribute``; float8 moves as bytes, since gloo knows no
    float8."""
    if x.dtype != torch.float8_e4m3fn:
        shard: Tensor = x.redistribute(placements=placements).to_local()
        return shard
    return of_type(x, torch.uint8).redistribute(placements=placements).to_local().view(x.dtype)


def _kernel(name: str, sharding: Sharding) -> Callable[..., Any]:
    op = getattr(torch.ops.mixed_gemm, name).default
    names = [x.name for x in op._schema.arguments]

    def local(argument: str, x: DTensor, plan: list[Cut]) -> Tensor:
        placements = [_placement(cut, argument) for cut in plan]
        shard = moved(x, placements)
        if argument in sharding.column_major and shard.stride(0) != 1:
            return shard.t().contiguous().t()
        return shard

    def kernel(cls: Any, func: Any, types: Any, args: tuple[Any, ...], options: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **(options or {})}
        tensors = _only_distributed(f"mixed_gemm::{name}", given)
        # The op on tensors without storage refuses the same calls, and its result has the same
        # form.
        form = op(**tree_map_only(DTensor, _without_storage, given))
        plan = _plan(given, tensors, sharding)
        mesh = next(iter(tensors.values())).device_mesh
        with torch.no_grad():  # below the Autograd key, which has recorded the call
            for mesh_dim, cut in enumerate(plan):
                for argument in cut.dims.keys() - tensors.keys():
                    given[argument] //= mesh.size(mesh_dim)
            for argument, x in tensors.items():
                given[argument] = local(argument, x, plan)
            result = op(**given)

            def whole(shard: Tensor, form: Tensor) -> DTensor:
                placements = [_of_result(cut, form.dim()) for cut in plan]
                return DTensor.from_local(
                    shard, mesh, placements, run_check=False, shape=form.shape, stride=form.stride()
                )

            if isinstance(result, Tensor):
                return whole(result, form)
            return tuple(
                None if x is None else whole(x, y) for x, y in zip(result, form, strict=True)
            )

    return kernel


def _without_storage(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def register(shardings: Mapping[str, Sharding]) -> None:
    for name, sharding in shardings.items():
        torch.library.register_torch_dispatch(
            f"mixed_gemm::{name}", DTensor, _kernel(name, sharding)
        )
