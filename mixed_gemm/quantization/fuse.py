"""``fuse_``: one product in place of those of several linear layers that read the same tensor, and
one op between the products of an MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..nn.experts import stack_experts
from ..nn.gated_mlp import make_gated, unmake_gated
from ..nn.joint import Joint
from ..nn.linear import Linear
from ..ops.errors import ArgumentValueError
from .example import example_of
from .fuse_mlps import FoundMLP, found_mlps, parents_of, seeing
from .fuse_report import FusedSet, FuseReport
from .fuse_sets import reasons, sets_of
from .reads import watch
from .state import Runs, evaluating
from .values import Apart


def fuse_(model: nn.Module, *, example_inputs: Any = None, mlps: bool | None = None) -> FuseReport:
    """Run linear layers that read the same tensor as one product, in place: q, k and v of an
    attention, gate and up of an MLP, and whatever else does so in a run of the model.

    The weights of such layers become slices of one weight, so that nothing is stored twice. Modules
    and their names stay, and so do the code of the model, state_dicts and checkpoints, to the bit:
    the first layer that is called computes the product of all, and the others return their part of
    it when they are called with the same tensor, unchanged. With gradients, in train mode and under
    ``torch.inference_mode`` (which counts no writes to a tensor) each layer computes its own
    product. ``torch.compile`` fuses in both; ``torch.export`` sees the layers apart.

    An MLP that computes down(activation(gate) * up) becomes a :class:`mixed_gemm.GatedMLP`, in
    place, whose activation and product with up are one op: in fp32 and rounded once, where the
    model's own code rounds twice. What an MLP computes is tried on numbers, and no name is looked
    at. This holds under ``torch.inference_mode``, too.

    Args:
        model: with ``mixed_gemm.Linear`` layers on the device that they run on.
        example_inputs: what the model is called with to see what its layers read: a mapping runs as
            model(**batch), a tuple or list as model(*batch), anything else as model(batch), in eval
            mode and without gradients. None makes some for a model of transformers that reads
            ``input_ids`` or ``pixel_values``.
        mlps: whether MLPs run in three ops. None: those on a GPU, which an op less to launch helps;
            on a CPU results would no longer be those of the model's own code to the bit.

    Returns:
        A report: sets of names, and why the other layers stay apart, and other MLPs as they are.
        ``print`` it.

    Raises:
        ValueError: no layer is quantized, or ``example_inputs`` are needed. What the model raises
            on them; no layer is fused then.
    """
    layers = {name: x for name, x in model.named_modules() if type(x) is Linear}
    if not layers:
        raise ArgumentValueError(
            "fuse_: no layer of the model is a mixed_gemm.Linear. Hint: mixed_gemm.quantize_ first"
        )
    batch = _example(model) if example_inputs is None else example_inputs
    unfuse_(model)
    stack_experts(model)  # a copy has none: one product of all experts is better than gate with up
    apart = reasons(model, layers)
    parents = {} if mlps is False else parents_of(model, layers)
    with evaluating(model), torch.inference_mode(False), torch.no_grad():
        with Runs(model) as runs:
            with seeing(parents) as seen:
                reads, before = watch(runs, layers, batch)
            found, others = found_mlps(parents, seen, apart, runs, on_cpu=mlps is True)
        sets = sets_of(layers, reads, apart, [x.pair for x in found if x.pair])
        fused, after = _fused(model, batch, layers, sets, found, apart)
    apart |= {
        name: f"its class is {type(x).__name__}"
        if isinstance(x, Linear)
        else "its weight is not quantized"
        for name, x in model.named_modules()
        if isinstance(x, nn.Linear) and name not in layers
    }
    order = {name: i for i, (name, _) in enumerate(model.named_modules())}
    apart = {name: apart[name] for name in sorted(apart, key=lambda name: order[name])}
    training = any(layers[name].training for x in fused for name in x.names)
    training |= any(model.get_submodule(x.name).training for x in found)
    difference = _difference(before, after) if fused or found else None
    gates = {x.name: str(x.call.gate) for x in found}
    return FuseReport(tuple(fused), apart, difference, training, gates, others)


def _example(model: nn.Module) -> Any:
    return example_of(
        "fuse_", "example_inputs=None", model,
        hint="example_inputs= what the model is called with: a mapping, a tuple or one value",
    )  # fmt: skip


def unfuse_(model: nn.Module) -> None:
    """Give every layer that :func:`fuse_` joined storage and a product of its own again, and every
    MLP the class that it had, in place.

    Args:
        model: any; what is not fused stays as it is.
    """
    for module in model.modules():
        unmake_gated(module)
        if isinstance(module, Linear) and module.joint is not None:
            module.leave()


def _fused(
    model: nn.Module,
    batch: Any,
    layers: Mapping[str, Linear],
    sets: list[list[str]],
    found: list[FoundMLP],
    apart: dict[str, str],
) -> tuple[list[FusedSet], Any]:
    """Join the layers of each set, and let MLPs run in three ops; return the sets on whose results
    the model runs, and what it returns.

    Args:
        found: the MLPs; one whose gate and up do not stay joined is taken out.
    """
    for names in sets:
        Joint([layers[name] for name in names])
    _gate(model, found)
    try:
        return [_told(layers, names) for names in sets], _run(model, batch)
    except Exception:
        unfuse_(model)
    kept = []
    for names in sets:
        Joint([layers[name] for name in names])
        try:
            _run(model, batch)
            kept.append(names)
        except Exception as error:
            for name in names:
                layers[name].leave()
                apart[name] = (
                    f"the model does not take its output as columns of a wider tensor "
                    f"({type(error).__name__}: {str(error).splitlines()[0][:120]})"
                )
    joined = {name for names in kept for name in names}
    found[:] = [x for x in found if joined.issuperset(x.pair)]
    _gate(model, found)
    return [_told(layers, names) for names in kept], _run(model, batch)


def _gate(model: nn.Module, found: list[FoundMLP]) -> None:
    for each in found:
        make_gated(model.get_submodule(each.name), each.call)


def _run(model: nn.Module, batch: Any) -> Any:
    with Runs(model) as runs:
        return runs(batch)


def _told(layers: Mapping[str, Linear], names: list[str]) -> FusedSet:
    joint = layers[names[0]].joint
    assert joint is not None and joint.product is not None
    return FusedSet(tuple(names), joint.product.plain.shape[0])


def _difference(before: Any, after: Any) -> float:
    """The largest difference of an element over the largest magnitude of its tensor."""
    found = 0.0
    for (_, a), (_, b) in zip(Apart(before).tensors, Apart(after).tensors, strict=True):
        if not a.is_floating_point() or torch.equal(a, b):
            continue
        same = (a == b) | (a.isnan() & b.isnan())
        apart = torch.where(same, 0, (a.float() - b.float()).abs()).max()
        found = max(found, float(apart) / max(float(a.float().abs().max()), 1e-30))
    return found
