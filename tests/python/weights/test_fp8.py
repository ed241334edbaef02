"""float8 weights: products against float64 of the numbers that are stored, rounding, gradients,
casts, slices of blocks, state, and what is refused.
"""

from __future__ import annotations

import copy
import io
import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.built import has_code
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Linear, Scheme, reference
from mixed_gemm.ops import dequantize_codes, quantize_fp8
from mixed_gemm.ops.problem import DTYPES
from mixed_gemm.reference import scaled as reference_scaled
from mixed_gemm.reference.bounds import ROUNDING
from mixed_gemm.weights import Fp8Weight, Fp8WeightOnly, QuantizedTensor, Side
from mixed_gemm.weights.rounding_fp8 import quantize_with

FP8 = torch.float8_e4m3fn
N, K = 40, 72
BLOCK = (16, 32)  # with fewer rows in the last, and fewer columns
WHOLE = {
    "channel, dynamic": Scheme.fp8(),
    "channel, static": Scheme.fp8("static"),
    "tensor, dynamic": Scheme.fp8(strategy="tensor"),
    "tensor, static": Scheme.fp8("static", strategy="tensor"),
}
BLOCKS = {
    "block, dynamic": Scheme.fp8(strategy="block", block=BLOCK),
    "block, static": Scheme.fp8("static", strategy="block", block=BLOCK),
    "block, per token": replace(
        Scheme.fp8(strategy="block", block=BLOCK),
        input_activations=Side("float", strategy="token", dynamic=True),
    ),
    "block, smaller groups": replace(
        Scheme.fp8(strategy="block", block=BLOCK),
        input_activations=Side("float", strategy="group", group_size=24, dynamic=True),
    ),
    "channel, groups": replace(
        Scheme.fp8(),
        input_activations=Side("float", strategy="group", group_size=32, dynamic=True),
    ),
}
DENSE = {
    "channel, none": Scheme.fp8(None),
    "tensor, none": Scheme.fp8(None, strategy="tensor"),
    "block, none": Scheme.fp8(None, strategy="block", block=BLOCK),
}
ALL = {**WHOLE, **BLOCKS, **DENSE}


def layer(name: str, dtype: torch.dtype = torch.float32, bias: bool = True) -> Linear:
    torch.manual_seed(0)
    scheme = ALL[name]
    static = {"input_range": (-3.0, 5.0)} if scheme.activations == "static" else {}
    return Linear.from_float(nn.Linear(K, N, bias=bias).to(dtype), scheme, **static)


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(*shape, K) * 1.5 + 0.5).to(dtype)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(
        a.flatten().view(torch.uint8), b.flatten().view(torch.uint8)
    )


def scales_of(weight: Fp8Weight) -> Tensor:
    """float64 ``[N, K]``: the scale of each weight, element by element."""
    (n, k), block = weight.shape, weight.scheme.weights.block
    if block is None:
        return weight.weight_scale.double()[:, None].expand(n, k)
    i, j = torch.arange(n)[:, None] // block[0], torch.arange(k) // block[1]
    return weight.weight_scale.double()[i, j]


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_rounded_activations_are_within_the_bound(
    name: str, dtype: torch.dtype, bias: bool
) -> None:
    module = layer(name, dtype, bias)
    for shape in ((1,), (2, 9), (33,), (0,), ()):
        x = rows(*shape, dtype=dtype)
        with torch.no_grad():
            out = module(x)
        scale = module.weight.input_scale
        q, scale = quantize_fp8(x) if scale is None else (quantize_with(x, scale), scale)
        added = None if module.bias is None else module.bias.detach()
        operands = (q, module.weight.weight_fp8.t(), scale, module.weight.weight_scale, added)
        value = reference_scaled.scaled_mm(*operands)
        bound = reference_scaled.error_bound(*operands, out_dtype=dtype)
        assert out.dtype == dtype and out.shape == (*shape, N)
        assert reference.error_ratio(out, value, bound) <= 1


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_rounded_activations_are_within_the_bound(
    name: str, dtype: torch.dtype, bias: bool
) -> None:
    """Every element of K as a block of its own, which is what the scales say."""
    module = layer(name, dtype, bias)
    side = module.weight.scheme.input_activations
    assert side is not None
    for shape in ((1,), (2, 9), (33,), (0,), ()):
        x = rows(*shape, dtype=dtype)
        with torch.no_grad():
            out = module(x)
        static = module.weight.input_scale
        if static is None:
            q, scale = quantize_fp8(x, block_size=side.group_size)
        else:
            q, scale = quantize_with(x, static), static.expand(*shape, 1)
        size = side.group_size or K
        of_each = scale.repeat_interleave(size, -1)[..., :K]
        added = None if module.bias is None else module.bias.detach()
        operands = (q, module.weight.weight_fp8.t(), of_each, scales_of(module.weight).float())
        value = reference_scaled.scaled_mm(*operands, added, block_size=(1, 1))
        assert out.dtype == dtype and out.shape == (*shape, N)
        bound = _bound_of_blocks(operands, value, added, dtype)
        assert reference.error_ratio(out, value, bound) <= 1


def _bound_of_blocks(
    operands: tuple[Tensor, ...], value: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """That of the smallest blocks any of these has, 8 columns, from terms by element."""
    q, b, scale_a, scale_b = operands
    terms = (q.double() * scale_a).abs() @ (b.t().double() * scale_b).abs().t()
    (u, eta), u32 = ROUNDING[dtype], 2.0**-24
    error = ((8 / 16 + 5) * 2 + K // 8 + 3) * u32 * terms + u32 * value.abs() + 2.0**-140
    return 1.001 * error + u * (value.abs() + error) + eta


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", DENSE)
def test_activations_as_they_are_are_within_the_bound(name: str, dtype: torch.dtype) -> None:
    """Each weight rounds to ``dtype`` once, sums are float32, and so does the result."""
    module, u, u32 = layer(name, dtype), torch.finfo(dtype).eps / 2, 2.0**-24
    for shape in ((1,), (2, 9), (33,), (0,), ()):
        x = rows(*shape, dtype=dtype)
        with torch.no_grad():
            out = module(x)
        dense = module.weight.weight_fp8.double() * scales_of(module.weight)
        value = x.double() @ dense.t() + module.bias.detach().double()
        size = x.double().abs() @ dense.t().abs() + module.bias.detach().double().abs()
        error = 1.01 * (u + u32 * (K + 3)) * size
        assert out.dtype == dtype and out.shape == (*shape, N)
        assert reference.error_ratio(out, value, error + u * (value.abs() + error)) <= 1


@pytest.mark.parametrize("name", ALL)
def test_dequantize_is_the_product_of_code_and_scale(name: str) -> None:
    weight = layer(name).weight
    wanted = weight.weight_fp8.double() * scales_of(weight)
    assert torch.equal(weight.dequantize(), wanted.float())
    assert torch.equal(weight.dequantize(torch.float16), wanted.float().half())
    assert (
        weight.shapes(weight.shape, weight.scheme).items()
        >= {part: tuple(tensor.shape) for part, tensor in weight.tensors().items()}.items()
    )


def test_close_to_the_dense_layer() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(K, N), rows(200)
    for name, scheme in ALL.items():
        static = {"input_range": (-6.0, 6.0)} if scheme.activations == "static" else {}
        with torch.no_grad():
            error = (Linear.from_float(linear, scheme, **static)(x) - linear(x)).norm()
            relative = (error / linear(x).norm()).item()
        # A float8 number is off by 2.65 % RMS; both operands by sqrt(2) of that.
        assert relative < (0.03 if name in DENSE else 0.045), (name, relative)


# --- rounding ------------------------------------------------------------------------------------


def test_every_value_goes_to_the_nearest_float8() -> None:
    finite = torch.arange(256, dtype=torch.uint8).view(FP8).double()
    finite = finite[finite.isfinite()].unique()
    x = torch.randn(40, 64) * 10.0 ** torch.randint(-4, 3, (40, 64))
    q, scale = quantize_fp8(x)
    exact = x.double() / scale.double()
    nearest = (exact[..., None] - finite).abs().amin(-1)
    slack = 2.0**-23 * exact.abs()  # the division rounds to float32
    assert ((q.double() - exact).abs() <= nearest + slack).all()
    assert (q.double().abs().amax(-1) == 448).all()


def test_beyond_the_largest_is_cut_and_nan_stays_in_its_row() -> None:
    x = torch.tensor([[1e4, -1e4, 500.0, 3.0]])
    assert quantize_with(x, torch.tensor(1.0)).float().tolist() == [[448, -448, 448, 3]]
    module, x = layer("channel, dynamic"), rows(4)
    with torch.no_grad():
        wanted = module(x)
        x[1, 3], x[2, 5] = float("nan"), float("inf")
        out = module(x)
    assert torch.equal(out[[0, 3]], wanted[[0, 3]]) and out[1:3].isnan().all()


@pytest.mark.parametrize("name", ("channel, dynamic", "tensor, dynamic", "block, none"))
def test_weights_are_rounded_for_the_scale_as_it_is_stored(name: str) -> None:
    linear = nn.Linear(K, N)
    with torch.no_grad():
        linear.weight[:16, :32] = 0  # a block of zeros divides by nothing
    weight = Linear.from_float(linear, ALL[name]).weight
    dense, scales = linear.weight.detach().double(), scales_of(weight)
    q, exact = weight.weight_fp8.double(), dense / scales
    # Half a step: 2^-4 of the number, or 2^-10 among those below 2^-6.
    assert ((q - exact).abs() <= (2.0**-4 * exact.abs()).clamp(min=2.0**-10) * 1.0001).all()
    assert (q[:16, :32] == 0).all() and (scales > 0).all()


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_weights_keep_scales_in_the_dtype_of_the_file(dtype: torch.dtype) -> None:
    given = layer("channel, dynamic").weight
    weight = Fp8Weight.from_quantized(
        given.weight_fp8, given.weight_scale.to(dtype)[:, None], scheme=Scheme.fp8()
    )
    assert weight.weight_scale.dtype == dtype and weight.weight_scale.shape == (N,)
    dense = weight.dequantize()
    for other in (weight.half(), weight.requantized(2 * dense), copy.deepcopy(weight)):
        assert other.weight_scale.dtype == dtype
    assert torch.equal(weight.requantized(2 * dense).dequantize(), 2 * dense)
    x = rows(3)
    torch.testing.assert_close(weight.product(x), x @ dense.t(), rtol=0.1, atol=0.2)


# --- autograd, casts, compilers ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ALL)
def test_gradient_is_that_of_the_dequantized_weight(name: str, dtype: torch.dtype) -> None:
    module, x = layer(name, dtype), rows(3, 5, dtype=dtype).requires_grad_()
    grad = torch.randn(3, 5, N).to(dtype)
    out = module(x)
    with torch.no_grad():
        assert torch.equal(out, module(x.detach()))
    out.backward(grad)
    dense = module.to_float().weight.detach()
    if name == "block, none":  # its scales round to the dtype, too
        held = module.weight.tensors()
        dense = dequantize_codes(
            held["b_packed"], held["scales"], held["factor"], weight="e4m3", group_size=BLOCK[1],
            n=N, k=K, dtype=dtype,
        )  # fmt: skip
        torch.testing.assert_close(dense, module.weight.dequantize(), rtol=2**-7, atol=0)
    assert x.grad is not None and x.grad.dtype == dtype
    assert torch.equal(x.grad, grad @ dense)
    torch.testing.assert_close(module.bias.grad, grad.sum((0, 1)), rtol=1e-2, atol=1e-2)


def test_small_scales_have_a_gradient_in_float16() -> None:
    """1e-7 is nothing in float16, where the weight of 448 times it is a number."""
    q = torch.full((N, K), 448.0).to(FP8)
    weight = Fp8Weight.from_quantized(
        q, torch.full((N,), 1e-7), scheme=Scheme.fp8(), dtype=torch.float16
    )
    x = rows(2, dtype=torch.float16).requires_grad_()
    Linear.from_weight(weight)(x).sum().backward()
    assert x.grad is not None and (x.grad > 1e-3).all()


@pytest.mark.parametrize("name", ALL)
def test_casts_leave_codes_and_scales_alone(name: str) -> None:
    module = layer(name)
    for cast in (copy.deepcopy(module).half(), copy.deepcopy(module).to(torch.bfloat16)):
        assert cast.weight.dtype == cast.bias.dtype != torch.float32
        for part, tensor in module.weight.stored().items():
            assert same_bits(cast.weight.tensors()[part], tensor)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = module(rows(4))
    assert out.dtype == torch.bfloat16
    low, x = copy.deepcopy(module).half(), rows(3)
    with torch.no_grad():
        assert low(x).dtype == torch.float32, "float32 into a 16-bit layer is rounded on the way"


@pytest.mark.parametrize("name", ALL)
def test_compiles_and_exports(name: str) -> None:
    module, x = layer(name), rows(5)
    torch._dynamo.reset()
    with torch.no_grad():
        expected = module(x)
        compiled = torch.compile(module, fullgraph=True, dynamic=True)
        torch.testing.assert_close(compiled(x), expected)
        torch.testing.assert_close(compiled(x[:3]), expected[:3])
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.export.export(nn.Sequential(module), (x,), dynamic_shapes=({0: batch},))
        torch.testing.assert_close(program.module()(x[:4]), expected[:4])


# --- slices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("edges", ((0, 16, 40), (0, 7, 40), (0, 20, 40), (0, 10, 20, 30, 40)))
def test_rows_and_columns_are_those_of_the_whole(name: str, edges: tuple[int, ...]) -> None:
    """Where blocks would be cut in two they become smaller ones, so that no value changes."""
    weight, spans = layer(name).weight, list(itertools.pairwise(edges))
    dense = weight.dequantize()
    pieces = [weight.cut(0, a, b) for a, b in spans]
    for piece, (a, b) in zip(pieces, spans, strict=True):
        assert torch.equal(piece.dequantize(), dense[a:b])
        assert same_bits(piece.weight_fp8, weight.weight_fp8[a:b])
        assert not piece.refuse_parts(piece.tensors())
    joined = Fp8Weight.join(pieces)
    assert torch.equal(joined.dequantize(), dense) and not joined.refuse_parts(joined.tensors())
    for a, b in spans:
        piece = weight.cut(1, a, b)
        assert torch.equal(piece.dequantize(), dense[:, a:b])
        assert not piece.refuse_parts(piece.tensors())


@pytest.mark.parametrize("ranks", (2, 3, 4, 5))
@pytest.mark.parametrize("rows_of_block", (1, 16, 24, 128))
def test_even_pieces_have_one_scheme(rows_of_block: int, ranks: int) -> None:
    """Which is what scattering and gathering them needs; and it is that of ``scheme_of_rows``."""
    scheme = Scheme.fp8(strategy="block", block=(rows_of_block, 32))
    weight = Fp8Weight.from_float(torch.randn(ranks * 48, 64), scheme)
    pieces = weight.split(48)
    assert {piece.scheme for piece in pieces} == {weight.scheme_of_rows(48)}
    assert torch.equal(Fp8Weight.join(list(pieces)).dequantize(), weight.dequantize())


def test_rows_of_a_block_that_are_written_round_the_whole_again() -> None:
    weight = layer("block, none").weight
    dense = weight.dequantize()
    with torch.no_grad():
        weight[4:8].copy_(4 * dense[4:8])
    dense[4:8] *= 4
    assert weight.scheme == DENSE["block, none"]
    assert torch.equal(weight.dequantize(), weight.requantized(dense).dequantize())


def test_rows_with_scales_of_their_own_are_no_scale_of_the_tensor() -> None:
    """What is saved is what is computed."""
    weight = layer("tensor, dynamic").weight
    assert weight.unpacked().strategy == "tensor"
    with torch.no_grad():
        weight[4:8].copy_(4 * weight.dequantize()[4:8])
    found = weight.unpacked("x")
    one_scale = weight.weight_scale.unique().numel() == 1
    assert (found.strategy == "tensor") == one_scale
    assert torch.equal(found.dequantize(), weight.dequantize())


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_state_round_trip(name: str) -> None:
    module, x = layer(name, torch.float16), rows(4, dtype=torch.float16)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    with torch.no_grad():
        expected = module(x)
        fresh = Linear(K, N, scheme=ALL[name], dtype=torch.float16)
        assert (fresh(x) == 0).all(), "w = 0 until it is filled"
        fresh.load_state_dict(state)
        assert torch.equal(fresh(x), expected)
        empty = Linear(K, N, scheme=ALL[name], dtype=torch.float16, device="meta")
        assert empty(x.to("meta")).shape == (4, N)
        empty.load_state_dict(state, assign=True)
        assert torch.equal(empty(x), expected)
    codes = {"b_packed": torch.uint8} if name in DENSE else {"weight_fp8": FP8}
    for part, dtype in {**codes, "weight_scale": torch.float32}.items():
        assert state[part].dtype == dtype


@pytest.mark.parametrize("assign", (False, True))
@pytest.mark.parametrize("name", DENSE)
def test_codes_in_rows_load_as_packed_ones_and_back(name: str, assign: bool) -> None:
    """The state of versions that had one kind of FP8 weight, and of what is cut at odd columns."""
    module, x = layer(name), rows(4)
    new = module.state_dict()
    old_module = copy.deepcopy(module)
    old_module.set_weight(old_module.weight.in_rows())
    old = old_module.state_dict()
    assert "weight_fp8" in old and "weight_fp8" not in new
    with torch.no_grad():
        for target, state in ((layer(name, bias=True), old), (old_module, new)):
            target.weight.detach().weight_scale.zero_()
            target.load_state_dict(state, assign=assign)
            assert same_bits(target.weight.weight_fp8, module.weight.weight_fp8)
            torch.testing.assert_close(target(x), module(x))
    with pytest.raises(RuntimeError, match=r"Missing key.*b_packed"):
        layer(name).load_state_dict({k: v for k, v in new.items() if k != "b_packed"})
    wrong = {**old, "weight_fp8": torch.zeros(N, K - 1).to(FP8)}
    with pytest.raises(RuntimeError, match="weight_fp8"):
        layer(name).load_state_dict(wrong)


def test_scales_that_float16_does_not_have_leave_the_weight_dense() -> None:
    scheme = DENSE["block, none"]
    dense = torch.randn(N, K)
    dense[:, : BLOCK[1]] *= 2.0**-20
    weight = Linear.from_float(nn.Linear(K, N).half(), scheme).weight
    assert type(weight) is Fp8WeightOnly
    wide = Fp8Weight.from_float(dense, scheme)
    assert type(Fp8WeightOnly.of_rows(wide)) is Fp8WeightOnly
    with pytest.raises(ValueError, match=r"too far apart for float16. Hint: torch\.bfloat16"):
        Fp8WeightOnly.of_rows(wide).half()
    low = Fp8WeightOnly.from_float(dense, scheme, dtype=torch.float16)
    assert type(low) is Fp8Weight
    x = torch.randn(3, K).half()
    with torch.no_grad():
        assert torch.equal(low.product(x), nn.functional.linear(x, low.dequantize()))


BAD_STATE: dict[str, tuple[Any, str]] = {
    "NaN in a code": (
        {"weight_fp8": torch.full((N, K), float("nan")).to(FP8)},
        r"weight_fp8 must be finite, got nan at index \(0, 0\)",
    ),
    "Inf in a scale": (
        {"weight_scale": torch.full((N,), float("inf"))},
        r"weight_scale must be finite, got inf at index \(0,\)",
    ),
    "NaN in a static scale": (
        {"input_scale": torch.tensor(float("nan"))},
        "input_scale must be finite",
    ),
    "rows": ({"weight_scale": torch.ones(3)}, r"weight_scale must be \(40,\), got \(3,\)"),
    "int8": (
        {"weight_fp8": torch.zeros(N, K, dtype=torch.int8)},
        r"weight_fp8 must be torch.float8_e4m3fn, got torch.int8",
    ),
    "float64": (
        {"weight_scale": torch.ones(N, dtype=torch.float64)},
        r"weight_scale must be torch.float32 or torch.bfloat16 or torch.float16, got torch.float64",
    ),
}


@pytest.mark.parametrize("case", BAD_STATE)
def test_bad_state_is_refused_and_changes_nothing(case: str) -> None:
    change, text = BAD_STATE[case]
    module = layer("channel, static")
    before = {k: v.clone() for k, v in module.weight.tensors().items()}
    with pytest.raises((RuntimeError, ValueError), match=text):
        module.load_state_dict({**module.state_dict(), **change})
    assert all(same_bits(v, before[k]) for k, v in module.weight.tensors().items())


def test_state_of_another_kind_or_with_finer_scales_is_refused() -> None:
    module = layer("channel, static")
    for other in ("tensor, static", "channel, dynamic", "block, none"):
        with pytest.raises(RuntimeError, match="of another kind"):
            module.load_state_dict(layer(other).state_dict(), strict=False)
    weight = module.weight
    short = Fp8Weight.from_quantized(
        weight.weight_fp8,
        weight.weight_scale.bfloat16(),
        scheme=weight.scheme,
        input_scale=weight.input_scale,
    )
    bfloat16 = Linear.from_weight(short, module.bias)
    with pytest.raises(RuntimeError, match=r"weight_scale must be torch.bfloat16 as in this"):
        bfloat16.load_state_dict(module.state_dict())
    module.load_state_dict(bfloat16.state_dict())
    assert torch.equal(module.weight.weight_scale, short.weight_scale.float())


# --- what is refused -----------------------------------------------------------------------------

CODES = torch.zeros(4, 8).to(FP8)
GOOD: dict[str, Any] = {
    "weight": CODES,
    "weight_scale": torch.ones(4),
    "scheme": Scheme.fp8(),
}
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "int8": (
        {"weight": CODES.to(torch.int8)},
        TypeError,
        r"weight must be float8_e4m3fn \[N, K\], got int8 \(4, 8\)",
    ),
    "e5m2": (
        {"weight": CODES.float().to(torch.float8_e5m2)},
        TypeError,
        "weight must be float8_e4m3fn .* got float8_e5m2",
    ),
    "rank": ({"weight": CODES[0]}, ValueError, r"\[N, K\], got float8_e4m3fn \(8,\)"),
    "NaN": (
        {"weight": torch.full((4, 8), float("nan")).to(FP8)},
        ValueError,
        "weight_fp8 must be finite",
    ),
    "scales": (
        {"weight_scale": torch.ones(3)},
        ValueError,
        r"weight_scale must be \(4,\), got \(3,\)",
    ),
    "NaN scale": (
        {"weight_scale": torch.full((4,), float("nan"))},
        ValueError,
        r"weight_scale must be finite, got nan at index \(0,\)",
    ),
    "blocks": (
        {"scheme": Scheme.fp8(None, strategy="block", block=(2, 4))},
        ValueError,
        r"weight_scale must be \(2, 2\), got \(4,\)",
    ),
    "static without": (
        {"scheme": Scheme.fp8("static")},
        ValueError,
        "activations='static' needs input_scale, got None",
    ),
    "dynamic with": ({"input_scale": 1.0}, ValueError, "needs no input_scale, got 1.0"),
    "infinite static": (
        {"scheme": Scheme.fp8("static"), "input_scale": float("inf")},
        ValueError,
        "input_scale must be finite",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_from_quantized_refuses(case: str) -> None:
    change, error, text = BAD[case]
    with pytest.raises(error, match=text):
        Fp8Weight.from_quantized(**{**GOOD, **change})


def test_schemes_refuse() -> None:
    for options, text in (
        ({"activations": "dynamic_azp"}, "activations must be 'dynamic', 'static' or None, got"),
        ({"strategy": "group"}, r"strategy must be one of \('channel', 'tensor', 'block'\), got"),
        ({"strategy": "block"}, "block must be two positive numbers .* got None for 'block'"),
        ({"block": (2, 4)}, r"got \(2, 4\) for 'channel'"),
        ({"strategy": "block", "block": (0, 4)}, r"got \(0, 4\) for 'block'"),
    ):
        with pytest.raises(ValueError, match=text):
            Scheme.fp8(**options)
    for scheme in ALL.values():
        again = Scheme.from_dict(copy.deepcopy(scheme.as_dict()))
        assert again == scheme and hash(again) == hash(scheme)
    listed = DENSE["block, none"].as_dict()
    listed["weights"]["block"] = list(BLOCK)  # as JSON has it
    assert Scheme.from_dict(listed) == DENSE["block, none"]


def test_inputs_are_refused() -> None:
    module = layer("block, none")
    with pytest.raises(TypeError, match="a must be float16, bfloat16 or float32, got int64"):
        module(torch.ones(2, K, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"input must be \[..., K=72\], got \(2, 71\)"):
        module(torch.ones(2, K - 1))
    with pytest.raises(ValueError, match=r"weight must be finite, got nan at \(0, 0\)"):
        Linear.from_float(nn.Linear(4, 4).requires_grad_(False), "fp8").weight.data = torch.full(
            (4, 4), float("nan")
        )
    for bad in (None, (0.0, float("inf"))):
        with pytest.raises(ValueError, match="needs a finite input_range, got"):
            Linear.from_float(nn.Linear(4, 4), Scheme.fp8("static"), input_range=bad)


# --- plans ---------------------------------------------------------------------------------------

GPUS = {sm: f"cuda:sm={sm},sms=132,smem=232448" for sm in (86, 89, 90, 100)}


def test_plan_of_a_layer_is_that_of_its_product() -> None:
    module = Linear(4096, 4096, scheme="fp8", dtype=torch.bfloat16, device="meta")
    for sm, family in ((89, "scaled"), (90, "wgmma"), (100, "torch")):
        if not has_code(sm):
            continue
        options: dict[str, Any] = {"out_dtype": torch.bfloat16, "device": GPUS[sm]}
        plan = mixed_gemm.plan(module, 64, device=GPUS[sm])
        assert plan == mixed_gemm.plan(64, 4096, 4096, dtype=FP8, **options)
        assert plan.family == family
    old = mixed_gemm.plan(module, 16, device=GPUS[86])
    assert old.selected == "torch.nn.functional.linear" and "before compute capability" in str(old)
    for name in DENSE:
        plan = mixed_gemm.plan(layer(name), 16)
        assert plan.family == "cpu" and plan.problem.startswith("fpA_fpB_gemm M=16 N=40 K=72")
    for name in (*WHOLE, *BLOCKS):
        assert mixed_gemm.plan(layer(name), 16).family == "cpu"
    plan = mixed_gemm.plan(layer("block, dynamic"), 16, device=GPUS[90])
    why = f"scales of blocks of {BLOCK[0]} x {BLOCK[1]}: the weight is made dense"
    assert plan.family == "torch" and why in plan.reason
    blocks = Linear(4096, 4096, scheme="fp8_block", dtype=torch.bfloat16, device="meta")
    for sm, family in ((89, "torch"), (90, "wgmma"), (100, "torch")):
        if has_code(sm):
            assert mixed_gemm.plan(blocks, 16, device=GPUS[sm]).family == family


# --- quantize_ -----------------------------------------------------------------------------------


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 32)).eval()


@pytest.mark.parametrize("scheme", ("fp8", "fp8_block"))
@pytest.mark.parametrize("activations", (None, "dynamic", "static"))
def test_quantize_a_model(activations: str | None, scheme: str) -> None:
    model, x = net(), torch.randn(50, 48)
    wanted = model(x).detach()
    calibration = [x] if activations == "static" else None
    report = mixed_gemm.quantize_(
        model, scheme, activations=activations, calibration=calibration, progress=False
    )
    assert {weight_of(model, i).kind for i in (0, 2)} == {"fp8"}
    assert weight_of(model, 0).scheme.activations == (activations or "dynamic")
    assert 0.01 < report.layers["0"].weight_error < 0.04
    assert (model(x).detach() - wanted).norm() < 0.06 * wanted.norm()
    if activations == "static":
        largest = x.abs().max()
        assert torch.isclose(weight_of(model, 0).input_scale, largest / 448)


def weight_of(model: nn.Sequential, i: int) -> QuantizedTensor:
    return model[i].weight


def test_quantize_refuses_what_does_not_fit() -> None:
    model = net()
    for options, text in (
        ({"smooth": 0.5, "calibration": [torch.ones(1, 48)]}, "smooth must be None for float8"),
        ({"activations": "static"}, "activations='static' needs calibration"),
        ({"bits": 8}, "bits must not be given with the scheme float8"),
        ({"activations": "dynamic_azp"}, "activations must be 'dynamic', 'static' or None"),
    ):
        with pytest.raises(ValueError, match=text):
            mixed_gemm.quantize_(model, "fp8", progress=False, **options)
    assert type(model[0]) is nn.Linear
