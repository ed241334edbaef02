"""One unit while its layers are quantized, and what their inputs look like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..ops.errors import ArgumentValueError
from .chain import Given
from .own import Finished
from .site import Site
from .state import State, Stop
from .values import first_tensor


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
    """A unit, what it is called with, and its layers.

    Args:
        name: of the unit.
        block: the module, or a function. sites: its layers that are quantized.
        given: what it is called with, once for each call of each batch.
        reference: what it is called with in the dense model; None where nobody asks.
        runs: of each call, name of a layer -> how often it runs; a layer that is missing may run
            any number of times.
        finished: layers of units before that the block may hold, too.
    """

    def __init__(
        self,
        name: str,
        block: Callable[..., Any],
        sites: list[Site],
        given: list[Given],
        reference: list[Given] | None = None,
        runs: list[dict[str, int]] | None = None,
        finished: Finished | None = None,
    ) -> None:
        self.name, self.block, self.sites = name, block, sites
        self.given, self.reference = given, reference
        self.wanted: list[Tensor] | None = None  # what the dense block makes of the reference
        self.undo: list[Callable[[], None]] = []  # what was changed of layers that stay
        self.changed: list[str] = []  # such layers, as the block calls them
        self.shared: set[int] = set()  # ids of parameters that hang at more than one place
        self._runs, self._finished = runs or [{}] * len(given), finished or Finished()
        self._modules = set(block.modules()) if isinstance(block, nn.Module) else set()
        self._state: State | None = None

    @contextmanager
    def stand_ins(self) -> Iterator[None]:
        """The stand-ins hang in the places of the layers, and each run begins from the state in
        which the block is now."""
        own = isinstance(self.block, nn.Module)
        state = State(self.block.modules()) if own else nullcontext()  # type: ignore[attr-defined]
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
        """The stand-ins compute with their dense weights, and layers that another unit holds, too,
        are dense."""
        for site in self.sites:
            site.use_dense()
        try:
            with self._finished.dense(self._modules):
                yield
        finally:
            for site in self.sites:
                site.use_result()

    def results(self, given: Given) -> Any:
        """All that the block returns for one call."""
        with nullcontext() if self._state is None else self._state.run():
            return given.run(self.block)

    def run(self, given: Given) -> Tensor:
        """The output of the block for one call: the first tensor that it returns."""
        return first_tensor(self.results(given))

    @torch.no_grad()
    def outputs(self, given: list[Given]) -> list[Tensor]:
        return [self.run(x) for x in given]

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
            for given in self.given:  # an expert may wait for its first token
                self.run(given)
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
    def inputs(self, site: Site, index: int, given: Given) -> list[Tensor]:
        """What a layer reads in one call, each time that it runs.

        Args:
            site: the layer. index: of the call. given: what the block is called with there.
        """
        seen: list[Tensor] = []
        most = self._runs[index].get(site.name, 0)

        def see(site: Site, x: Tensor) -> None:
            seen.append(x.clone() if most != 1 else x)
            if len(seen) == most:
                raise Stop

        with self._watched([site], see), suppress(Stop):
            self.run(given)
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
        for i, given in enumerate(self.given):
            wanted: list[Tensor] = []
            if reference and self.reference is not None:
                with self.dense():
                    wanted = self.inputs(first, i, self.reference[i])
            found = self.inputs(first, i, given)
            paired = len(found) == len(wanted)  # experts may be given other tokens
            for x, want in zip(found, wanted if paired else [None] * len(found), strict=True):
                result.add(x, want)
        if not bool(result.mean.isfinite().all()):
            raise ArgumentValueError(f"calibration: the input of {first.name} holds NaN or Inf")
        return result
