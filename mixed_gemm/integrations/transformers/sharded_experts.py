"""transformers' parallelism of experts that are linears here: by tensor parallelism each rank reads
and keeps a shard of every expert, by expert parallelism some experts as a whole.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.distributed.parallel_utils import (
    ALL_PARALLEL_STYLES,
    replace_layer_number_by_wildcard,
)

from ...distributed.expert_styles import spread_experts
from ...distributed.experts import CUT, EXCHANGED, WHOLE, SpreadExperts
from ...formats.inside import is_inside
from ...nn.experts import Experts
from ...weights.scheme import Scheme
from .pending import STYLE, PendingLinear

TENSOR, DISPATCH = "moe_tp_experts", "ep_dispatch_experts"  # styles of transformers
_MEGAMOE = "deepgemm_megamoe"


class _Experts:
    """A style of transformers for experts, and what it is for those that are linears here.

    Args:
        base: the style, which all others get.
    """

    def __init__(self, base: Any) -> None:
        self.base = base

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


class _Cut(_Experts):
    def install_forward(self, module: nn.Module, mesh: Any) -> Any:
        if isinstance(module, Experts):
            return _wait_for_shards(module, mesh, CUT)
        return self.base.install_forward(module, mesh)


class _Dispatched(_Experts):
    def install_forward(
        self, module: nn.Module, ep_mesh: Any, *, tp_mesh: Any, ep_implementation: str = "auto"
    ) -> Any:
        if isinstance(module, Experts):
            return _wait_for_shards(module, ep_mesh, _way(ep_mesh, tp_mesh, ep_implementation))
        return self.base.install_forward(
            module, ep_mesh, tp_mesh=tp_mesh, ep_implementation=ep_implementation
        )


def _way(ep_mesh: Any, tp_mesh: Any, implementation: str) -> str:
    """How ranks share experts as a whole.

    Raises:
        ValueError: with another implementation than transformers' own two, or beside FSDP.
    """
    if implementation == _MEGAMOE:
        raise ValueError(
            f"mixed_gemm: ep_implementation={_MEGAMOE!r} multiplies dense experts. Hint: "
            "'all_reduce', 'all_to_all' or 'auto'"
        )
    if ep_mesh.size() != tp_mesh.size():
        raise ValueError(
            f"mixed_gemm: ep_size={ep_mesh.size()} beside tp_size={tp_mesh.size()} has "
            "transformers shard parameters by FSDP before they are read, and packed ones have no "
            "place there. Hint: ep_size = tp_size; or load the model without distributed_config, "
            "share its experts by parallelize_module with mixed_gemm.parallel.ExpertParallel("
            "input_layouts=Shard(0)), then shard the rest by fully_shard(..., ignored_params=), "
            "with the parameters of the experts"
        )
    return EXCHANGED if implementation == "all_to_all" else WHOLE


def _wait_for_shards(experts: Experts, mesh: Any, way: str) -> Experts:
    """Have each linear read, or keep, what this rank has of it."""
    spread = experts.spread = SpreadExperts(experts, mesh, way)
    for number in range(experts.form.count):
        expert = experts.expert(number)
        for name, linear in expert._modules.items():
            assert isinstance(linear, nn.Linear)
            shape = linear.out_features, linear.in_features
            shard = spread.shard_of(expert, number, name, shape)
            if isinstance(linear, PendingLinear):
                if (shard.stop - shard.start) != shape[shard.dim]:
                    linear.distribute(shard, mesh)
            elif isinstance(getattr(linear, STYLE, None), Scheme):
                setattr(linear, STYLE, (shard, mesh))
    return experts


def let_experts_be_shared(model: nn.Module, plan: dict[str, str], schemes: dict[str, Any]) -> None:
    """Put our styles in the place of transformers' for experts that are linears here, also where
    ``DistributedConfig`` brings the rule, which comes later. Where none says how to share them
    every rank has all, and computes what the others do.

    Args:
        plan: rule -> style, changed in place.
        schemes: name of a layer -> how it will be stored, where it is still dense; else None.
    """
    found = {name: x for name, x in model.named_modules() if isinstance(x, Experts)}
    owners = {replace_layer_number_by_wildcard(name) for name in found}
    for rule in [x for x in plan if x in owners or x.rpartition(".")[0] in owners]:
        if rule not in owners or plan[rule] not in (TENSOR, DISPATCH):
            del plan[rule]
    if found:
        _register()
    for name, scheme in schemes.items():
        if scheme is not None and is_inside(name, found):
            setattr(model.get_submodule(name), STYLE, scheme)


def _register() -> None:
    """Have both styles know our experts; by their names, which transformers looks for."""
    for name, kind in ((TENSOR, _Cut), (DISPATCH, _Dispatched)):
        style = ALL_PARALLEL_STYLES[name]
        if not isinstance(style, _Experts):
            ALL_PARALLEL_STYLES.register(name, kind(style))


def settle_experts(model: nn.Module) -> None:
    """Share the experts of a model whose layers are all read; every rank calls it.

    Args:
        model: of transformers.
    """
    for module in model.modules():
        if isinstance(module, Experts) and isinstance(module.spread, SpreadExperts):
            spread_experts(module, module.spread)
