"""A method of ``quantize_`` that compares, before it rounds, the inputs that calibration gives each
layer with those that the layer reads in plain runs of copies of the model, bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.quantization.conv1d import is_conv1d
from mixed_gemm.quantization.methods.rounding import RoundToNearest
from mixed_gemm.quantization.own import _Rounded
from mixed_gemm.quantization.state import without_cache

SEED = 11  # of the random numbers that models draw
SCHEME = mixed_gemm.Scheme.weight_only(4, -1)


@contextmanager
def seen_by(layers: dict[str, nn.Module]) -> Iterator[dict[str, list[Tensor]]]:
    """Layer -> what it reads within this, each time that it runs."""
    found: dict[str, list[Tensor]] = {name: [] for name in layers}

    def hook(name: str) -> Any:
        def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found[name].append((args[0] if args else kwargs["input"]).detach().clone())

        return see

    handles = [x.register_forward_pre_hook(hook(n), with_kwargs=True) for n, x in layers.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def plain(model: nn.Module) -> nn.Module:
    """A copy in which stand-ins are linears of torch."""
    twin = copy.deepcopy(model)
    for module in list(twin.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, _Rounded):
                layer = nn.Linear(child.in_features, child.out_features, child.bias is not None)
                layer.weight = nn.Parameter(child.weight.clone(), requires_grad=False)
                layer.bias = child.bias
                setattr(module, name, layer)
    return twin


@torch.no_grad()
def read_in(model: nn.Module, names: Sequence[str], batches: Sequence[Any]) -> dict[str, Any]:
    """Layer -> what it reads, of the model by itself; every batch is the first for a copy of it."""
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for batch in batches:
        twin = plain(model).eval()
        with seen_by({x: twin.get_submodule(x) for x in names}) as seen, without_cache(twin):
            transformers.set_seed(SEED)
            twin(**copy.deepcopy(batch))
        for name in names:
            found[name] += seen[name]
    return found


def differences(mine: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Names of layers that read something else; NaN is like itself."""

    def alike(x: Tensor, y: Tensor) -> bool:
        same = x.shape == y.shape and x.dtype == y.dtype
        return same and bool(torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0)))

    return [
        name
        for name, every in wanted.items()
        if len(every) != len(mine[name]) or not all(map(alike, mine[name], every))
    ]


class Compared:
    """Compares, then another method rounds, or each weight goes to the nearest number.

    Args:
        model: that is quantized. batches: of calibration. method: that rounds.
    """

    needs_reference = True

    def __init__(self, model: nn.Module, batches: Sequence[Any], method: Any = None) -> None:
        self._model, self._batches, self._method = model, batches, method
        self._dense = copy.deepcopy(model)
        self.wrong: list[str] = []
        self.looked = 0

    @property
    def needs_outputs(self) -> bool:
        return self._method is not None and bool(self._method.needs_outputs)

    @torch.no_grad()
    def quantize(self, stage: Any) -> None:
        names = [site.name for site in stage.sites]
        layers = {site.name: site.module for site in stage.sites}
        with seen_by(layers) as rounded:
            stage.outputs(stage.given)
        self._compare("rounded", rounded, read_in(self._model, names, self._batches))
        with seen_by(layers) as dense, stage.dense():
            stage.outputs(stage.reference)
        self._compare("dense", dense, read_in(self._dense, names, self._batches))
        assert stage.wanted is None or len(stage.wanted) == len(stage.given)
        if self._method is not None:
            self._method.quantize(stage)
            return
        stage.groups()
        for site in stage.sites:
            site.finish(RoundToNearest().weight(site.name, site.target))

    def _compare(self, which: str, mine: dict[str, Any], wanted: dict[str, Any]) -> None:
        self.wrong += [f"{which}: {name}" for name in differences(mine, wanted)]
        self.looked += sum(map(len, wanted.values()))


def reached(model: nn.Module, batches: Sequence[Any]) -> set[str]:
    """Linears that run at all."""
    layers = {n: x for n, x in model.named_modules() if type(x) is nn.Linear or is_conv1d(x)}
    return {name for name, every in read_in(model, list(layers), batches).items() if every}


def calibrated(model: Any, batches: Sequence[Any], method: Any = None) -> dict[str, str]:
    """Unit -> how ``quantize_`` calibrated it, where every layer read what it should.

    Args:
        model: that is quantized. batches: of calibration. method: that rounds; None: each weight
            to the nearest number.

    Raises:
        AssertionError: a layer read something else.
    """
    run = reached(model, batches)
    compared = Compared(model, batches, method)
    transformers.set_seed(SEED)
    report = mixed_gemm.quantize_(
        model, SCHEME, method=compared, calibration=batches, progress=False,
        skip=lambda name, module: name not in run,
    )  # fmt: skip
    if not report.quantized:
        raise LookupError("none of its layers is quantized")
    assert compared.looked and compared.wrong == [], compared.wrong
    assert set(report.quantized) <= run
    return dict(report.calibrated)
