"""Methods that a user wrote: with what ``Method`` and ``BlockMethod`` ask for and nothing else, and
with what a method may state besides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import mixed_gemm
from mixed_gemm.formats.sources import RECIPE
from mixed_gemm.quantization import methods


class Plain:
    """No more than the three functions of ``Method``."""

    def __init__(self) -> None:
        self.batches: list[Any] | None = None

    def __repr__(self) -> str:
        return "Plain()"

    def prepare(self, model: nn.Module, targets: Any, calibration: Iterable[Any] | None) -> None:
        self.batches = None if calibration is None else list(calibration)

    def weight(self, name: str, target: Any) -> mixed_gemm.QuantizedTensor:
        return methods.RoundToNearest().weight(name, target)

    def note(self, name: str) -> str:
        return f"mine: {name}"


class Telling(Plain):
    """A method that states the rest, too."""

    reads_calibration = True
    calibrated: ClassVar = {"0": "by hand"}

    def output_error(self, name: str) -> float | None:
        return 0.25


@dataclass(frozen=True)
class Older:
    """A method for blocks in the words of before: sites, block and moments."""

    bits: int | None = None
    then: Any = None
    needs_reference = False  # so that needs_outputs is never asked for

    def quantize(self, stage: Any) -> None:
        assert isinstance(stage.block, nn.Module) or callable(stage.block)
        for group in stage.groups():
            found = stage.moments(group, reference=False)
            assert found.tokens > 0 and found.gram.shape == found.cross.shape
        for site in stage.sites:
            method = methods.SearchedRounding(self.bits)
            site.finish(method.weight(site.name, site.target), f"older, bits={self.bits}")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))


def batches() -> list[torch.Tensor]:
    return [torch.randn(8, 64, generator=torch.Generator().manual_seed(i)) for i in range(2)]


def quantized(method: Any, **options: Any) -> Any:
    return mixed_gemm.quantize_(model(), group_size=32, method=method, **options)


def test_three_functions_are_enough() -> None:
    found = quantized(Plain())
    assert found.quantized == ("0", "2")
    assert found.layers["0"].note == "mine: 0"
    assert found.layers["0"].output_error is None
    assert found.calibrated == {}


def test_a_method_is_named_in_the_recipe_by_its_own_repr() -> None:
    whole = model()
    mixed_gemm.quantize_(whole, group_size=32, method=Plain())
    assert getattr(whole, RECIPE)["method"] == "Plain()"


def test_what_a_method_states_besides_is_reported() -> None:
    found = quantized(Telling())
    assert found.layers["2"].output_error == 0.25
    assert found.calibrated == {"0": "by hand"}


def test_an_average_of_bits_leaves_the_data_to_a_method_that_reads_it() -> None:
    plain, telling = Plain(), Telling()
    for method in (plain, telling):
        quantized(method, average_bits=4.5, calibration=batches())
    assert plain.batches is None
    assert telling.batches is not None and len(telling.batches) == 2


def test_a_method_in_the_words_of_before() -> None:
    found = quantized(Older(), calibration=batches())
    assert found.quantized == ("0", "2")
    assert found.layers["2"].note == "older, bits=None"


def test_fewer_bits_reach_a_method_within_a_method() -> None:
    found = methods.named(Older(then=methods.AWQ(then=methods.GPTQ())), 3)
    assert isinstance(found, Older)
    assert (found.bits, found.then.bits, found.then.then.bits) == (3, 3, 3)
    with pytest.raises(TypeError, match=r"Plain\(\) takes no bits=2"):
        methods.named(Plain(), 2)


@pytest.mark.parametrize("method", [object(), nn.ReLU(), 4])
def test_what_is_no_method_is_refused(method: Any) -> None:
    with pytest.raises(TypeError, match="method must be one of rtn, hqq"):
        quantized(method)
