"""The plan ops, asked about devices, shapes and names that nobody has: strict JSON with finite
times, or an exception that names the op and the argument."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from support.built import has_code

import mixed_gemm

OPS = torch.ops.mixed_gemm
LARGEST = 2**31 - 257  # of M, N and K
LEAST_SMEM = 99 << 10
H200 = "cuda:sm=90,sms=132,smem=232448"

Ask = Callable[[int, int, int, str], str]


def gemm(dtype: str, bits: int, group_size: int, zero_mode: str) -> Ask:
    return lambda m, n, k, d: OPS._plan(m, n, k, dtype, bits, group_size, zero_mode, d)


def scaled(operand: str) -> Ask:
    return lambda m, n, k, d: OPS._plan_scaled_mm(m, n, k, operand, "bfloat16", d)


def block(size: int) -> Ask:
    return lambda m, n, k, d: OPS._plan_block_quant_gemm(m, n, k, size, d)


KINDS: dict[str, Ask] = {
    "float16 int4": gemm("float16", 4, -1, "none"),
    "bfloat16 int8 groups zeros": gemm("bfloat16", 8, 16, "sub"),
    "float16 int4 one group": gemm("float16", 4, -1, "add"),
    "float32": gemm("float32", 4, -1, "none"),
    "int8": scaled("int8"),
    "float8": scaled("float8_e4m3fn"),
    "one block": block(-1),
    "blocks": block(16),
}


def strict(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    answer: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert isinstance(answer["ok"], bool)
    if not answer["ok"]:
        assert answer["reasons"] and all(answer["reasons"]), answer
        return answer
    names = [c["config"] for c in answer["candidates"]]
    times = [c["predicted_us"] for c in answer["candidates"]]
    assert answer["selected"] in names and len(set(names)) == len(names)
    if answer["family"] == "cpu":
        assert times == [None]
        return answer
    torchs = [name.startswith("torch.") for name in names]  # which has no cost model
    assert [t is None for t in times] == torchs
    assert sum(torchs) == 0 or torchs[0 if answer["family"] == "torch" else -1]
    times = [t for t in times if t is not None]
    assert all(math.isfinite(t) and t >= 0 for t in times)
    assert times == sorted(times)
    return answer


def device(sm: int, sms: int, smem: int, gbs: float | None) -> str:
    return f"cuda:sm={sm},sms={sms},smem={smem}" + ("" if gbs is None else f",gbs={gbs}")


@pytest.mark.parametrize("kind", KINDS)
def test_every_odd_device_gets_a_plan_or_a_reason(kind: str) -> None:
    shapes = itertools.cycle([(1, 64, 64), (300, 4096, 4096), (17, 1, 4097), (4096, 8192, 1000)])
    served = 0
    for sm, sms, smem, gbs in itertools.product(
        (10, 75, 80, 86, 89, 90, 100, 120, 999),
        (1, 2, 132, 4096),
        (1, 49152, LEAST_SMEM - 1, LEAST_SMEM, 166912, 232448, 1 << 24),
        (None, 1, 3350.4, 1000000),
    ):
        m, n, k = next(shapes)
        answer = strict(KINDS[kind](m, n, k, device(sm, sms, smem, gbs)))
        has_operands = kind != "float8" or sm >= 89
        runs = sm >= 80 and has_code(sm)
        assert answer["ok"] == (runs and smem >= LEAST_SMEM and has_operands), answer
        served += answer["ok"]
        told = " ".join(answer.get("reasons", ()))
        if sm >= 80 and not runs:
            assert f"this GPU has {sm // 10}.{sm % 10}, which runs none of it" in told
        elif runs and smem < LEAST_SMEM:
            assert f"need {LEAST_SMEM} bytes of shared memory" in told and f"has {smem}" in told
    assert served > 100


EXTENTS = (-(2**63), -1, 0, 1, 15, 16, 4097, 131072, LARGEST, LARGEST + 1, 2**63 - 1)


@pytest.mark.parametrize("where", ["cpu", H200, "cuda:sm=80,sms=108,smem=166912"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_odd_shape_gets_a_plan_or_a_reason(kind: str, where: str) -> None:
    accepted = 0
    for m, n, k in itertools.product(EXTENTS, repeat=3):
        answer = strict(KINDS[kind](m, n, k, where))
        accepted += answer["ok"]
        if min(m, n, k) < 0 or max(m, n, k) > LARGEST:
            assert not answer["ok"]
        elif max(m, n) <= 4097 and 16 <= k <= 4097 and (kind != "float8" or "sm=80" not in where):
            assert answer["ok"], answer
    assert accepted > 100 or (kind == "float8" and "sm=80" in where)


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_more_tiles_than_can_be_counted_are_refused(kind: str) -> None:
    """The list of tiles is empty there; K beside them takes the count beyond 64 bits."""
    k = LARGEST if kind == "float8" else 131071
    answer = strict(KINDS[kind](LARGEST, LARGEST, k, H200))
    assert answer["reasons"] == [
        "no tile runs this on the device: the largest, scaled_m128n256s4, has 140737454800898 "
        "tiles or parts of them, more than can be counted"
    ]


NUMBER = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["", "0", "-1", "+1", " 1", "1 ", "nan", "inf", "1e3", "0x10", "9" * 400]),
    st.floats().map(str),
    st.text(max_size=5),
)
DEVICE = st.one_of(
    st.text(),
    st.sampled_from(["cpu", "cuda", "cuda:0", "meta", H200, "cuda:sm=80,sms=1,smem=166912,gbs=1"]),
    st.builds(
        "cuda:sm={},sms={},smem={}{}".format,
        st.one_of(NUMBER, st.sampled_from(["80", "90"])),
        st.one_of(NUMBER, st.sampled_from(["132", "1"])),
        st.one_of(NUMBER, st.sampled_from(["232448", "1"])),
        st.one_of(st.just(""), NUMBER.map(",gbs={}".format), st.text(max_size=9)),
    ),
    st.builds(lambda at, by: H200[:at] + by + H200[at + 1 :], st.integers(0, 31), st.text()),
)
EXTENT = st.one_of(st.integers(0, 1 << 14), st.integers(-(2**63), 2**63 - 1))
NAME = st.one_of(
    st.text(), st.sampled_from(["float16", "bfloat16", "float32", "int8", "float8_e4m3fn"])
)


def answer_or_refusal(op: str, *arguments: Any) -> None:
    try:
        text = getattr(OPS, op)(*arguments)
    except RuntimeError as error:
        assert f"mixed_gemm::{op}: device must be cpu or cuda:sm=" in str(error)
        assert str(error).isprintable() and len(str(error)) < 1000
    else:
        strict(text)


MODE = st.one_of(st.text(), st.sampled_from(["none", "sub", "add"]))


@given(st.tuples(EXTENT, EXTENT, EXTENT, NAME, EXTENT, EXTENT, MODE, DEVICE))
@example((1, 64, 64, "float16", 4, -1, "none", f"{H200},gbs=nan"))
def test_fuzzed_plan(arguments: tuple[Any, ...]) -> None:
    answer_or_refusal("_plan", *arguments)


@given(st.tuples(EXTENT, EXTENT, EXTENT, NAME, NAME, DEVICE))
@example((1, 64, 64, "int8", "float16", "cuda:sm=90,sms=0,smem=232448"))
@example((1, 64, 64, 'a"\\\n\x00', "float16", "cpu"))
def test_fuzzed_plan_scaled_mm(arguments: tuple[Any, ...]) -> None:
    answer_or_refusal("_plan_scaled_mm", *arguments)


@given(st.tuples(EXTENT, EXTENT, EXTENT, EXTENT, DEVICE))
@example((1, 64, 64, 0, H200))
def test_fuzzed_plan_block_quant_gemm(arguments: tuple[Any, ...]) -> None:
    answer_or_refusal("_plan_block_quant_gemm", *arguments)


@given(st.integers(-(2**63), 2**63 - 1))
def test_fuzzed_device_index(index: int) -> None:
    if 0 <= index < torch.cuda.device_count():
        return
    with pytest.raises(RuntimeError, match=f"mixed_gemm::_device: index must .*{index}"):
        OPS._device(index)


@pytest.fixture(scope="module", autouse=True)
def tuned_table() -> Iterator[None]:
    yield
    mixed_gemm.selection.tables.install()


@given(st.text())
def test_fuzzed_tuned_table_is_refused_line_by_line(text: str) -> None:
    refused = json.loads(OPS._set_tuned_table(text))
    assert len(refused) == sum(bool(line) for line in text.split("\n"))
    assert all(reason.startswith("line ") for reason in refused)


WRONG_DEVICES = [
    "cuda:100",
    "cuda:-1",
    "cuda:x",
    "meta",
    "mps",
    "",
    "gpu",
    torch.device("meta"),
    f"{H200}junk",
    f"{H200},gbs=nan",
    "cuda:sm=90,sms=0,smem=232448",
    "cuda:sm=90,sms=132,smem=999999999999",
]


@pytest.mark.parametrize("where", WRONG_DEVICES, ids=repr)
def test_wrong_device_is_a_value_error(where: Any) -> None:
    for ask in (mixed_gemm.plan, mixed_gemm.why_not):
        for dtype in ("float16", "int8"):
            with pytest.raises(ValueError, match="device must be"):
                ask(1, 64, 64, group_size=64, dtype=dtype, device=where)
    assert mixed_gemm.plan(1, 64, 64, group_size=64, device="cpu").selected


def test_a_device_beyond_the_last_says_how_many_there_are() -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    with pytest.raises(ValueError, match=rf"one of the {count} CUDA devices .* got cuda:100$"):
        mixed_gemm.plan(1, 64, 64, group_size=64, device="cuda:100")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_driver_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"one of the 0 CUDA devices .* got cuda$"):
        mixed_gemm.plan(1, 64, 64, group_size=64, device="cuda")


@pytest.mark.parametrize("name", ["m", "n", "k", "bits", "group_size"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param(1.5, TypeError, id="float"),
        pytest.param("1", TypeError, id="text"),
        pytest.param(None, TypeError, id="None"),
        pytest.param(2**63, ValueError, id="2^63"),
        pytest.param(-(10**6000), ValueError, id="huge"),
    ],
)
def test_wrong_number_names_its_argument(name: str, value: Any, error: type[Exception]) -> None:
    arguments = {"m": 1, "n": 64, "k": 64, "bits": 4, "group_size": 64, name: value}
    missing = name == "k" and value is None
    with pytest.raises(error, match="plan needs" if missing else f"plan: {name} must"):
        mixed_gemm.plan(**arguments, device="cpu")


def test_a_module_without_a_device_has_no_plan() -> None:
    layer = mixed_gemm.Linear(64, 64, group_size=64).to("meta")
    with pytest.raises(ValueError, match=r"device must be cpu.* got 'meta'"):
        mixed_gemm.plan(layer, 1)
