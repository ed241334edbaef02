"""The styles by which ``parallelize_module`` shares the experts of a mixture over ranks."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.placement_types import Placement

from ..nn.experts import Experts
from ..ops.errors import ArgumentValueError
from .experts import CUT, EXCHANGED, WHOLE, SpreadExperts
from .local_linear import LocalDense, LocalLinear, local_linear
from .methods import METHODS
from .told import Elsewhere, Told


class ExpertTensorParallel(ParallelStyle):
    """Each rank has a shard of every expert: some rows of gate and up, and these columns of down.
    Tokens and their choices are the same on all ranks, which add up their terms.

    The intermediate size may be any that has 16 columns for each rank; shards are multiples of 64
    (32, 16) columns, of which a rank has at most one more than another. A cut may go through a
    group of a scale, whose shards have smaller groups then, with the same scales.

    Args:
        all_reduce: "auto", "push", "peer" or "group", as of ``AllReduce``.

    Raises:
        ValueError: ``all_reduce`` is no method; where it is applied, experts are in act-order
            or cannot be cut, or the module is none of experts.
    """

    way = CUT

    def __init__(self, *, all_reduce: str = "auto") -> None:
        super().__init__()
        if all_reduce not in METHODS:
            raise ArgumentValueError(
                f"{type(self).__name__}: all_reduce must be one of {METHODS}, got {all_reduce!r}"
            )
        self._method = all_reduce

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        if not isinstance(module, Experts):
            raise ArgumentValueError(
                f"mixed_gemm.parallel.{type(self).__name__}: takes experts that quantize_ or "
                f"from_pretrained made, got a {type(module).__name__}. Hint: quantize_ first"
            )
        if module.spread is not None:
            raise ArgumentValueError(
                f"mixed_gemm.parallel.{type(self).__name__}: these experts are shared over ranks "
                "already"
            )
        spread_experts(module, SpreadExperts(module, device_mesh, self.way, self._method))
        return module


class ExpertParallel(ExpertTensorParallel):
    """Each rank has some of the experts as a whole: numbers that lie beside each other, at most one
    more than another rank has.

    Args:
        input_layouts: ``Replicate()`` where all ranks have the same tokens and choices: each
            computes its experts' terms, and these are added up. ``Shard(0)`` where each rank has
            tokens of its own, as many as it likes: a row travels once to each rank that has some
            of its experts, and the sum of their results back (all-to-all), in the dtype of the
            activations; the rank that has the token adds these sums up in fp32.
        all_reduce: of the sum over ranks, as of ``AllReduce``.

    Raises:
        ValueError: ``input_layouts`` is another one, or ``all_reduce`` is no method; where it is
            applied, there are fewer experts than ranks, or the module is none of experts.
    """

    way = WHOLE

    def __init__(self, *, input_layouts: Placement | None = None, all_reduce: str = "auto") -> None:
        super().__init__(all_reduce=all_reduce)
        layouts = Replicate() if input_layouts is None else input_layouts
        if layouts not in (Replicate(), Shard(0)):
            raise ArgumentValueError(
                "mixed_gemm.parallel.ExpertParallel: input_layouts must be Replicate() or "
                f"Shard(0), got {layouts}"
            )
        self.way = WHOLE if layouts == Replicate() else EXCHANGED


def spread_experts(experts: Experts, spread: SpreadExperts) -> None:
    """Keep this rank's share of the experts of a layer. Every rank has to call it.

    Args:
        experts: whose linears are whole on this rank, shards already, or ``Elsewhere``.
        spread: of them.

    Raises:
        ValueError: a linear cannot be cut; nothing is replaced then.
    """
    made: dict[tuple[int, str], nn.Module] = {}
    absent = False
    for number in range(experts.form.count):
        expert = experts.expert(number)
        for name, linear in expert._modules.items():
            absent |= isinstance(linear, Elsewhere)
            if isinstance(linear, Elsewhere | LocalDense):
                continue
            assert isinstance(linear, nn.Linear)
            shape = linear.out_features, linear.in_features
            try:
                shard = spread.shard_of(expert, number, name, shape)
                made[number, name] = local_linear(linear, spread.mesh, shard)
            except ValueError as error:
                raise ArgumentValueError(f"{number}.{name}: {error}") from error
    for (number, name), linear in made.items():
        experts.expert(number).add_module(name, linear)
    if spread.way != CUT:
        _tell(experts, spread, absent)
    experts.spread = spread
    experts.stack()


def _tell(experts: Experts, spread: SpreadExperts, absent: bool) -> None:
    """Have ranks that did not read an expert know how it is stored."""
    told: list[Any] = [None] * spread.mesh.size()
    mine = {
        (number, name): Told.of(linear)
        for number in spread.own
        for name, linear in experts.expert(number)._modules.items()
        if isinstance(linear, LocalLinear)
    }
    dist.all_gather_object(told, (absent, mine), group=spread.mesh.get_group())
    if not any(asked for asked, _ in told):
        return
    for _, found in told:
        for (number, name), said in found.items():
            if number not in spread.own:
                experts.expert(number).add_module(name, said.linear(spread.mesh))
