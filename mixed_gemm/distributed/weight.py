"""A quantized weight that a DTensor shards over ranks: made whole again, as the parts of a
state_dict, filled from one, and multiplied where its columns are permuted.

Imported only where there is such a weight: it imports torch.distributed.tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from ..ops.errors import ArgumentValueError
from ..ops.problem import PAD_N
from ..weights.act_order import ActOrderColumns
from ..weights.fp8 import Fp8Weight
from ..weights.fp8_weight_only import Fp8WeightOnly
from ..weights.kinds import kind_of
from ..weights.scheme import Scheme
from ..weights.shards import answers
from ..weights.tensor import QuantizedTensor, part_problems


def _local(weight: DTensor) -> QuantizedTensor:
    return cast(QuantizedTensor, weight._local_tensor)


def _cut_dims(weight: DTensor) -> list[tuple[int, int]]:
    """(dimension of the mesh, dimension of the weight) of every cut, the outermost first.

    Raises:
        ValueError: it is sharded in another way than by ``Shard`` and ``Replicate``.
    """
    found = []
    for mesh_dim, placement in enumerate(weight.placements):
        if type(placement) is Shard:
            found.append((mesh_dim, placement.dim % weight.dim()))
        elif not isinstance(placement, Replicate):
            raise ArgumentValueError(
                f"QuantizedTensor: a weight is spread over ranks by Shard or Replicate, got "
                f"{placement}. Hint: shard it over one dimension of the mesh only"
            )
    return found


def _gathered(shard: QuantizedTensor, group: Any) -> list[QuantizedTensor]:
    """The shards of all ranks of a group, on each of them."""
    ranks, mine = dist.get_world_size(group), tuple(shard.shape)
    shapes: list[Any] = [None] * ranks
    dist.all_gather_object(shapes, (mine, shard.scheme), group=group)
    if any(x != shapes[0] for x in shapes):  # their parts have different sizes
        shards: list[Any] = [None] * ranks
        dist.all_gather_object(shards, shard.with_parts(lambda x: x.cpu()), group=group)
        return [x.with_parts(lambda part: part.to(shard.device)) for x in shards]
    parts: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
    for name, tensor in shard.tensors().items():
        flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        sent = flat.copy_(tensor.reshape(-1)).view(torch.uint8)
        received = [torch.empty_like(sent) for _ in range(ranks)]
        dist.all_gather(received, sent, group=group)
        for found, part in zip(parts, received, strict=True):
            found[name] = part.view(tensor.dtype).view(tensor.shape)
    return [type(shard)(found, shard.scheme, mine, shard.dtype) for found in parts]


@answers
def whole(weight: DTensor, scheme: Scheme | None = None) -> QuantizedTensor:
    """The weight of all ranks together, still quantized. Every rank has to call it.

    Args:
        weight: ``[N, K]``, each rank's shard a :class:`QuantizedTensor`.
        scheme: of the weight before it was cut, whose groups its shards may have made smaller; else
            those that the shards have in common.

    Raises:
        ValueError: it is sharded otherwise than by ``Shard``, or not stored as ``scheme`` says.
    """
    found = _local(weight)
    size = None if scheme is None else _columns_of_group(scheme)
    cuts = _cut_dims(weight)
    for i, (mesh_dim, dim) in reversed(list(enumerate(cuts))):
        every = _gathered(found, weight.device_mesh.get_group(mesh_dim))
        shards = [x for x in every if x.shape[dim] > 0] or every[:1]
        if dim == 0:
            found = type(found).join(shards)
        else:
            outermost = all(x != 1 for _, x in cuts[:i])
            found = type(found).join_columns(shards, size if outermost else None)
    block = None if scheme is None else scheme.weights.block
    if block is not None and isinstance(found, (Fp8Weight, Fp8WeightOnly)):
        return found.in_blocks_of(block[0])
    return found


def _columns_of_group(scheme: Scheme) -> int | None:
    side = scheme.weights
    if side.strategy == "block" and side.block is not None:
        return side.block[1]
    return scheme.group_size if side.strategy in ("group", "channel") else None


@answers
def state_of(weight: DTensor, scheme: Scheme) -> dict[str, Tensor]:
    """Part -> tensor, of the shapes that the whole weight has in a state_dict, so that any number
    of ranks can load it: DTensors of the shards where those are slices of it. Where they are not
    (columns, rows that are no multiple of 64) every rank gets all of it, and every rank has to
    call this.

    Args:
        weight: ``[N, K]``. scheme: of the whole weight.
    """
    local = _local(weight)
    if not _slices(weight, scheme):
        return whole(weight, scheme).stored()
    rows = {part.name: part.rows for part in local.parts}
    shapes = type(local).shapes(tuple(weight.shape), scheme)
    found: dict[str, Tensor] = {}
    for name, tensor in local.stored().items():
        placements: list[Placement] = [
            Replicate()
            if rows[name] is None or isinstance(x, Replicate)
            else Shard(rows[name] or 0)
            for x in weight.placements
        ]
        shape = torch.Size(shapes[name])
        found[name] = DTensor.from_local(
            tensor, weight.device_mesh, placements, run_check=False, shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )  # fmt: skip
    return found


def _slices(weight: DTensor, scheme: Scheme) -> bool:
    """Whether the parts of every shard are slices of those of the whole weight."""
    local = _local(weight)
    cuts = _cut_dims(weight)
    n, ranks = weight.shape[0], 1
    for mesh_dim, dim in cuts:
        ranks *= weight.device_mesh.size(mesh_dim)
        if dim != 0:
            return False
    if any(x.dtype == torch.float8_e4m3fn and not x.is_cuda for x in local.tensors().values()):
        return False  # gloo does not send float8
    packed = any(part.name == "b_packed" for part in local.parts)
    if n % (ranks * (PAD_N if packed else 1)) or local.scheme != scheme:
        return False
    wholes = type(local).shapes(tuple(weight.shape), scheme)
    for part in local.parts:
        tensor = getattr(local, part.name)
        if tensor is None or part.derived or part.rows is None:
            continue
        shape = list(tensor.shape)
        shape[part.rows] *= ranks
        if tuple(shape) != wholes[part.name]:
            return False
    return True


@answers
def fill(weight: DTensor, scheme: Scheme, given: Mapping[str, Tensor]) -> list[str]:
    """Copy the parts of a state_dict into this rank's shard.

    Args:
        weight: ``[N, K]``. scheme: of the whole weight.
        given: part -> plain tensor of the whole weight, the same on all ranks; or a DTensor,
            sharded in any way.

    Returns:
        What does not fit, in words; then nothing was copied.
    """
    local = _local(weight)
    parts = {x.name for x in local.parts if not x.derived}
    mine = state_of(weight, scheme) if _slices(weight, scheme) else {}
    found, shards = {name: x for name, x in given.items() if name in parts}, {}
    shape = tuple(weight.shape)
    if problems := part_problems(type(local), shape, scheme, found):
        return problems
    for name, tensor in found.items():
        like = mine.get(name)
        if isinstance(tensor, DTensor):
            if isinstance(like, DTensor) and tensor.placements == like.placements:
                shards[name] = tensor._local_tensor
                continue
            tensor = tensor.full_tensor()
        found[name] = tensor
        if isinstance(like, DTensor):
            shards[name] = slice_like(tensor, like).to_local()
    if shards.keys() != found.keys():
        shard = shard_like(_put_together(local, found, scheme, shape), weight)
        shards = {name: x for name, x in shard.stored().items() if name in found}
    with torch.no_grad():
        for name, tensor in shards.items():
            getattr(local, name).copy_(tensor)
        local.derive_again()
    return []


@answers
def slice_like(tensor: Tensor, like: DTensor) -> DTensor:
    """A tensor that every rank has whole, sharded as another one.

    Args:
        tensor: of the shape of ``like``.
    """
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


def _put_together(
    local: QuantizedTensor, found: Mapping[str, Tensor], scheme: Scheme, shape: tuple[int, ...]
) -> QuantizedTensor:
    kind = kind_of("QuantizedTensor", scheme, shape)
    parts = {name: x.to(local.device) for name, x in found.items()}
    missing = [name for name in local.stored() if name not in parts]
    if missing:
        raise ArgumentValueError(
            f"QuantizedTensor: a share that is no slice of the whole weight is filled from all of "
            f"its parts, got none for {', '.join(missing)}"
        )
    return kind(parts, scheme, shape, local.dtype)


def shard_like(weight: QuantizedTensor, like: DTensor) -> QuantizedTensor:
    """This rank's shard of a weight that every rank has whole.

    Args:
        weight: ``[N, K]``. like: a DTensor of this shape, which says how it is sharded.
    """
    for mesh_dim, dim in _cut_dims(like):
        extents: list[Any] = [None] * like.device_mesh.size(mesh_dim)
        mine, group = _local(like).shape[dim], like.device_mesh.get_group(mesh_dim)
        dist.all_gather_object(extents, mine, group=group)  # experts have shards of any size
        start = sum(extents[: like.device_mesh.get_local_rank(mesh_dim)])
        weight = weight.cut(dim, start, start + mine)
    return weight


def distribute(
    weight: QuantizedTensor, mesh: Any, placements: list[Placement], shape: tuple[int, ...]
) -> DTensor:
    """A DTensor of the shards that all ranks have; nothing is sent.

    Args:
        weight: this rank's shard. mesh, placements: as of ``DTensor.from_local``.
        shape: ``[N, K]`` of the whole.
    """
    stride = (shape[1], 1)
    return DTensor.from_local(
        weight, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )


@answers
def linear(x: Tensor, weight: DTensor, bias: Tensor | None) -> Tensor:
    """``torch.nn.functional.linear``, also where columns of a weight in act-order are sharded over
    ranks: activations of the whole width are brought in its order then.

    Args:
        x: ``[..., K]``, a DTensor. weight: ``[N, K]``. bias: ``[N]`` or None.
    """
    local = weight.to_local()
    if isinstance(local, ActOrderColumns) and isinstance(x, DTensor):
        mesh, order = weight.device_mesh, local.permutation
        assert order is not None
        replicated = [Replicate() if isinstance(p, Shard) else p for p in weight.placements]
        columns: list[Placement] = [
            Shard(x.dim() - 1) if isinstance(p, Shard) else p for p in weight.placements
        ]
        summed = [Partial() if isinstance(p, Shard) else p for p in weight.placements]
        every = x.redistribute(placements=replicated).to_local(grad_placements=summed)
        x = DTensor.from_local(every.index_select(-1, order), mesh, columns, run_check=False)
        weight = DTensor.from_local(local.in_order(), mesh, weight.placements, run_check=False)
    return torch.nn.functional.linear(x, weight, bias)
