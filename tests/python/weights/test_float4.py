"""MXFP4 and NVFP4: every code with every scale a byte can be, against a table that is made from the
definition of the formats; rounding by their rules; and the scales of a file back to the bit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Scheme, reference
from mixed_gemm.reference import floats as reference_floats
from mixed_gemm.weights import FloatWeight, QuantizedWeight
from mixed_gemm.weights.scheme import SCHEMES

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
FORMATS = ("mxfp4", "nvfp4")
VALUES = [s * x for s in (1, -1) for x in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]


def e4m3(byte: int) -> float:
    exponent, mantissa = byte >> 3 & 15, byte & 7
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -magnitude if byte & 128 else magnitude


# Every scale that a byte of the format is: not NaN, and of e4m3 none below 0.
SCALES = {
    "mxfp4": [2.0 ** (byte - 127) for byte in range(255)],
    "nvfp4": [e4m3(byte) for byte in range(127)],
}


def every_code_and_scale(name: str, spread: int) -> QuantizedWeight:
    """Row n has all 16 codes in each group; its scales are a window of ``spread`` of those that
    there are, in another order."""
    scheme = SCHEMES[name]
    scales = torch.tensor(SCALES[name], dtype=torch.float64)
    windows = [scales[i : i + spread] for i in range(0, len(scales), spread)]
    windows = [
        torch.cat([x, x[:1].expand(spread - len(x))])[torch.randperm(spread)] for x in windows
    ]
    rows = torch.stack(windows)
    codes = torch.arange(16).repeat(scheme.group_size // 16)
    q = codes.to(torch.int8).repeat(len(rows), spread)
    whole = None
    if name == "nvfp4":
        whole = torch.full((len(rows),), 3.0)
    return QuantizedWeight.stored_as(
        "x", q, rows.t().to(torch.bfloat16).contiguous(), scheme=scheme, global_scale=whole
    )


def defined(weight: QuantizedWeight) -> Tensor:
    """The weight in float64, code by code."""
    values = torch.tensor(VALUES, dtype=torch.float64)[weight.q.long()]
    spread = weight.scales.double().t().repeat_interleave(weight.group_size, 1)
    return values * spread


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_every_code_with_every_scale_is_the_number_of_the_format(
    name: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    given = every_code_and_scale(name, 25 if name == "mxfp4" else 127)
    weight = FloatWeight.store(given, dtype)
    largest = weight.scales.abs().amax(0)
    assert bool(((largest >= 1) & (largest < 2)).all())
    expected = defined(given)
    if name == "nvfp4":
        expected = expected * weight.factor.double()[:, None] / given_power(weight, given)
    # In float32, which has all of them but what is beyond its largest number.
    found = weight.dequantize(torch.float32)
    assert torch.equal(found, expected.float())
    # One-hot activations read the same numbers, rounded once; those of float16 are in its range.
    k = given.shape[1]
    eye = torch.eye(k, dtype=dtype)
    rows = mixed_gemm.fpA_fpB_gemm(
        eye, weight.b_packed, weight.scales, **weight.scheme.gemm_options
    )
    power = (weight.scales.double().t().repeat_interleave(weight.scheme.group_size, 1))[:, :k]
    values = torch.tensor(VALUES, dtype=torch.float64)[given.q.long()]
    assert torch.equal(rows.t().double(), (values * power).to(dtype).double())
    many = mixed_gemm.fpA_fpB_gemm(
        eye.float(), weight.b_packed, weight.scales.float(), weight.factor,
        **weight.scheme.gemm_options,
    )  # fmt: skip
    assert torch.equal(many.t(), expected.float())


def given_power(weight: FloatWeight, given: QuantizedWeight) -> Tensor:
    """2^e of each row, by which its scales were divided."""
    ratio = given.scales.double() / weight.scales.double()
    power = ratio.nan_to_num(0).amax(0)
    assert torch.equal(torch.exp2(torch.log2(power).round()), power)
    return power[:, None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_scales_of_a_file_come_back_to_the_bit(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    given = every_code_and_scale(name, 25 if name == "mxfp4" else 127)
    if name == "nvfp4":
        given = given.with_fields(global_scale=torch.rand(given.shape[0]) * 1e4 + 1e-3)
    back = FloatWeight.store(given, dtype).unpacked()
    assert torch.equal(back.scales, given.scales) and torch.equal(back.q, given.q)
    if name == "nvfp4":
        assert torch.equal(back.global_scale, given.global_scale)
    back.check()


def test_a_column_that_float16_cannot_hold_is_refused_with_what_to_do() -> None:
    q = torch.ones(2, 64, dtype=torch.int8)
    scales = torch.tensor([[1.0, 1.0], [1.0, 2.0**-25]], dtype=torch.bfloat16)
    given = QuantizedWeight.stored_as("layer", q, scales, scheme=SCHEMES["mxfp4"])
    with pytest.raises(ValueError, match=r"25 binades apart.*channel 1 are\. Hint: dtype=torch.bf"):
        given.to_linear(torch.float16)
    linear = given.to_linear(torch.bfloat16)
    assert torch.equal(linear.weight.dequantize(torch.float32), given.dequantize())
    with pytest.raises(ValueError, match="25 binades apart"):
        linear.half()
    assert torch.equal(linear.float().weight.dequantize(), given.dequantize())


def test_the_least_scale_of_a_group_of_zeros_is_no_reason_to_refuse() -> None:
    q = torch.ones(2, 64, dtype=torch.int8)
    q[:, 32:] = 8  # -0
    scales = torch.tensor([[4.0, 4.0], [2.0**-127, 2.0**-127]], dtype=torch.bfloat16)
    given = QuantizedWeight.stored_as("layer", q, scales, scheme=SCHEMES["mxfp4"])
    weight = FloatWeight.store(given, torch.float16)
    assert weight.scales[1].tolist() == [0, 0]
    assert torch.equal(weight.unpacked().scales, scales)


@pytest.mark.parametrize("wrong", [
    ("mxfp4", 3.0, "powers of two"), ("mxfp4", -1.0, "powers of two"), ("mxfp4", 0.0, "powers"),
    ("nvfp4", -1.0, "float8_e4m3fn"), ("nvfp4", 1.0625, "float8_e4m3fn"),
])  # fmt: skip
def test_scales_that_are_none_of_the_format_are_refused(wrong: tuple[str, float, str]) -> None:
    name, scale, words = wrong
    scheme = SCHEMES[name]
    q = torch.zeros(4, 32, dtype=torch.int8)
    scales = torch.full((32 // scheme.group_size, 4), scale)
    whole = torch.ones(4) if name == "nvfp4" else None
    with pytest.raises(ValueError, match=f"scales must be .*{words}"):
        QuantizedWeight.stored_as("x", q, scales, scheme=scheme, global_scale=whole)


def test_a_global_scale_belongs_to_nvfp4_and_is_positive() -> None:
    q, scales = torch.zeros(4, 32, dtype=torch.int8), torch.ones(2, 4)
    scheme = SCHEMES["nvfp4"]
    with pytest.raises(ValueError, match="global_scale must be given exactly"):
        QuantizedWeight.stored_as("x", q, scales, scheme=scheme)
    with pytest.raises(ValueError, match="global_scale must be positive, got 0"):
        QuantizedWeight.stored_as("x", q, scales, scheme=scheme, global_scale=torch.zeros(4))
    with pytest.raises(ValueError, match="1 / global_scale must be a normal float32"):
        far = QuantizedWeight.stored_as("x", q, scales, scheme=scheme,
                                        global_scale=torch.full((4,), 1e-45))  # fmt: skip
        FloatWeight.store(far, torch.float32)


# --- rounding ------------------------------------------------------------------------------------


def nearest(x: float) -> float:
    """By definition: the number of the least distance, of two the one whose code is even."""
    sizes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    best = min(range(8), key=lambda i: (abs(abs(x) - sizes[i]), i % 2))
    return math.copysign(sizes[best], x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mxfp4_rounds_by_the_rule_of_ocp(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    dense = (torch.randn(6, 96) * torch.logspace(-3, 3, 6)[:, None]).to(dtype)
    dense[2, 32:64] = 0
    dense[3, 0], dense[3, 1], dense[3, 2:32] = 7.5, -2.5, 0.25  # saturates, and ties
    weight = FloatWeight.from_float(dense, SCHEMES["mxfp4"])
    found, scales = weight.dequantize(torch.float32), weight.unpacked().scales
    for n in range(6):
        for g in range(3):
            group = dense[n, 32 * g : 32 * g + 32].double().tolist()
            largest = max(map(abs, group))
            scale = 2.0 ** (math.floor(math.log2(largest)) - 2) if largest else 2.0**-127
            assert scales[g, n] == scale
            for i, x in enumerate(group):
                assert found[n, 32 * g + i] == nearest(x / scale) * scale


@pytest.mark.parametrize("dtype", DTYPES)
def test_nvfp4_rounds_by_the_rule_of_its_writers(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    dense = (torch.randn(5, 64) * torch.logspace(-2, 2, 5)[:, None]).to(dtype)
    dense[2, 16:32] = 0
    weight = FloatWeight.from_float(dense, SCHEMES["nvfp4"])
    unpacked = weight.unpacked()
    largest = float(dense.float().abs().max())
    whole = torch.tensor(448.0) * 6 / torch.tensor(largest)
    assert weight.global_scale.tolist() == [whole.item()] * 5
    for n in range(5):
        for g in range(4):
            group = dense[n, 16 * g : 16 * g + 16].float()
            scale = (whole * (group.abs().max() / 6)).to(torch.float8_e4m3fn).float()
            scale = torch.where(scale == 0, 0.125, scale)
            assert unpacked.scales[g, n] == scale
            codes = unpacked.q[n, 16 * g : 16 * g + 16].tolist()
            for x, code in zip((group / (scale / whole)).tolist(), codes, strict=True):
                assert VALUES[code] == nearest(max(-6.0, min(6.0, x)))


def test_rounding_what_was_rounded_changes_nothing() -> None:
    torch.manual_seed(4)
    weight = FloatWeight.from_float(torch.randn(8, 64), SCHEMES["mxfp4"])
    again = weight.requantized(weight.dequantize())
    assert torch.equal(again.dequantize(), weight.dequantize())


def test_schemes_by_name_and_other_groups() -> None:
    assert SCHEMES["mxfp4"] == Scheme.float4("e8m0", 32)
    assert SCHEMES["nvfp4"] == Scheme.float4("e4m3", 16)
    assert str(SCHEMES["nvfp4"]) == "float4, group 16 with e4m3 scales, symmetric"
    for name in FORMATS:
        scheme = Scheme.named(name, group_size=64)
        assert scheme == Scheme.float4(scheme.weights.scale_dtype, 64)
        assert Scheme.from_dict(scheme.as_dict()) == scheme and scheme.is_packed
        assert scheme.with_group_size(128, 96) == Scheme.float4(scheme.weights.scale_dtype, -1)
        for wrong in ({"bits": 8}, {"symmetric": False}, {"activations": "dynamic"}):
            with pytest.raises(ValueError, match="not be given"):
                Scheme.named(name, **wrong)
    with pytest.raises(ValueError, match="scale_dtype must be one of"):
        Scheme.float4("float32", 16)


# --- the weight in torch -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_a_model_is_quantized_and_trains_its_inputs(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(96, 80), nn.SiLU(), nn.Linear(80, 48)).to(dtype)
    bias = model[0].bias.detach()
    mixed_gemm.quantize_(model, name, progress=False)
    weight = model[0].weight
    assert isinstance(weight, FloatWeight) and model[0].scheme == SCHEMES[name]
    x = torch.randn(5, 96, dtype=dtype, requires_grad=True)
    y = model[0](x)
    q = weight.unpacked().q
    oracle = reference_floats.oracle(
        x.detach(), q, weight.scales, weight.factor, bias, weight="e2m1",
        group_size=weight.scheme.group_size,
    )  # fmt: skip
    bound = torch.minimum(oracle.statistical, oracle.hard)
    assert reference.error_ratio(y.detach(), oracle.expected, bound) <= 1
    y.sum().backward()
    dense = weight.dequantize(torch.float32).double()
    assert torch.allclose(x.grad.double(), dense.sum(0).expand(5, -1), rtol=0.02, atol=0.02)
    fresh = nn.Sequential(
        mixed_gemm.Linear(96, 80, scheme=name, dtype=dtype), nn.SiLU(),
        mixed_gemm.Linear(80, 48, scheme=name, dtype=dtype),
    )  # fmt: skip
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x.detach().float()).dtype == torch.bfloat16


@pytest.mark.parametrize("name", FORMATS)
def test_a_state_dict_of_the_other_format_is_refused(name: str) -> None:
    other = "mxfp4" if name == "nvfp4" else "nvfp4"
    state = mixed_gemm.Linear(96, 80, scheme=name).state_dict()
    with pytest.raises(RuntimeError, match=r"another kind|Missing|Unexpected"):
        mixed_gemm.Linear(96, 80, scheme=other).load_state_dict(state)


@pytest.mark.parametrize("name", FORMATS)
def test_pieces_are_stored_as_the_whole_and_join_again(name: str) -> None:
    torch.manual_seed(6)
    weight = FloatWeight.from_float(torch.randn(80, 256).half(), SCHEMES[name])
    dense = weight.dequantize()
    for start, stop in ((0, 64), (16, 48), (64, 256)):
        piece = weight.cut(1, start, stop)
        assert torch.equal(piece.dequantize(), dense[:, start:stop])
        largest = piece.scales.abs().amax(0)
        assert bool(((largest >= 1) & (largest < 2)).all())
    for start, stop in ((0, 64), (3, 70), (64, 80)):
        assert torch.equal(weight.cut(0, start, stop).dequantize(), dense[start:stop])
    for dim, at in ((0, 24), (1, 96)):
        parts = [weight.cut(dim, 0, at), weight.cut(dim, at, weight.shape[dim])]
        join = FloatWeight.join if dim == 0 else FloatWeight.join_columns
        joined = join(parts)
        for part, found in weight.tensors().items():
            assert torch.equal(joined.tensors()[part], found), part
    assert torch.equal(torch.stack([weight[5]]), dense[5:6])
    with torch.no_grad():
        weight[:8] = 0
        assert torch.equal(weight.dequantize()[8:], dense[8:]) and not weight.dequantize()[:8].any()


def test_columns_with_global_scales_of_their_own_do_not_join() -> None:
    pieces = [FloatWeight.from_float(torch.randn(16, 32) * s, SCHEMES["nvfp4"]) for s in (1, 9)]
    with pytest.raises(ValueError, match="one global_scale, got several"):
        FloatWeight.join_columns(pieces)
    rows = FloatWeight.join(pieces)
    assert torch.equal(rows.dequantize(), torch.cat([x.dequantize() for x in pieces]))


@pytest.mark.parametrize("method", ("hqq", "autoround"))
def test_what_looks_for_codes_of_equal_steps_refuses_floats(method: str) -> None:
    with pytest.raises(ValueError, match="codes that are no integers"):
        mixed_gemm.quantize_(
            nn.Sequential(nn.Linear(64, 64)), "mxfp4", method=method, progress=False,
            calibration=[torch.randn(4, 64)] if method == "autoround" else None,
        )  # fmt: skip


def test_a_plan_names_the_weight_and_why_not_the_group() -> None:
    linear = mixed_gemm.Linear(256, 64, scheme="nvfp4", dtype=torch.bfloat16)
    plan = mixed_gemm.plan(linear, 4, device="cpu")
    assert plan.problem.startswith("fpA_fpB_gemm M=4 N=64 K=256 bfloat16 e2m1 group_size=16")
    assert plan.selected.startswith("cpu_")
    assert mixed_gemm.why_not(4, 64, 256, weight="e2m1", group_size=32, device="cpu") is None
    refusal = mixed_gemm.why_not(4, 64, 256, weight="e2m1", group_size=24, device="cpu")
    assert "multiple of 16" in refusal.reasons[0] and refusal.nearest == {"group_size": 32}
    refusal = mixed_gemm.why_not(4, 64, 256, weight="e5m2", group_size=32, device="cpu")
    assert "weight must be one of e2m1, e4m3" in refusal.reasons[0]
    assert refusal.nearest == {"weight": "e2m1"}
