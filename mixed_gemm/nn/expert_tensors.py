"""Modules of transformers that hold experts in tensors of three dimensions, these taken apart into
linears, and put together again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .bare import linear_around
from .expert import Expert, Form, Names
from .experts import Experts

GATE_UP, UP, DOWN = "gate_up_proj", "up_proj", "down_proj"  # parameters, as transformers has them
_BIAS = "_bias"  # after the name of a parameter, that of its bias


def form_of(module: nn.Module) -> Form | None:
    """How a module holds experts that :class:`Experts` can take the place of; None of any other.

    Args:
        module: of transformers, whose class ``use_experts_implementation`` decorates, which says
            how it computes; or one that takes sorted rows, as that of Llama 4.
    """
    weights = module._parameters
    down, first = weights.get(DOWN), weights.get(GATE_UP, weights.get(UP))
    if isinstance(module, Experts) or down is None or first is None or has_hooks(module):
        return None
    if down.dim() != 3 or first.dim() != 3 or len(first) != len(down):
        return None
    has_gate, said = GATE_UP in weights, getattr(module, "is_transposed", None)
    wide, narrow = tuple(first.shape[1:]), tuple(down.shape[1:])
    factor = 2 if has_gate else 1
    fits = {
        False: (narrow[1] * factor, narrow[0]) == wide,
        True: (narrow[1], narrow[0] * factor) == wide,
    }
    is_sorted = said is None and type(module).__name__ == "Llama4TextExperts"
    if said is None and not is_sorted:
        return None  # nothing says what its code does beside the two products
    is_transposed = True if is_sorted else bool(said)
    if not fits[is_transposed] or getattr(module, "_is_expert_parallel", False):
        return None
    alternates = not getattr(module, "is_concatenated", True)
    return Form(len(down), has_gate, is_transposed, alternates, is_sorted)


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks of torch or of accelerate would be dropped with a module, or another forward
    that somebody put on it."""
    of_torch = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    return bool(of_torch) or "forward" in module.__dict__ or hasattr(module, "_hf_hook")


def apart(module: nn.Module, form: Form, names: Names | None = None) -> Experts:
    """The same experts as linears, whose weights are views of the tensors of the module.

    Args:
        module: of :func:`form_of`. form: of it.
        names: of the linears in the files of the model; None where these have none.
    """
    in_one_tensor, names = names is None, names or Names()
    stacked = parts_of(module)
    trains = next(iter(stacked.values())).requires_grad
    experts = []
    for number in range(form.count):
        parts = {part: x.detach()[number] for part, x in stacked.items()}
        linears = {name: linear_around(*pair) for name, pair in split(parts, form, names).items()}
        expert = Expert(names, dict[str, nn.Module](linears))
        expert.requires_grad_(trains)
        experts.append(expert)
    return Experts(module, form, experts, in_one_tensor)


def parts_of(module: nn.Module) -> dict[str, Tensor]:
    """The stacked tensors of a module of :func:`form_of`, by the names of its parameters: those of
    gate and up first, then their biases, where it has some, then those of down.

    Args:
        module: any of them.
    """
    first = GATE_UP if GATE_UP in module._parameters else UP
    names = (f"{part}{bias}" for part in (first, DOWN) for bias in ("", _BIAS))
    found = {name: module._parameters.get(name) for name in names}
    return {name: x for name, x in found.items() if x is not None}


def split(
    parts: Mapping[str, Tensor], form: Form, names: Names
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Weight and bias of each linear of one expert, as views.

    Args:
        parts: what this expert has of each stacked tensor, by the names of :func:`parts_of`.
        form: of the module. names: of the linears.
    """
    weights, biases = dict[str, Tensor](), dict[str, Tensor]()
    for part, x in parts.items():
        (biases if is_bias(part) else weights).update(of_part(part, x, form, names))
    return {name: (weight, biases.get(name)) for name, weight in weights.items()}


def of_part(part: str, x: Tensor, form: Form, names: Names) -> dict[str, Tensor]:
    """The weight of each linear of one expert that one stacked tensor has, or its bias, as views.

    Args:
        part: the name of that tensor, as of :func:`parts_of`. x: what this expert has of it.
        form: of the module. names: of the linears.
    """
    if form.is_transposed and not is_bias(part):
        x = x.t()
    if part.removesuffix(_BIAS) == DOWN:
        return {names.down: x}
    if not form.has_gate:
        return {names.up: x}
    half = len(x) // 2
    step = slice(0, None, 2), slice(1, None, 2)
    gate, up = step if form.alternates else (slice(0, half), slice(half, None))
    return {names.gate: x[gate], names.up: x[up]}


def is_bias(part: str) -> bool:
    """Whether a tensor of :func:`parts_of` holds biases, by its name."""
    return part.endswith(_BIAS)


def together(experts: Experts) -> nn.Module | None:
    """The module that was taken apart, with the weights that the linears have now; None where one
    of them is no dense linear, or nothing says which module it was.

    Args:
        experts: of :func:`apart`.
    """
    kind, form = experts.source_class, experts.form
    linears = [expert.linears for expert in experts.experts]
    if kind is None or any(type(x) is not nn.Linear for of_one in linears for x in of_one):
        return None
    whole: Any = kind.__new__(kind)
    nn.Module.__init__(whole)
    whole.__dict__.update(experts.source_flags)
    for name in experts.source_names:
        setattr(whole, name, getattr(experts, name))
    *first, down = zip(*linears, strict=True)
    for name, parts in ((GATE_UP if form.has_gate else UP, first), (DOWN, (down,))):
        weights = [torch.stack([x.weight.detach() for x in part]) for part in parts]
        joined = _joined(weights, form)
        joined = joined.transpose(1, 2).contiguous() if form.is_transposed else joined
        whole.register_parameter(name, nn.Parameter(joined))
        if parts[0][0].bias is not None:
            biases = [torch.stack([x.bias.detach() for x in part]) for part in parts]
            whole.register_parameter(f"{name}{_BIAS}", nn.Parameter(_joined(biases, form)))
    return whole.train(experts.training)  # type: ignore[no-any-return]


def _joined(parts: list[Tensor], form: Form) -> Tensor:
    """The rows ``[E, N, ...]`` of gate and up in one tensor; others as they are."""
    if len(parts) == 1:
        return parts[0]
    return torch.stack(parts, 2).flatten(1, 2) if form.alternates else torch.cat(parts, 1)
