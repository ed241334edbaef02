"""What every kernel keeps whatever it computes (support/promises.py), on the CPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from problems import registry
from support import promises

FIRST_CASE = pytest.mark.parametrize("case", promises.FIRST, ids=promises.ids)
EVERY_CASE = pytest.mark.parametrize("case", promises.CASES, ids=promises.ids)


def test_every_op_has_a_typical_problem() -> None:
    assert all(registry.TYPICAL.values())
    assert len(registry.TYPICAL) > 10


@EVERY_CASE
def test_places_change_no_bit(case: Any) -> None:
    promises.check_places(case, "cpu")


@EVERY_CASE
def test_nothing_is_right_too(case: Any) -> None:
    promises.check_empty(case, "cpu")


@EVERY_CASE
def test_repeats_and_neighbours_keep_their_bits(case: Any) -> None:
    promises.check_repeats(case, "cpu", 3)
    promises.check_canary(case, "cpu")


@pytest.mark.parametrize("case", promises.ROWS, ids=promises.ids)
def test_rows_do_not_turn_on_each_other(case: Any) -> None:
    promises.check_rows(case, "cpu")


@FIRST_CASE
def test_opcheck(case: Any) -> None:
    promises.check_opcheck(case, "cpu")


@FIRST_CASE
def test_compiles_once_for_any_number_of_rows(case: Any) -> None:
    if case not in promises.BATCHES:
        pytest.skip("no rows of activations")
    promises.check_compiles(case, "cpu")


@EVERY_CASE
def test_spoiled_tensors_spoil_the_result_until_they_are_filled_again(case: Any) -> None:
    """What the tests of streams on a GPU stand on: they see a kernel that runs too early."""
    if not promises.may_be_captured(case):
        pytest.skip("an order of poison is refused")
    problem = promises.make(case, "cpu")
    expected = problem.run()
    kept = promises.spoil(problem)
    with pytest.raises((AssertionError, ValueError)):  # some values are refused
        promises.assert_same(problem.run(), expected, "spoiled")
    promises.fill(problem, kept)
    promises.assert_same(problem.run(), expected, "filled")


def test_a_few_configurations_are_of_every_family_and_split() -> None:
    @dataclasses.dataclass
    class Listed:
        names: tuple[str, ...]
        case: Any = registry.TYPICAL["fpA_intB_gemm"][0]

        def configs(self) -> list[str]:
            return list(self.names)

    names = ("wgmma_m64n64s4", "wgmma_m64n64s4_streamk2", "wgmma_m64n64s4_streamk16")
    names += ("wgmma_m64n128s4", "skinny_m8n32w8", "skinny_m8n32w8_cluster2", "dequantize_dense")
    few = promises.few_of(Listed(names))
    assert few[0] is None
    assert set(few[1:]) == set(names)
    more = promises.few_of(Listed(tuple(f"block_m{m}n64s4" for m in (8, 16, 32, 64, 128))))
    assert more == [None, "block_m8n64s4", "block_m32n64s4", "block_m128n64s4"]
    assert not promises.is_ours(registry.TYPICAL["fpA_intB_gemm"][0], "dequantize_dense", "cuda")
    assert promises.is_ours(registry.TYPICAL["fpA_intB_gemm"][0], "skinny_m8n32w8", "cuda")
    assert not promises.is_ours(registry.TYPICAL["scaled_mm"][0], None, "cuda")


def test_a_result_that_turns_on_a_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = registry.TYPICAL["quantize"][0]

    def shifted(self: Any, config: str | None = None) -> torch.Tensor:
        return self.a + self.a.storage_offset()

    monkeypatch.setattr("problems.quantize.QuantizeProblem.run", shifted)
    with pytest.raises(AssertionError):
        promises.check_places(case, "cpu")
