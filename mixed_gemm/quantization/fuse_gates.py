"""The gate of an MLP, by numbers that stand for the products of its layers.

The layers are not called: each returns numbers that were chosen, of both signs, tiny and huge and
random, and the module's own forward makes of them what the last layer is called with. That is
compared with what ``gated_activation`` makes of the same numbers, in float32, where no rounding in
between hides a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.gates import PROBE, Gate, candidates
from ..nn.linear import Linear

# dtype of the result -> (relative, absolute) difference that rounding makes, before a product.
_CLOSE = {torch.float32: (2e-5, 1e-5), torch.bfloat16: (1e-2, 1e-5), torch.float16: (2e-3, 1e-5)}


class Odd(Exception):
    """A module computes something else; the text says what is odd about it."""


def gate_between(
    module: nn.Module, sources: Sequence[Linear], down: nn.Module, x: Tensor
) -> tuple[Gate, bool]:
    """The gate that a module computes, and whether the second of two layers, or of the halves of
    one, is the gate.

    Args:
        module: in eval mode, whose forward may be called with its own kind of input.
        sources: its layers that read the input. down: the layer that returns the output.
        x: an input ``[..., K]``, of the dtype that the model has.

    Raises:
        Odd: there is none.
    """
    halves = 2 // len(sources)
    columns = sources[0].out_features // halves
    probes = [_numbers(seed, columns, x.device) for seed in (0, 1)]
    found = [_Trial(module, sources, down, x).of(*probe) for probe in probes]
    for gate in candidates(module):
        for swapped in (False, True):
            if all(_is(gate, swapped, *y) for y in zip(probes, found, strict=True)):
                _Trial(module, sources, down, x).refuse_casts(*probes[0])
                return gate, swapped
    raise Odd(
        "what it computes between its products is no activation of gate, times up, that "
        "gated_activation has"
    )


def _numbers(seed: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Float32 ``[M, columns]`` twice, with all of ``PROBE`` in the first, or random numbers."""
    rows = -(-2 * len(PROBE) // columns) + 1
    generator = torch.Generator().manual_seed(seed)
    first, second = (3 * torch.randn(rows * columns, generator=generator) for _ in "ab")
    if seed == 0:
        chosen = torch.tensor(PROBE)
        first[: len(PROBE)], second[: len(PROBE)] = chosen, chosen.flip(0).roll(7)
    return first.view(rows, columns).to(device), second.view(rows, columns).to(device)


def _is(gate: Gate, swapped: bool, probe: tuple[Tensor, Tensor], found: Tensor) -> bool:
    wanted = gate(torch.cat(probe[::-1] if swapped else probe, -1))
    relative, absolute = _CLOSE[found.dtype]
    return torch.allclose(found.float(), wanted, rtol=relative, atol=absolute)


class _Trial:
    """Calls of a module whose layers return what they are told to."""

    def __init__(
        self, module: nn.Module, sources: Sequence[Linear], down: nn.Module, x: Tensor
    ) -> None:
        self._module, self._sources, self._down, self._x = module, sources, down, x

    def of(self, first: Tensor, second: Tensor) -> Tensor:
        """The argument that the last layer is called with.

        Args:
            first, second: ``[M, I]``, products of the layers that read the input, or of the halves
                of one.

        Returns:
            ``[M, I]``, in whatever dtype it has.
        """
        form = (1,) * (self._x.dim() - 2)
        given = [x.view(*form, *x.shape) for x in (first, second)]
        if len(self._sources) == 1:
            given = [torch.cat(given, -1)]
        x = torch.randn(*given[0].shape[:-1], self._x.shape[-1]).to(self._x)
        seen: list[Any] = []
        out = torch.empty(0, device=x.device)

        def last(*args: Any, **kwargs: Any) -> Tensor:
            seen.append((args, kwargs))
            return out

        with ExitStack() as stack:
            for layer, rows in zip(self._sources, given, strict=True):
                stack.enter_context(_in_place_of(layer, _returning(rows, x)))
            stack.enter_context(_in_place_of(self._down, last))
            stack.enter_context(torch.autocast(x.device.type, enabled=False))
            try:
                result = self._module.forward(x)
            except Odd:
                raise
            except Exception as error:  # whatever the code of a model may raise on other numbers
                text = (str(error).splitlines() or [""])[0][:80]
                raise Odd(f"it does not run on float32 ({type(error).__name__}: {text})") from error
        if result is not out or len(seen) != 1 or len(seen[0][0]) != 1 or seen[0][1]:
            raise Odd("it does something with the output of its last layer")
        found = seen[0][0][0]
        wanted = (*x.shape[:-1], first.shape[-1])
        if len(given) == 1 and getattr(found, "shape", ()) == given[0].shape:
            raise Odd("it has no gate: its last layer reads as many columns as its first returns")
        if not isinstance(found, Tensor) or found.shape != wanted or found.dtype not in _CLOSE:
            raise Odd("its last layer does not read as many columns as gate and up have")
        return found.reshape(first.shape)

    def refuse_casts(self, first: Tensor, second: Tensor) -> None:
        """Raise where products in the model's dtype would be cast to another one.

        Args:
            first, second: of :meth:`of`.
        """
        dtype = self._x.dtype
        found = self.of(first.to(dtype), second.to(dtype)).dtype
        if found != dtype:
            raise Odd(f"it casts to {found} between its products")


def _returning(rows: Tensor, x: Tensor) -> Callable[..., Tensor]:
    def forward(given: Any) -> Tensor:
        if given is not x:
            raise Odd("a layer reads something else than its input")
        return rows.clone()  # which the module may write to

    return forward


@contextmanager
def _in_place_of(module: nn.Module, forward: Callable[..., Tensor]) -> Iterator[None]:
    """Call ``forward`` in the place of that of the class."""
    own = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        module.__dict__.pop("forward")
        if own is not None:
            module.__dict__["forward"] = own
