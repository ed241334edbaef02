"""Which layers ``fuse_`` gives one product, by what they read; why the others keep their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from torch import nn

from ..nn.fused import FusedSequential, pairs_of
from ..nn.linear import Linear
from ..weights.joining import why_apart
from ..weights.tensor import QuantizedTensor
from .reads import Reads
from .select import weight_owners

_ALONE = "no other layer reads what it reads"


def reasons(model: nn.Module, layers: Mapping[str, Linear]) -> dict[str, str]:
    """Name -> why a layer has a product of its own, whatever others read."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, module in model.named_modules(remove_duplicate=False):
        names[id(module)].append(name)
    pairs = [pairs_of(x) for x in model.modules() if isinstance(x, FusedSequential)]
    activations = {key: name for found in pairs for key, name in found.items()}
    owners, found = weight_owners(model), {}
    for name, layer in layers.items():
        shared = any(len(owners[id(p)]) > 1 for p in layer._parameters.values() if p is not None)
        places = names[id(layer)]
        if len(places) > 1:
            found[name] = f"it is {places[1]}, too"
        elif shared:
            found[name] = "another module has its weight or its bias, too"
        elif id(layer) in activations:
            found[name] = f"the {activations[id(layer)]} behind it runs in its kernel"
        elif reason := layer.why_not_joined():
            found[name] = reason
    return found


def sets_of(
    layers: Mapping[str, Linear],
    reads: Reads,
    apart: dict[str, str],
    pairs: Sequence[Sequence[str]] = (),
) -> list[list[str]]:
    """Layers that are to have one product, in the order of their calls. Others are added to
    ``apart``, with the reason.

    Args:
        layers: by name. reads: of them. apart: name -> why a layer has a product of its own.
        pairs: layers that are to have one product by themselves, in that order.
    """
    found: list[list[str]] = [list(names) for names in pairs]
    taken = {name for names in pairs for name in names}
    for name in layers:
        if name not in reads.calls:
            apart.setdefault(name, "it was not called with the example")
    for together in reads.together():
        by_block: dict[str, list[str]] = defaultdict(list)
        for name in together:
            if name not in apart and name not in taken:
                by_block[_block_of(name)].append(name)
        for names in by_block.values():
            for alike in _alike({name: layers[name].weight for name in names}):
                if len(alike) > 1:
                    found.append(alike)
                else:
                    apart[alike[0]] = _why_alone(alike[0], names, together, layers, reads)
    order = {name: i for i, name in enumerate(reads.calls)}
    return sorted(found, key=lambda names: min(order[name] for name in names))


def _why_alone(
    name: str, names: list[str], together: list[str], layers: Mapping[str, Linear], reads: Reads
) -> str:
    """Why a layer that could share a product has one of its own.

    Args:
        names: of its block, that read what it reads. together: of all blocks.
    """
    others = [x for x in names if x != name]
    if others:
        reason = why_apart(layers[others[0]].weight, layers[name].weight)
        return f"{others[0]} reads the same tensor, but {reason}"
    others = [x for x in together if x != name]
    if others:
        return f"{others[0]}, which reads the same tensor, is in another block or stays apart"
    other = reads.written_between(name)
    return f"the tensor is written to between it and {other}" if other else _ALONE


def _block_of(name: str) -> str:
    """The block that a layer is in: the innermost of the lists that its name goes through."""
    parts = name.split(".")[:-1]
    ends = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: ends[-1] + 1]) if ends else ""


def _alike(weights: Mapping[str, QuantizedTensor]) -> list[list[str]]:
    """Layers that read one tensor, as lists of those that one weight can hold."""
    found: list[list[str]] = []
    for name, weight in weights.items():
        for names in found:
            if not why_apart(weights[names[0]], weight):
                names.append(name)
                break
        else:
            found.append([name])
    return found
