"""Every numbered bad input of bad_inputs.py: type, text, and a valid call right after it; and
twelve of them inside the modes of torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import tried
from support.bad_input_names import NAMES, title
from support.bad_inputs import CALLS, ELSEWHERE, A, Bad, Odd, arguments, every, wrong_answer
from support.op_calls import public
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

ROWS = every()
# Refused whatever the mode: (number, op).
TWELVE = (
    (15, "fpA_intB_gemm"),
    (20, "scaled_mm"),
    (23, "fpA_intB_gemm"),
    (25, "scaled_mm_azp"),
    (28, "block_quant_gemm"),
    (31, "fpA_intB_gemm"),
    (33, "awq_gemm"),
    (34, "qconv2d"),
    (40, "fpA_intB_gemm"),
    (41, "qconv2d"),
    (42, "awq_gemm"),
    (47, "qconv2d_int8"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_is_answered(row: Bad | Odd) -> None:
    wrong = wrong_answer(row)
    tried.note("bad_inputs", title(row.number), 1, bool(wrong))
    assert wrong == ""


def test_every_number_is_tried_here_or_said_to_be_elsewhere() -> None:
    tried = {row.number for row in ROWS}
    assert tried | set(ELSEWHERE) == set(NAMES)
    assert not tried & set(ELSEWHERE)


def in_autocast(op: str, bad: dict[str, Any]) -> object:
    with torch.autocast("cpu", dtype=torch.float16):
        return public(op, bad)


def in_inference(op: str, bad: dict[str, Any]) -> object:
    with torch.inference_mode():
        return public(op, bad)


def deterministic(op: str, bad: dict[str, Any]) -> object:
    torch.use_deterministic_algorithms(True)
    try:
        return public(op, bad)
    finally:
        torch.use_deterministic_algorithms(False)


def on_fakes(op: str, bad: dict[str, Any]) -> object:
    with FakeTensorMode() as mode:
        fake = {k: mode.from_tensor(v) if isinstance(v, Tensor) else v for k, v in bad.items()}
        return public(op, fake)


def compiled(op: str, bad: dict[str, Any]) -> object:
    torch._dynamo.reset()
    return torch.compile(lambda: public(op, bad), backend="eager")()


def in_vmap(op: str, bad: dict[str, Any]) -> object:
    rest = {k: v for k, v in bad.items() if k != A[op]}
    return torch.vmap(lambda x: public(op, {**rest, A[op]: x}))(bad[A[op]][None])


MODES: dict[str, Callable[[str, dict[str, Any]], object]] = {
    "autocast": in_autocast,
    "inference_mode": in_inference,
    "deterministic": deterministic,
    "FakeTensorMode": on_fakes,
    "compile": compiled,
    "vmap": in_vmap,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("number", "op"), TWELVE)
def test_is_refused_the_same_in_every_mode(number: int, op: str, mode: str) -> None:
    row = next(r for r in ROWS if isinstance(r, Bad) and (r.number, r.op) == (number, op))
    bad = arguments(op, row.changes)
    with pytest.raises(RuntimeError) as caught:
        MODES[mode](op, bad)
    text = str(caught.value)
    # Dynamo puts its own words around the text, and its own type.
    pattern = row.pattern().removeprefix("^") if mode == "compile" else row.pattern()
    assert re.search(pattern, text, re.DOTALL), text
    assert mode == "compile" or isinstance(caught.value, row.error)
    assert set(CALLS[op]()) == set(bad)
