"""A weight type that is no integer, as a row of the table says it: what every part of the library
that has no kernel for it does with its codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mixed_gemm
from mixed_gemm.formats.checkpoint import open_checkpoint
from mixed_gemm.formats.outline import Outline
from mixed_gemm.formats.save import save_checkpoint
from mixed_gemm.ops.problem import WEIGHTS, WeightType, float_weight
from mixed_gemm.quantization.methods import HQQ, AutoRound, Distilled
from mixed_gemm.quantization.methods.fits import refuse_unfit
from mixed_gemm.quantization.methods.grid import Range
from mixed_gemm.quantization.methods.search import search
from mixed_gemm.quantization.methods.solve import compensated, damped, row_costs
from mixed_gemm.weights.codes import nearest_codes, values_of
from mixed_gemm.weights.exchange import QuantizedWeight
from mixed_gemm.weights.integer import IntegerWeight
from mixed_gemm.weights.kinds import storing
from mixed_gemm.weights.scheme import Scheme, Side, refined

# A sign and three bits of exponent: 0 and powers of two.
VALUES = tuple(s * x for s in (1.0, -1.0) for x in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0))
TOY = Scheme(Side("float", 4, "group", 32))


@pytest.fixture(autouse=True)
def row() -> Iterator[None]:
    before = dict(WEIGHTS)
    del WEIGHTS["e2m1"]  # of as many bits
    WEIGHTS["toy4"] = WeightType(4, 0, False, VALUES)
    yield
    WEIGHTS.clear()
    WEIGHTS.update(before)  # in the order that errors list


def weight(n: int = 6, k: int = 64, dtype: torch.dtype = torch.float16) -> QuantizedWeight:
    q = torch.randint(0, 16, (n, k), generator=torch.Generator().manual_seed(0)).to(torch.int8)
    scales = torch.linspace(0.5, 2, 2 * n).reshape(2, n).to(dtype)
    return QuantizedWeight.stored_as("layer", q, scales, scheme=TOY)


def test_a_scheme_knows_its_weight_type_and_back() -> None:
    assert float_weight(4) == TOY.weight_type == "toy4" and float_weight(8) is None
    assert Scheme.of_file("toy4", 32) == TOY == Scheme.weight_only(4, 32).coded_as("toy4")
    assert TOY.is_packed and not TOY.is_weight_only
    assert Scheme.from_dict(TOY.as_dict()) == TOY
    assert TOY.with_group_size(16) == Scheme.of_file("toy4", 16) == TOY.grouped(16)
    assert TOY.with_group_size(128, 64) == Scheme.of_file("toy4")
    assert TOY.gemm_options == {"weight": "toy4", "group_size": 32}
    assert refined("here", TOY, group_size=16) == TOY.grouped(16)
    for wrong in ({"bits": 8}, {"symmetric": False}, {"activations": "dynamic"}):
        with pytest.raises(ValueError, match="not be given"):
            refined("here", TOY, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not be given"):
        refined("here", TOY, group_size=16, activations="dynamic")
    with pytest.raises(ValueError, match="multiple of 16"):
        TOY.grouped(24)


def test_nothing_takes_its_codes_for_integers() -> None:
    assert storing(TOY, 2) is None and not IntegerWeight.stores(TOY, 2)
    with pytest.raises(ValueError, match="bits must be None for toy4, got 3"):
        Range.of(TOY, 64, torch.float16, bits=3)
    for method in (HQQ(), AutoRound(), Distilled()):
        with pytest.raises(ValueError, match=r"codes that are no integers.*Hint: method='gptq'"):
            refuse_unfit("here", method, "layer", TOY)
    with pytest.raises(ValueError, match="zero_mode must be 'none' for toy4"):
        QuantizedWeight("x", weight().q, weight().scales, weight().scales, group_size=32,
                        zero_mode="sub", weight="toy4")  # fmt: skip
    with pytest.raises(ValueError, match=r"q must be in 0\.\.15 for toy4, got -1\.\.-1$"):
        QuantizedWeight.stored_as("x", -torch.ones_like(weight().q), weight().scales, scheme=TOY)


def test_codes_stand_for_the_values_of_the_row() -> None:
    codes = torch.arange(16, dtype=torch.int8).reshape(2, 8)
    assert values_of(codes, "toy4").tolist() == [list(VALUES[:8]), list(VALUES[8:])]
    found = weight()
    wanted = torch.tensor(VALUES, dtype=torch.float64)[found.q.long()]
    wanted *= found.scales.double().t().repeat_interleave(32, 1)
    assert torch.equal(found.dequantize(torch.float64), wanted)


def test_methods_look_for_its_codes_by_the_row_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 64, generator=generator) @ torch.randn(64, 64, generator=generator)
    weight, gram = torch.randn(8, 64, generator=generator), damped(inputs.t() @ inputs / 400, 0.01)
    of = Range.of(TOY, 64, torch.float32)
    grid = search(weight, of, gram.diagonal())
    nearest, found = grid.codes(weight), compensated(weight, grid, gram)
    for codes in (nearest, found):
        assert set(codes.flatten().tolist()) <= set(VALUES)
    costs = (row_costs(grid.values(x), weight, gram).sum() for x in (found, nearest))
    assert next(costs) < 0.7 * next(costs)


def test_the_nearest_code_is_found_and_a_tie_goes_to_the_even_one() -> None:
    values = torch.tensor(VALUES)
    back = nearest_codes(values, "toy4")
    assert torch.equal(values_of(back, "toy4"), values) and int(back[8]) == 0  # -0 is 0
    x = torch.linspace(-20, 20, 4001)
    nearest = (x[:, None] - values).abs().amin(1)
    assert torch.equal((x - values_of(nearest_codes(x, "toy4"), "toy4")).abs(), nearest)
    ties = {0.125: 0, 0.375: 2, 0.75: 2, 1.5: 4, -0.125: 0, -0.375: 10, -0.75: 10, 12.0: 6}
    assert nearest_codes(torch.tensor(list(ties)), "toy4").tolist() == list(ties.values())


def test_a_scale_that_is_too_small_moves_codes_to_other_values() -> None:
    given = weight(dtype=torch.float32)
    small = given.with_fields(scales=given.scales * 2.0**-26)
    found = small.to(torch.float16)
    step = 2.0**-24  # between subnormal numbers of float16
    assert not torch.equal(found.q, given.q)
    # As far from the weight as half of the largest distance of two values.
    assert float((found.dequantize() - small.dequantize()).abs().max()) <= 4 * step


@pytest.mark.parametrize("k", [64, 80])  # in whole groups, and with a ragged last one
def test_a_checkpoint_keeps_codes_to_the_bit(tmp_path: Path, k: int) -> None:
    groups = -(-k // 32)
    q = torch.randint(0, 16, (6, k), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    given = QuantizedWeight.stored_as("layer", q, torch.rand(groups, 6) + 0.5, scheme=TOY)

    class One:
        layers, ignore, config, carried = ("layer",), (), dict[str, Any](), dict[str, Any]()
        path, files = tmp_path / "none", ()

        def outline(self, name: str) -> Outline:
            return Outline(TOY, given.shape, torch.float32)

        def layer(self, name: str) -> QuantizedWeight:
            return given

        def plain(self) -> Any:
            return iter(())

    save_checkpoint(One(), tmp_path / "model")  # type: ignore[arg-type]
    assert "codes of the type toy4" in (tmp_path / "model" / "README.md").read_text()
    read = open_checkpoint(tmp_path / "model")
    info, found = read.layers["layer"], read.layer("layer")
    assert (info.kind, info.bits, info.scheme) == ("toy4", 4, TOY)
    assert found.scheme == TOY and torch.equal(found.q, q)
    assert torch.equal(found.scales, given.scales)


def test_a_model_stays_dense_where_no_kind_stores_it() -> None:
    model = nn.Sequential(nn.Linear(64, 32))
    with pytest.warns(UserWarning, match="has no form of the scheme float4, group 32"):
        mixed_gemm.quantize_(model, TOY, progress=False)
    assert type(model[0]) is nn.Linear
