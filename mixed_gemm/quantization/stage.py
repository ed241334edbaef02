"""One block while its layers are quantized: stand-ins for them, and what their inputs look like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..ops.errors import ArgumentValueError
from ..weights.rounding import checked_dense
from ..weights.tensor import QuantizedTensor
from .chain import Call, Stop
from .select import Target
from .state import State


class Site:
    """A layer of the block: a stand-in with the same weight hangs in its place, so that the
    layer itself stays as it was.

    Attributes:
        name: of the layer. target: the layer and its scheme.
        dense: its weight ``[N, K]``. result: the quantized one, once there is one.

    Raises:
        ValueError: the weight holds NaN or Inf.
    """

    def __init__(self, name: str, target: Target) -> None:
        self.name, self.target = name, target
        self.dense: Tensor = checked_dense(name, target.layer.weight, ("N", "K"))
        self.result: QuantizedTensor | None = None
        self.note = ""
        self.output_error: float | None = None
        self.values: Tensor | None = None  # what AutoRound computes with while it learns
        n, k = self.dense.shape
        self.module = nn.Linear(k, n, bias=False, device="meta")
        if (bias := target.layer.bias) is not None:
            self.module.bias = nn.Parameter(bias.detach(), requires_grad=False)
        self.use(self.dense)
        self._stored = self.dense

    def use(self, weight: Tensor) -> None:
        """Compute with another weight ``[N, K]``."""
        self.module.weight = nn.Parameter(weight, requires_grad=False)

    def use_dense(self) -> None:
        self.use(self.dense)

    def use_result(self) -> None:
        self.use(self._stored)

    def finish(self, weight: QuantizedTensor, note: str = "", gram: Tensor | None = None) -> None:
        """Keep the quantized weight, and compute with what it stands for.

        Args:
            weight: the result. note: what was done, in words.
            gram: of the inputs, ``[K, K]``, where it is known: what rounding changes of the output
                follows from it.
        """
        self.result, self.note = weight, note
        self._stored = weight.dequantize(self.dense.dtype)
        self.use_result()
        if gram is not None:
            dense = self.dense.float()
            changed, whole = (
                float(((x @ gram) * x).sum()) for x in (self._stored.float() - dense, dense)
            )
            self.output_error = (max(changed, 0.0) / max(whole, 1e-30)) ** 0.5

    def release(self) -> None:
        """Forget what only calibration needed."""
        self.dense = self._stored = torch.empty(0)
        self.use(self.dense)

    def reset(self) -> None:
        """Compute with the dense weight, as before there was a result."""
        self.result, self._stored = None, self.dense
        self.use_dense()

    def rescale(self, factors: Tensor, dim: int) -> None:
        """Multiply rows (0) or columns (1) of the dense weight, in a copy of it."""
        by = factors[:, None] if dim == 0 else factors
        self.dense = (self.dense.float() * by).to(self.dense.dtype)
        self.reset()

    def rescaled_for_now(self, factors: Tensor) -> Callable[[], None]:
        """Multiply columns of the dense weight; the result takes it back."""
        kept = self.dense
        self.rescale(factors, 1)

        def back() -> None:
            self.dense = kept
            self.reset()

        return back

    @property
    def bias_changed(self) -> bool:
        """Whether factors went into it."""
        mine, kept = self.module.bias, self.target.layer.bias
        return bool(mine is not None and mine.data_ptr() != kept.data_ptr())

    def commit(self) -> list[Callable[[], None]]:
        """Take over the bias, where factors went into it; the result takes it back."""
        if not self.bias_changed:
            return []
        bias = self.target.layer.bias
        before = bias.detach().clone()
        bias.data.copy_(self.module.bias)
        return [lambda: bias.data.copy_(before)]


@dataclass
class Moments:
    """Second moments of the inputs of a group of layers.

    gram: sum of x x^T over the tokens that come out of the blocks before as they are quantized,
    float32 ``[K, K]``. cross: sum of (x - x') x^T, where x' is what the dense model has there: the
    error that came in. tokens: how many. mean: of abs(x), ``[K]``.
    """

    gram: Tensor
    cross: Tensor
    mean: Tensor
    tokens: int = 0

    @classmethod
    def zeros(cls, k: int, device: torch.device) -> Moments:
        square = torch.zeros(k, k, device=device)
        return cls(square, torch.zeros_like(square), torch.zeros(k, device=device))

    def add(self, x: Tensor, reference: Tensor | None) -> None:
        x = x.detach().reshape(-1, x.shape[-1]).float()
        self.gram.addmm_(x.t(), x)
        self.mean += x.abs().sum(0)
        self.tokens += len(x)
        if reference is not None:
            reference = reference.detach().reshape(-1, x.shape[-1]).float()
            if reference.shape == x.shape:  # experts may be given other tokens
                self.cross.addmm_((x - reference).t(), x)


class Stage:
    """A block, the hidden states that enter it, and its layers.

    Args:
        name: of the block.
        block: the module, or a function. sites: its layers that are quantized.
        calls: how the block is called, a batch each.
        hidden: what enters it. reference: what enters it in the dense model; None where nobody
            asks.
    """

    def __init__(
        self,
        name: str,
        block: Callable[..., Any],
        sites: list[Site],
        calls: list[Call],
        hidden: list[Tensor],
        reference: list[Tensor] | None,
    ) -> None:
        self.name, self.block, self.sites, self.calls = name, block, sites, calls
        self.hidden, self.reference = hidden, reference
        self.wanted: list[Tensor] | None = None  # what the dense block makes of the reference
        self.undo: list[Callable[[], None]] = []  # what was changed of layers that stay
        self.changed: list[str] = []  # such layers, as the block calls them
        self.shared: set[int] = set()  # ids of parameters that hang at more than one place
        self._state: State | None = None

    @contextmanager
    def stand_ins(self) -> Iterator[None]:
        """The stand-ins hang in the places of the layers, and each run begins from the state in
        which the block is now."""
        state = State(self.block.modules()) if isinstance(self.block, nn.Module) else nullcontext()
        kept = [(p, c, getattr(p, c)) for site in self.sites for p, c in site.target.places]
        try:
            for site in self.sites:
                for parent, child in site.target.places:
                    setattr(parent, child, site.module)
            with state as self._state:
                yield
        finally:
            for parent, child, module in kept:
                setattr(parent, child, module)

    @contextmanager
    def dense(self) -> Iterator[None]:
        """The stand-ins compute with their dense weights."""
        for site in self.sites:
            site.use_dense()
        try:
            yield
        finally:
            for site in self.sites:
                site.use_result()

    def run(self, index: int, hidden: Tensor) -> Tensor:
        """The output of the block for one batch."""
        with nullcontext() if self._state is None else self._state.run():
            return self.calls[index].run(self.block, hidden)

    @torch.no_grad()
    def outputs(self, hidden: list[Tensor]) -> list[Tensor]:
        return [self.run(i, x) for i, x in enumerate(hidden)]

    @torch.no_grad()
    def groups(self) -> list[list[Site]]:
        """The layers in the order in which they run; those that read the same tensor together.

        Raises:
            ValueError: a layer does not run.
        """
        found: list[tuple[Tensor, list[Site]]] = []
        reached: set[str] = set()

        def note(site: Site, x: Tensor) -> None:
            if site.name in reached:
                return
            reached.add(site.name)
            together = next((group for y, group in found if y is x), None)
            if together is None:
                found.append((x, together := []))
            together.append(site)

        with self._watched(self.sites, note):
            for i, x in enumerate(self.hidden):  # an expert may wait for its first token
                self.run(i, x)
                if len(reached) == len(self.sites):
                    break
        missed = [site.name for site in self.sites if site.name not in reached]
        if missed:
            raise ArgumentValueError(
                f"quantize_: calibration never reached {missed[0]}"
                + (f" and {len(missed) - 1} more" if len(missed) > 1 else "")
                + ". Hint: more calibration data, or name it in skip"
            )
        return [group for _, group in found]

    @contextmanager
    def _watched(self, sites: list[Site], see: Callable[[Site, Tensor], None]) -> Iterator[None]:
        def hook(site: Site) -> Any:
            def run(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                see(site, args[0] if args else kwargs["input"])

            return site.module.register_forward_pre_hook(run, with_kwargs=True)

        handles = [hook(site) for site in sites]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def inputs(self, site: Site, index: int, hidden: Tensor) -> list[Tensor]:
        """What a layer reads of one batch; nothing where it does not run."""
        seen: list[Tensor] = []

        def see(site: Site, x: Tensor) -> None:
            seen.append(x)
            raise Stop

        with self._watched([site], see), suppress(Stop):
            self.run(index, hidden)
        return seen

    @torch.no_grad()
    def moments(self, group: list[Site], *, reference: bool = True) -> Moments:
        """Of the inputs of a group of :meth:`groups`, with the groups before it as they are now;
        without ``reference`` the errors that come in are left out.

        Raises:
            ValueError: an input is NaN or Inf.
        """
        first, k = group[0], group[0].dense.shape[1]
        result = Moments.zeros(k, first.dense.device)
        for i, x in enumerate(self.hidden):
            wanted: list[Tensor] = []
            if reference and self.reference is not None:
                with self.dense():
                    wanted = self.inputs(first, i, self.reference[i])
            for given in self.inputs(first, i, x):
                result.add(given, wanted[0] if wanted else None)
        if not bool(result.mean.isfinite().all()):
            raise ArgumentValueError(f"calibration: the input of {first.name} holds NaN or Inf")
        return result
