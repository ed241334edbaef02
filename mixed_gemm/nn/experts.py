"""``Experts``: the experts of a mixture as linears of their own, in the place of a module of
transformers that holds them in tensors of three dimensions. What quantizes, saves, adapts and reads
linears does so with experts then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.utils._python_dispatch import _get_current_dispatch_mode

from .._after_import import after_import
from .expert import Expert, Form
from .stacked_experts import StackedExperts, why_apart
from .watch import Watch

MOST_RENEWALS = 8  # stacks that calls make of weights which are replaced again and again
_STACKING = threading.RLock()
_OF_EVERY_MODULE = frozenset(nn.Module().__dict__)


class Spread(Protocol):
    """How ranks share the experts of a layer; ``distributed`` has it.

    Attributes:
        own: the numbers of the experts whose weights this rank has, or its share of.
    """

    own: range

    def refuse_others(self) -> None: ...
    def of_chosen(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor: ...
    def of_sorted(self, x: Tensor) -> Tensor: ...


class Experts(nn.Module):
    """The experts of one layer, each an :class:`Expert` by its number.

    Rows are sorted by expert, each expert multiplies those that it has, and the results of a token
    are weighted and added up in the order of its choices, so that a repeat gives the same bits.
    Where the weights of all experts are packed alike they lie in stacked tensors, and one product
    of all experts follows the other, without a word from the host (``fused_moe``). Otherwise (other
    kinds of weights, adapters, hooks, float32 on a GPU) each call reads on the host how many rows
    each expert has: it waits for the GPU once, and cannot be captured in a CUDA graph.

    Args:
        source: the module of transformers. Its attributes and submodules are taken over, its
            weights and their biases are not.
        form: how it holds its experts. experts: in their order.
        in_one_tensor: whether files of such models hold all experts of a layer in one tensor, so
            that readers look for that.

    Attributes:
        form, in_one_tensor: as given.
        source_class, source_names, source_flags: the class of ``source``, the names of what was
            taken over, and its private attributes; no class in what an older version pickled.
        spread: how ranks share the work, where they do (``mixed_gemm.parallel``).
        starved: numbers of experts that compute all rows, too, before their own, so that
            calibration sees what the layer sees; these results are dropped.
    """

    form: Form
    source_class: type[nn.Module] | None = None
    source_names: tuple[str, ...] = ()
    source_flags: Mapping[str, Any] = MappingProxyType({})
    spread: Spread | None = None
    _stacked: StackedExperts | None = None
    _watch: Watch | None = None  # None where experts are to be looked at again
    _apart: str = ""
    _renewals: int = 0

    def __init__(
        self, source: nn.Module, form: Form, experts: list[Expert], in_one_tensor: bool = False
    ) -> None:
        super().__init__()
        kept = {x: y for x, y in source.__dict__.items() if not x.startswith("_")}
        self.__dict__.update({x: y for x, y in kept.items() if x != "training"})
        self.source_class, self.source_names = type(source), (*kept, *source._modules)
        private = source.__dict__.keys() - kept.keys() - _OF_EVERY_MODULE
        self.source_flags = {x: source.__dict__[x] for x in sorted(private)}
        self.form, self.starved = form, frozenset[int]()
        self.in_one_tensor = in_one_tensor
        self._gate_of = getattr(type(source), "_apply_gate", None)
        self.has_own_gate = self._gate_of is not None and not _is_default(self._gate_of)
        for name, module in source._modules.items():
            self.add_module(name, module)
        for number, expert in enumerate(experts):
            self.add_module(str(number), expert)
        self.register_load_state_dict_post_hook(_stack_again)  # type: ignore[no-untyped-call]
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

    @property
    def own(self) -> dict[int, Expert]:
        """The experts whose weights this process has, or its share of, by their numbers."""
        numbers = range(self.form.count) if self.spread is None else self.spread.own
        return {number: self.expert(number) for number in numbers}

    def gated(self, gate: Tensor | None, up: Tensor) -> Tensor:
        """Return what the second product multiplies, as the model's own code computes it.

        Args:
            gate: ``[T, intermediate size]``, None without a gate. up: of that shape.
        """
        activation: Any = getattr(self, "act_fn", None)
        if gate is None:
            return activation(up)  # type: ignore[no-any-return]
        if not self.has_own_gate:
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
        spread = self.spread
        if self.form.is_sorted:
            of_sorted = self.of_sorted if spread is None else spread.of_sorted
            return of_sorted(hidden_states)
        assert index is not None and weights is not None
        if spread is not None:
            return spread.of_chosen(hidden_states, index, weights)
        return self.of_chosen(hidden_states, index, weights)

    def of_chosen(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """The results of the experts that are here, by their place among those.

        Args:
            x: ``[T, hidden size]``. index: int ``[T, k]``; others than 0 to their number add
                nothing. weights: float ``[T, k]``.
        """
        if torch.compiler.is_compiling():
            stacked = self._stacked  # gone as soon as a weight is replaced
            if stacked is not None and not self.starved and stacked.multiplies(x):
                return stacked.forward(self, x, index, weights)
        return self._eagerly(x, index, weights)

    def stack(self) -> bool:
        """Put the weights of all experts into stacked tensors, of which those of the linears become
        views, and tell whether that could be done. The first call does so by itself."""
        self._renewals = 0
        if self._stacked is None:
            self._watch = None
        self._look()
        return self._stacked is not None

    @property
    def why_one_by_one(self) -> str:
        """Why experts are not multiplied together; empty where they are. Calls in another dtype
        than that of the weights, under autocast or with hooks go one by one in any case."""
        self._look()
        if self._stacked is None or self._stacked.is_fast:
            return self._apart
        return "weights are float32 on a GPU"

    def _look(self) -> None:
        """Stack what may have been replaced, unless a mode of torch records or fakes operators."""
        if _get_current_dispatch_mode() is not None:
            return
        with _STACKING:
            if self._watch is not None and self._watch.holds():
                return
            self._stacked = self._watch = None
            if self.spread is not None:
                self.spread.refuse_others()
            self._apart = why_apart(self)
            if not self._apart and self._renewals > MOST_RENEWALS:
                self._apart = "weights are replaced again and again"
            if not self._apart:
                self._renewals += 1
                try:
                    self._stacked = StackedExperts(self)
                except torch.OutOfMemoryError:
                    self._apart = "there is no memory for another copy of the layer"
            self._watch = Watch(self) if self._stacked is None else self._stacked.watch

    def _stacked_for(self, x: Tensor) -> StackedExperts | None:
        """The stack of the weights there are, where it multiplies ``x`` and no hook wants to see a
        linear; none is made in a CUDA graph."""
        if self.starved or _has_any_global_hook():  # type: ignore[no-untyped-call]
            return None
        if self._watch is None or not self._watch.holds():
            if x.is_cuda and torch.cuda.is_current_stream_capturing():
                return None
            self._look()
        found, watch = self._stacked, self._watch
        if found is None or watch is None or not watch.holds():
            return None
        if watch.is_hooked or watch.traced or not found.multiplies(x):
            return None
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> Experts:
        was_stacked = self._stacked is not None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # each tensor by itself
        if was_stacked and self._stacked is None:
            self.stack()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_stacked": None,
            "_watch": None,
        }  # the weights of a copy are apart

    def of_sorted(self, x: Tensor) -> Tensor:
        """The results of the experts that are here, each for as many rows.

        Args:
            x: ``[their number * T, hidden size]``, one expert after the other.
        """
        size, own = x.shape[-1], self.own.values()
        rows = x.reshape(len(own), -1, size)
        found = [expert(part, self) for part, expert in zip(rows, own, strict=True)]
        return torch.stack(found).reshape(-1, size)

    def _eagerly(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        stacked = self._stacked_for(x)
        if stacked is not None:
            return stacked.forward(self, x, index, weights)
        return self._one_by_one(x, index, weights)

    def _one_by_one(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        tokens, k = index.shape
        chosen, order = torch.sort(index.reshape(-1), stable=True)
        own = self.own
        numbers = torch.arange(len(own) + 1, device=chosen.device, dtype=chosen.dtype)
        edges = torch.searchsorted(chosen, numbers).tolist()  # rows of e: edges[e] to edges[e + 1]
        rows = x[order // k]
        parts = [rows.new_zeros(edges[0], x.shape[-1])]
        for place, (number, expert) in enumerate(own.items()):
            start, stop = edges[place : place + 2]
            if number in self.starved:
                expert(x[:], self)  # a tensor of its own, by which calibration tells layers apart
            if start < stop:
                parts.append(expert(rows[start:stop], self))
        parts.append(rows.new_zeros(tokens * k - edges[-1], x.shape[-1]))
        sorted_out = torch.cat(parts) * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
        return sorted_out[back].view(tokens, k, x.shape[-1]).sum(1).to(x.dtype)


def _keep_dynamo_out() -> None:
    """Have torch.compile break its graph here: the loop follows the data, and stacks that are made
    here are in the next graph."""
    eagerly: Any = Experts._eagerly
    Experts._eagerly = torch.compiler.disable(eagerly)  # type: ignore[method-assign,no-untyped-call]


after_import("torch._dynamo", _keep_dynamo_out)  # which takes seconds, for those who compile


def _stack_again(experts: Experts, keys: Any) -> None:
    """After a state_dict was loaded, weights may be others."""
    experts._look()


def _is_default(gate: Any) -> bool:
    return str(getattr(gate, "__name__", "")) == "_default_apply_gate"


def stack_experts(model: nn.Module) -> None:
    """Stack the experts of a model whose weights are all there, one layer at a time, so that its
    first call may be one that torch.compile traces.

    Args:
        model: any.
    """
    for module in model.modules():
        if isinstance(module, Experts):
            module.stack()
