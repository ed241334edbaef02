"""``Experts``: the experts of a mixture as linears of their own, in the place of a module of
transformers that holds them in tensors of three dimensions. What quantizes, saves, adapts and reads
linears does so with experts then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._after_import import after_import

GATE_UP, UP, DOWN = "gate_up_proj", "up_proj", "down_proj"  # parameters, as transformers has them


@dataclass(frozen=True)
class Names:
    """The names of an expert's linears, which are those that the files of its model have."""

    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


@dataclass(frozen=True)
class Form:
    """How a module holds its experts.

    Attributes:
        count: of experts.
        has_gate: whether one tensor has the columns of a gate beside those it multiplies.
        is_transposed: whether weights are ``[E, K, N]``; else ``[E, N, K]``.
        alternates: whether columns of gate and up alternate; else all of the gate come first.
        is_sorted: whether the module takes as many rows for each expert, one expert after the
            other, and no indices (Llama 4).
    """

    count: int
    has_gate: bool
    is_transposed: bool
    alternates: bool
    is_sorted: bool


class Expert(nn.Module):
    """The linears of one expert, by the names of :class:`Names`."""

    def __init__(self, names: Names, linears: dict[str, nn.Module]) -> None:
        super().__init__()
        self.names = names
        for name, linear in linears.items():
            self.add_module(name, linear)

    def forward(self, x: Tensor, owner: Experts) -> Tensor:
        """The result of the expert for some tokens.

        Args:
            x: ``[T, hidden size]``. owner: whose expert it is.

        Returns:
            ``[T, hidden size]``.
        """
        linears, names = self._modules, self.names
        up: Any = linears[names.up]
        down: Any = linears[names.down]
        gate: Any = linears.get(names.gate)
        hidden = owner.gated(None if gate is None else gate(x), up(x))
        return owner.finished(down(hidden))


class Experts(nn.Module):
    """The experts of one layer, each an :class:`Expert` by its number.

    Rows are sorted by expert, each expert that has rows multiplies them, and the results of a token
    are weighted and added up in the order of its choices, so that a repeat gives the same bits.
    Each call reads on the host how many rows each expert has: it waits for the GPU once, and cannot
    be captured in a CUDA graph.

    Args:
        source: the module of transformers. Its attributes and submodules are taken over, its
            weights and their biases are not.
        form: how it holds its experts. experts: in their order.
        in_one_tensor: whether files of such models hold all experts of a layer in one tensor, so
            that readers look for that.

    Attributes:
        form, in_one_tensor: as given.
        starved: numbers of experts that compute all rows, too, before their own, so that
            calibration sees what the layer sees; these results are dropped.
    """

    form: Form

    def __init__(
        self, source: nn.Module, form: Form, experts: list[Expert], in_one_tensor: bool = False
    ) -> None:
        super().__init__()
        kept = {x: y for x, y in source.__dict__.items() if not x.startswith("_")}
        self.__dict__.update({x: y for x, y in kept.items() if x != "training"})
        self.form, self.starved = form, frozenset[int]()
        self.in_one_tensor = in_one_tensor
        self._gate_of = getattr(type(source), "_apply_gate", None)
        self._has_own_gate = self._gate_of is not None and not _is_default(self._gate_of)
        for name, module in source._modules.items():
            self.add_module(name, module)
        for number, expert in enumerate(experts):
            self.add_module(str(number), expert)
        self.train(source.training)

    @property
    def experts(self) -> Iterator[Expert]:
        """Each expert, in the order of their numbers."""
        return (self.expert(number) for number in range(self.form.count))

    def expert(self, number: int) -> Expert:
        """One of them.

        Args:
            number: from 0.
        """
        found = self._modules[str(number)]
        assert isinstance(found, Expert)
        return found

    def gated(self, gate: Tensor | None, up: Tensor) -> Tensor:
        """Return what the second product multiplies, as the model's own code computes it.

        Args:
            gate: ``[T, intermediate size]``, None without a gate. up: of that shape.
        """
        activation: Any = getattr(self, "act_fn", None)
        if gate is None:
            return activation(up)  # type: ignore[no-any-return]
        if not self._has_own_gate:
            return activation(gate) * up  # type: ignore[no-any-return]
        whole = torch.stack((gate, up), -1).flatten(-2) if self.form.alternates else None
        gate_of: Any = self._gate_of
        found: Tensor = gate_of(self, torch.cat((gate, up), -1) if whole is None else whole)
        return found

    def finished(self, out: Tensor) -> Tensor:
        """The result of an expert, normalized where the model does that."""
        norm: Any = self._modules.get("post_expert_norm")
        return out if norm is None else norm(out)

    def forward(
        self,
        hidden_states: Tensor,
        top_k_index: Tensor | None = None,
        top_k_weights: Tensor | None = None,
        **named: Tensor,
    ) -> Tensor:
        """Arguments and result of the module that it stands for.

        Args:
            hidden_states: ``[T, hidden size]``; where the form is sorted, ``[E * T, hidden size]``.
            top_k_index: int ``[T, k]``, the experts of each token; numbers that are none of an
                expert add nothing. top_k_weights: float ``[T, k]``.
            named: the last two by other names: ``router_indices``, ``routing_weights`` (gpt-oss).

        Returns:
            ``[T, hidden size]`` (``[E * T, ...]``) in the dtype of ``hidden_states``.
        """
        index = named.get("router_indices", top_k_index)
        weights = named.get("routing_weights", top_k_weights)
        if self.form.is_sorted:
            return self._of_sorted(hidden_states)
        assert index is not None and weights is not None
        return self._of_chosen(hidden_states, index, weights)

    def _of_sorted(self, x: Tensor) -> Tensor:
        size = x.shape[-1]
        rows = x.reshape(self.form.count, -1, size)
        found = [expert(part, self) for part, expert in zip(rows, self.experts, strict=True)]
        return torch.stack(found).reshape(-1, size)

    def _of_chosen(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        tokens, k = index.shape
        chosen, order = torch.sort(index.reshape(-1), stable=True)
        numbers = torch.arange(self.form.count + 1, device=chosen.device, dtype=chosen.dtype)
        edges = torch.searchsorted(chosen, numbers).tolist()  # rows of e: edges[e] to edges[e + 1]
        rows = x[order // k]
        parts = [rows.new_zeros(edges[0], x.shape[-1])]
        for number, expert in enumerate(self.experts):
            start, stop = edges[number : number + 2]
            if number in self.starved:
                expert(x[:], self)  # a tensor of its own, by which calibration tells layers apart
            if start < stop:
                parts.append(expert(rows[start:stop], self))
        parts.append(rows.new_zeros(tokens * k - edges[-1], x.shape[-1]))
        sorted_out = torch.cat(parts) * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
        return sorted_out[back].view(tokens, k, x.shape[-1]).sum(1).to(x.dtype)


def _keep_dynamo_out() -> None:
    """Have torch.compile break its graph here: the loop follows the data."""
    chosen: Any = Experts._of_chosen
    Experts._of_chosen = torch.compiler.disable(chosen)  # type: ignore[method-assign,no-untyped-call]


after_import("torch._dynamo", _keep_dynamo_out)  # which takes seconds, for those who compile


def _is_default(gate: Any) -> bool:
    return str(getattr(gate, "__name__", "")) == "_default_apply_gate"


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
    parameters: Any = module._parameters
    first = GATE_UP if form.has_gate else UP
    experts = []
    for number in range(form.count):
        wide = _part(parameters[first], number, form.is_transposed)
        bias = _bias(parameters.get(f"{first}_bias"), number)
        linears: dict[str, nn.Module] = {}
        if form.has_gate:
            half = len(wide) // 2
            step = slice(0, None, 2), slice(1, None, 2)
            gate, up = step if form.alternates else (slice(0, half), slice(half, None))
            linears[names.gate] = _linear(wide[gate], None if bias is None else bias[gate])
            linears[names.up] = _linear(wide[up], None if bias is None else bias[up])
        else:
            linears[names.up] = _linear(wide, bias)
        down = _part(parameters[DOWN], number, form.is_transposed)
        linears[names.down] = _linear(down, _bias(parameters.get(f"{DOWN}_bias"), number))
        expert = Expert(names, linears)
        expert.requires_grad_(parameters[first].requires_grad)
        experts.append(expert)
    return Experts(module, form, experts, in_one_tensor)


def _part(stacked: Tensor, number: int, is_transposed: bool) -> Tensor:
    found = stacked.detach()[number]
    return found.t() if is_transposed else found


def _bias(stacked: Tensor | None, number: int) -> Tensor | None:
    return None if stacked is None else stacked.detach()[number]


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    n, k = weight.shape
    made = nn.Linear(k, n, bias=False, device="meta", dtype=weight.dtype)
    made.weight = nn.Parameter(weight, requires_grad=False)
    made.register_parameter(
        "bias", None if bias is None else nn.Parameter(bias, requires_grad=False)
    )
    return made
