"""Linear with a W8A8 weight, and quantize_(scheme="w8a8"): modes, state, casts, gradients,
compilers.
"""

from __future__ import annotations

import copy
import io
import re
from typing import Any

import pytest
import torch
from support.built import has_code
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Linear, Scheme, reference
from mixed_gemm.ops.problem import DTYPES
from mixed_gemm.reference import scaled as reference_scaled
from mixed_gemm.weights import W8A8Weight
from mixed_gemm.weights.scheme import ACTIVATION_MODES
from mixed_gemm.weights.w8a8 import input_quantization

MODES = tuple(ACTIVATION_MODES)
N, K = 40, 72


def layer(
    activations: str = "dynamic",
    dtype: torch.dtype = torch.float32,
    smoothing: bool = False,
    bias: bool = True,
) -> Linear:
    torch.manual_seed(0)
    linear = nn.Linear(K, N, bias=bias).to(dtype)
    factors = 0.5 + torch.rand(K) if smoothing else None
    return Linear.from_float(
        linear, Scheme.w8a8(activations), input_range=(-3.0, 5.0), smoothing=factors
    )


def w8a8(
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    activations: str = "dynamic",
    **others: Any,
) -> Linear:
    """A layer of integers that are there already."""
    if bias is not None and pre_scale is None:
        others.setdefault("dtype", bias.dtype)
    scheme = Scheme.w8a8(activations)
    found = W8A8Weight.from_quantized(weight, weight_scale, pre_scale, scheme=scheme, **others)
    return Linear.from_weight(found, bias)


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(*shape, K) * 1.5 + 0.5).to(dtype)


def exact(module: Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """(value, bound): float64 of the integers that the oracle rounds to."""
    mode = ACTIVATION_MODES[module.scheme.activations]
    x = x if module.pre_scale is None else x * module.pre_scale
    if mode.dynamic:
        q, scale, azp = reference_scaled.quantize_per_token(x, symmetric=mode.symmetric)
    else:
        assert module.weight.input_scale is not None
        q = reference_scaled.quantize_per_tensor(
            x, module.weight.input_scale, module.weight.input_azp
        )
        scale, azp = module.weight.input_scale, None
    bias = None if module.bias is None else module.bias.detach()
    operands = (q, module.weight.weight_int8.t(), scale, module.weight.weight_scale, bias)
    points = {"azp_adj": module.weight.azp_adj, "azp": azp}
    value = reference_scaled.scaled_mm(*operands, **points)
    return value, reference_scaled.error_bound(*operands, out_dtype=x.dtype, **points)


def buffers(module: nn.Module) -> dict[str, Tensor]:
    return {k: v for k, v in module.state_dict().items() if isinstance(v, Tensor)}


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", (False, True))
@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activations", MODES)
def test_forward_is_within_the_bound(
    activations: str, dtype: torch.dtype, bias: bool, smoothing: bool
) -> None:
    module = layer(activations, dtype, smoothing, bias)
    for shape in ((1,), (2, 9), (33,), (0,), ()):
        x = rows(*shape, dtype=dtype)
        with torch.no_grad():
            out = module(x)
        assert out.dtype == dtype and out.shape == (*shape, N)
        assert reference.error_ratio(out, *exact(module, x)) <= 1


@pytest.mark.parametrize("activations", MODES)
@pytest.mark.parametrize("smoothing", (False, True))
def test_close_to_the_dense_layer(activations: str, smoothing: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(K, N)
    x = rows(200)
    module = Linear.from_float(
        linear,
        Scheme.w8a8(activations),
        input_range=(float(x.min()), float(x.max())),
        smoothing=0.8 + 0.4 * torch.rand(K) if smoothing else None,
    )
    if smoothing and "static" in activations:  # the range is that after smoothing
        assert module.pre_scale is not None
        smooth = x * module.pre_scale
        again = (float(smooth.min()), float(smooth.max()))
        module = Linear.from_float(
            linear,
            Scheme.w8a8(activations),
            input_range=again,
            smoothing=module.pre_scale.reciprocal(),
        )
    with torch.no_grad():
        dense, out = linear(x), module(x)
    error = ((out - dense).norm() / dense.norm()).item()
    assert error < 0.02, error  # 8 bits each: 0.5 / 127 of a few sigma, twice


def test_weight_is_rounded_to_nearest_by_channel() -> None:
    linear = nn.Linear(K, N)
    with torch.no_grad():
        linear.weight[3] = 0  # a channel of zeros divides by nothing
    module = Linear.from_float(linear, "w8a8")
    step = linear.weight.detach().abs().amax(1) / 128  # its sign makes the largest value -128
    keep = torch.arange(N) != 3
    assert torch.allclose(module.weight.weight_scale.abs()[keep], step[keep], rtol=1e-6)
    error = (module.dequantize() - linear.weight.detach()).abs()
    assert (error[keep] <= 1.0001 * step[keep, None]).all()  # 128 itself is not there
    assert (error <= 0.5001 * step[:, None]).double().mean() > 0.9
    assert (module.weight.weight_int8.amin(1)[keep] == -128).all() and (
        module.weight.weight_int8[3] == 0
    ).all()
    with torch.no_grad():
        assert torch.equal(module(rows(2))[:, 3], linear.bias.detach()[3].expand(2))


RANGES = (
    *((-3.0, 5.0), (0.0, 6.0), (-4.0, 0.0), (0.0, 0.0), (5.0, 6.0), (-6.0, -5.0), (7.3, 7.3)),
    *((1e4, 1e4 + 2.0**-10), (-3e38, 3e38), (1e-42, 2e-42)),
)


@pytest.mark.parametrize("k", (1, 72, 4096, 28672, 43_804, 43_805, 131_071))
@pytest.mark.parametrize("low, high", RANGES)
@pytest.mark.parametrize("azp", (False, True))
def test_static_range_is_covered(low: float, high: float, azp: bool, k: int) -> None:
    scale, point = input_quantization(low, high, azp, k)
    x = torch.linspace(low, high, 400, dtype=torch.float64).float()
    q = mixed_gemm.quantize_per_tensor(
        x, torch.tensor(scale), torch.tensor(point, dtype=torch.int32)
    )
    back = scale * (q.double() - point)
    roundings = 2.0**-22 * max(abs(low), abs(high))  # in fp32
    assert ((back - x.double()).abs() <= 0.5001 * scale + roundings).all()
    assert azp or point == 0
    assert abs(point) * 128 * k < 2**31, "folded into the sum of any weight, it fits"
    if azp and k <= 4096 and max(abs(low), abs(high)) < 15 * (high - low):
        own = (high - low) / 255
        assert scale == pytest.approx(own, rel=1e-7, abs=2.0**-126)
    if azp and k > 43_804:
        assert -128 <= point <= 127


@pytest.mark.parametrize("low, high", ((5.0, 6.0), (-6.0, -5.0), (7.3, 7.3), (1e4, 1e4 + 1e-3)))
def test_static_activations_far_from_zero_are_as_fine_as_their_range(
    low: float, high: float
) -> None:
    linear = nn.Linear(K, N)
    with torch.no_grad():
        linear.weight[0], linear.weight[1] = 1, -1  # the largest sums
    module = Linear.from_float(linear, Scheme.w8a8("static_azp"), input_range=(low, high))
    x = low + (high - low) * torch.rand(50, K)
    most = (2**31 - 1) // (128 * K) - 128  # steps whose product with any sum fits in int32
    step = max((high - low) / 255, max(abs(low), abs(high)) / most)
    assert module.weight.input_scale.item() == pytest.approx(step)
    with torch.no_grad():
        out = module(x)
    assert reference.error_ratio(out, *exact(module, x)) <= 1
    dense = x.double() @ module.dequantize().double().t() + linear.bias.detach().double()
    moved = module.dequantize().double().abs().sum(1) * step
    assert ((out.double() - dense).abs() <= 0.76 * moved + 2.0**-22 * dense.abs()).all()


def test_dynamic_rows_do_not_depend_on_each_other() -> None:
    module, x = layer("dynamic_azp"), rows(6)
    changed = x.clone()
    changed[2] *= 1000
    with torch.no_grad():
        whole, out = module(x), module(changed)
    keep = torch.arange(6) != 2
    assert torch.equal(out[keep], whole[keep])


def test_views_equal_contiguous() -> None:
    module, x = layer(), rows(6, 4)
    with torch.no_grad():
        expected = module(x)
        assert torch.equal(module(x.transpose(0, 1)).transpose(0, 1), expected)
        wide = torch.full((6, 4, K + 5), float("nan"))
        wide[..., 2 : 2 + K] = x
        assert torch.equal(module(wide[..., 2 : 2 + K]), expected)


# --- autograd, casts, compilers ---------------------------------------------------------------


@pytest.mark.parametrize("activations", MODES)
@pytest.mark.parametrize("smoothing", (False, True))
def test_gradient_goes_straight_through_the_rounding(activations: str, smoothing: bool) -> None:
    module, x, grad = layer(activations, smoothing=smoothing), rows(3, 5), torch.randn(3, 5, N)
    x.requires_grad_()
    out = module(x)
    with torch.no_grad():
        assert torch.equal(out, module(x.detach()))
    out.backward(grad)
    dense = module.to_float().weight.detach().double()
    assert x.grad is not None and module.bias is not None and module.bias.grad is not None
    assert torch.allclose(x.grad.double(), grad.double() @ dense, rtol=1e-4, atol=1e-5)
    assert torch.allclose(module.bias.grad, grad.sum((0, 1)), rtol=1e-5, atol=1e-5)


def test_bias_alone_trains() -> None:
    module = layer()
    module(rows(4)).sum().backward()
    assert module.bias is not None and torch.equal(module.bias.grad, torch.full((N,), 4.0))  # type: ignore[arg-type]
    assert [name for name, p in module.named_parameters() if p.requires_grad] == ["bias"]


@pytest.mark.parametrize("activations", MODES)
def test_casts_move_the_activations_only(activations: str) -> None:
    module = layer(activations, smoothing=True)
    half = copy.deepcopy(module).half()
    for name in ("weight_scale", "input_scale"):
        kept, cast = getattr(module.weight, name), getattr(half.weight, name)
        assert (kept is None) == (cast is None)
        if kept is not None:
            assert cast.dtype == torch.float32 and torch.equal(cast, kept)
    assert half.weight.dtype == torch.float16 and half.pre_scale.dtype == torch.float16  # type: ignore[union-attr]
    assert half.weight.weight_int8.dtype == torch.int8
    x = rows(4, dtype=torch.float16)
    with torch.no_grad():
        assert reference.error_ratio(half(x), *exact(half, x)) <= 1
    back = half.to(torch.bfloat16)
    assert back.bias is not None and back.bias.dtype == torch.bfloat16
    without = layer(activations, bias=False).to(torch.bfloat16)
    assert without.weight.dtype == torch.bfloat16, "nothing but the module itself knows"


def test_autocast_decides_the_dtype() -> None:
    module, x = layer("dynamic", smoothing=True), rows(4)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = module(x)
    assert out.dtype == torch.bfloat16
    low = copy.deepcopy(module).to(torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(out, low(x.bfloat16()))


@pytest.mark.parametrize("activations", MODES)
def test_compiles_and_exports(activations: str) -> None:
    module, x = layer(activations, smoothing=True), rows(5)
    with torch.no_grad():
        expected = module(x)
        compiled = torch.compile(module, fullgraph=True, dynamic=True)
        assert torch.equal(compiled(x), expected)
        assert torch.equal(compiled(x[:3]), expected[:3])
        batch = torch.export.Dim("batch", min=2, max=64)
        inside = nn.Sequential(module)  # torch 2.13 trips over None among the buffers of the root
        program = torch.export.export(inside, (x,), dynamic_shapes=({0: batch},))
        assert torch.equal(program.module()(x[:4]), expected[:4])


# --- state ------------------------------------------------------------------------------------


@pytest.mark.parametrize("activations", MODES)
@pytest.mark.parametrize("smoothing", (False, True))
def test_state_round_trip(activations: str, smoothing: bool) -> None:
    module, x = layer(activations, torch.float16, smoothing), rows(4, dtype=torch.float16)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    options: dict[str, Any] = {"activations": activations, "pre_scale": smoothing}
    with torch.no_grad():
        expected = module(x)
        fresh = Linear(K, N, scheme="w8a8", **options, dtype=torch.float16)
        assert (fresh(x) == 0).all(), "w = 0 until it is filled"
        fresh.load_state_dict(state)
        assert torch.equal(fresh(x), expected)
        empty = Linear(K, N, scheme="w8a8", **options, dtype=torch.float16, device="meta")
        empty.load_state_dict(state, assign=True)
        assert torch.equal(empty(x), expected)
        assert torch.equal(copy.deepcopy(module)(x), expected)


def test_state_of_another_mode_or_shape_is_refused_and_changes_nothing() -> None:
    module = layer("static")
    before = {k: v.clone() for k, v in buffers(module).items()}
    with pytest.raises(RuntimeError, match=r'of another kind.*"dynamic_azp".*"static"'):
        module.load_state_dict(layer("dynamic_azp").state_dict(), strict=False)
    bad = module.state_dict()
    bad["weight_int8"] = bad["weight_int8"][:, :-1]
    with pytest.raises(RuntimeError, match=r"weight_int8 must be \(40, 72\), got \(40, 71\)"):
        module.load_state_dict(bad)
    bad = module.state_dict()
    bad["weight_scale"] = bad["weight_scale"].half()
    with pytest.raises(
        RuntimeError, match=r"weight_scale must be torch.float32, got torch.float16"
    ):
        module.load_state_dict(bad)
    bad = {k: v.clone() for k, v in buffers(module).items()}
    bad["input_scale"] = torch.tensor(float("nan"))
    with pytest.raises(ValueError, match="input_scale must be finite"):
        module.load_state_dict(bad)
    assert all(torch.equal(v, before[k]) for k, v in buffers(module).items())
    weight_only = mixed_gemm.Linear.from_float(nn.Linear(K, N), bits=8, group_size=-1)
    with pytest.raises(RuntimeError, match="of another kind"):
        module.load_state_dict(weight_only.state_dict(), strict=False)


# --- other constructors -----------------------------------------------------------------------


def test_from_quantized_takes_the_forms_of_checkpoints() -> None:
    module = layer("static_azp", torch.float16)
    weight, scale = module.weight.weight_int8, module.weight.weight_scale
    assert module.bias is not None
    shared: dict[str, Any] = {
        "activations": "static_azp",
        "input_scale": module.weight.input_scale,
        "input_azp": module.weight.input_azp,
    }
    x = rows(3, dtype=torch.float16)
    with torch.no_grad():
        for form in (scale, scale[:, None], scale.double()):
            again = w8a8(weight, form, module.bias, **shared)
            assert torch.equal(again(x), module(x))
        one = w8a8(weight, scale[:1], dtype=torch.float16)
        assert torch.equal(one.weight.weight_scale, scale[:1].expand(N))
        assert one(x).dtype == one.weight.dtype == torch.float16


@pytest.mark.parametrize(
    "change, error, text",
    (
        ({"weight": torch.zeros(4, 8)}, RuntimeError, r"must be int8 \[N, K\], got torch.float32"),
        ({"weight_scale": torch.ones(3)}, RuntimeError, r"weight_scale must be \(4,\), got \(3,\)"),
        ({"bias": torch.ones(3)}, RuntimeError, r"bias must be \(4,\), got \(3,\)"),
        ({"pre_scale": torch.ones(4)}, RuntimeError, r"pre_scale must be \(8,\), got \(4,\)"),
        (
            {"bias": torch.ones(4).half(), "pre_scale": torch.ones(8)},
            RuntimeError,
            "bias must be torch.float32 as the weight, got torch.float16",
        ),
        ({"activations": "fast"}, ValueError, r"must be one of \('dynamic', .*got 'fast'"),
        ({"activations": "static"}, ValueError, "needs input_scale, got None"),
        ({"input_scale": 0.1}, ValueError, "needs no input_scale, got 0.1"),
        (
            {"weight_scale": torch.full((4,), float("inf"))},
            ValueError,
            r"weight_scale must be finite, got inf at index \(0,\)",
        ),
    ),
)  # fmt: skip
def test_from_quantized_refuses_by_name(
    change: dict[str, Any], error: type[Exception], text: str
) -> None:
    valid: dict[str, Any] = {
        "weight": torch.zeros(4, 8, dtype=torch.int8),
        "weight_scale": torch.ones(4),
    }
    with pytest.raises(error, match=text):
        w8a8(**{**valid, **change})


@pytest.mark.parametrize("azp", (2**22 + 1, -(2**22) - 1, 2**31 - 1))
def test_zero_points_that_the_quantizer_would_cut_are_refused(azp: int) -> None:
    weight, scale = torch.zeros(4, 8, dtype=torch.int8), torch.ones(4)
    static: dict[str, Any] = {"activations": "static_azp", "input_scale": 0.1}
    with pytest.raises(ValueError, match=rf"input_azp must be in .* = 4194304.*got {azp}"):
        w8a8(weight, scale, **static, input_azp=azp)
    assert w8a8(weight, scale, **static, input_azp=2**22).weight.input_azp == 2**22


@pytest.mark.parametrize("bad", (None, (0.0, float("inf")), (float("nan"), 1.0)))
def test_static_needs_a_finite_range(bad: Any) -> None:
    with pytest.raises(ValueError, match="'static' needs a finite input_range, got"):
        Linear.from_float(nn.Linear(K, N), Scheme.w8a8("static"), input_range=bad)


def test_is_a_linear_and_says_what_it_is() -> None:
    module = layer("static", torch.float16, smoothing=True)
    assert isinstance(module, mixed_gemm.Linear) and isinstance(module, nn.Linear)
    assert repr(module) == (
        "Linear(in_features=72, out_features=40, bias=True, scheme=(int8, per channel, symmetric; "
        "int8 activations, static), pre_scale=True, dtype=float16)"
    )
    again = Linear.from_quantized_weight(module.to_quantized_weight("x"), torch.float16)
    for name, tensor in module.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    with pytest.raises(RuntimeError, match="cannot be re-initialised"):
        module.reset_parameters()


def test_to_float_folds_the_smoothing() -> None:
    module, x = layer("dynamic", smoothing=True), rows(50)
    dense = module.to_float()
    assert type(dense) is nn.Linear and dense.bias is module.bias
    with torch.no_grad():
        error = (module(x) - dense(x)).norm() / dense(x).norm()
    assert error < 0.02


# --- quantize_ --------------------------------------------------------------------------------


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 32))


@pytest.mark.parametrize("activations", MODES)
def test_quantize_replaces_every_linear(activations: str) -> None:
    dense = model()
    quantized = copy.deepcopy(dense)
    batches = [torch.randn(16, 48) for _ in range(4)]
    report = mixed_gemm.quantize_(
        quantized, scheme="w8a8", activations=activations, calibration=batches, progress=False
    )
    assert report.quantized == ("0", "2") and report.smoothed == {}
    assert all(type(m) is Linear and m.scheme.activations == activations for m in quantized[::2])
    assert 3.4 < report.bytes_before / report.bytes_after <= 4
    assert "2 layers quantized" in str(report)
    with torch.no_grad():
        expected = dense(batches[0])
        error = (quantized(batches[0]) - expected).norm() / expected.norm()
    assert error < 0.03


def test_quantize_converts_a_meta_model_that_is_filled_later() -> None:
    filled, batch = model(), torch.randn(3, 48)
    mixed_gemm.quantize_(filled, scheme="w8a8", progress=False)
    with torch.device("meta"):
        empty = model()
    mixed_gemm.quantize_(empty, scheme="w8a8", progress=False)
    empty.load_state_dict(filled.state_dict(), assign=True)
    with torch.no_grad():
        assert torch.equal(empty(batch), filled(batch))


@pytest.mark.parametrize(
    "options, text",
    (
        ({"scheme": "w9a9"}, "scheme must be one of"),
        ({"scheme": "w8a16", "activations": "static"}, "activations must not be given"),
        ({"activations": "static"}, "activations='static' needs calibration"),
        ({"smooth": 0.5}, "smooth needs calibration"),
        ({"smooth": 1.5, "calibration": [torch.zeros(1, 48)]}, r"smooth must be in 0..1, got 1.5"),
        ({"activations": "int4"}, "activations must be one of"),
        ({"activations": "static", "calibration": []}, "calibration gave no batch"),
        (
            {"activations": "static", "calibration": [torch.full((1, 48), float("nan"))]},
            "calibration: the input of 0 holds NaN or Inf",
        ),
        ({"scheme": "w4a16", "group_size": 16, "smooth": 0.5}, "smooth must be None for schemes"),
    ),
)
def test_quantize_refuses_and_changes_nothing(options: dict[str, Any], text: str) -> None:
    untouched = model()
    before = {k: v.clone() for k, v in untouched.state_dict().items()}
    with pytest.raises(ValueError, match=text):
        mixed_gemm.quantize_(untouched, **{"scheme": "w8a8", **options})
    assert all(type(m) is nn.Linear for m in untouched[::2])
    assert all(torch.equal(v, before[k]) for k, v in untouched.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in untouched.modules())


def test_quantize_refuses_a_k_whose_sums_could_wrap() -> None:
    huge = nn.Sequential(nn.Linear(131072, 1, device="meta"))
    with pytest.raises(ValueError, match=r"in_features must be at most 131071.*got 131072"):
        mixed_gemm.quantize_(huge, scheme="w8a8")


def test_static_refuses_a_layer_that_calibration_never_reached() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    heads, batches = TwoHeads(), [torch.randn(4, 8)]
    options: dict[str, Any] = {"scheme": "w8a8", "activations": "static", "calibration": batches}
    with pytest.raises(ValueError, match=r"never reached unused. Hint: name it in skip"):
        mixed_gemm.quantize_(heads, **options)
    assert type(heads.used) is nn.Linear, "nothing was changed"
    report = mixed_gemm.quantize_(heads, **options, skip="unused")
    assert report.quantized == ("used",) and "unused" in report.skipped


def test_one_module_at_two_places_stays_one_and_tied_weights_stay_dense() -> None:
    shared = nn.Linear(8, 8)
    tied = nn.Linear(8, 8)
    tied.weight = (other := nn.Linear(8, 8)).weight
    net = nn.ModuleDict({"a": shared, "b": shared, "c": tied, "d": other})
    report = mixed_gemm.quantize_(net, scheme="w8a8")
    assert net["a"] is net["b"] and type(net["a"]) is Linear
    assert report.quantized == ("a",) and set(report.skipped) == {"c", "d"}


# --- plan -------------------------------------------------------------------------------------

GPUS = {  # sm, SMs, shared memory of a block
    "sm_80": "cuda:sm=80,sms=108,smem=166912",
    "sm_86": "cuda:sm=86,sms=84,smem=101376",
    "sm_89": "cuda:sm=89,sms=128,smem=101376",
    "sm_90": "cuda:sm=90,sms=132,smem=232448",
}


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("m", (1, 16, 32, 64, 128, 1024))
def test_plan_of_int8_has_a_kernel_on_every_gpu(gpu: str, m: int) -> None:
    plan = mixed_gemm.plan(m, 4096, 4096, dtype=torch.int8, device=GPUS[gpu])
    assert plan.selected.startswith(plan.family) and plan.selected == plan.candidates[0].config
    names = [c.config for c in plan.candidates]
    assert len(set(names)) == len(names)
    families = ("scaled_m", "skinny_m", *(("wgmma_m",) if gpu == "sm_90" else ()))
    assert {name[:7] for name in names} == {family[:7] for family in families}
    assert any("_streamk" in name for name in names) and any("_parallel" in name for name in names)
    assert any("_cluster" in name for name in names) == (gpu == "sm_90")
    tiles = [name for name in names if not name.startswith("skinny")]
    for name in tiles:  # a stage holds 128 bytes of every row of both operands
        tile_m, tile_n, stages = map(int, re.findall(r"\d+", name.split("_")[1]))
        assert stages * 128 * (tile_m + tile_n) <= int(GPUS[gpu].rsplit("=", 1)[1]), name
    assert f"M={m} N=4096 K=4096 int8 to float16" in plan.problem


def test_plan_of_a_layer_is_that_of_its_product() -> None:
    module = layer("dynamic", torch.bfloat16)
    of_layer = mixed_gemm.plan(module, 16, device=GPUS["sm_90"])
    by_hand = mixed_gemm.plan(
        16, N, K, dtype="int8", out_dtype=torch.bfloat16, device=GPUS["sm_90"]
    )
    assert of_layer == by_hand
    assert mixed_gemm.plan(module, 16).family == "cpu"


def test_plan_says_where_float8_runs() -> None:
    float8 = torch.float8_e4m3fn
    for n in (4096, 4095):
        hopper = mixed_gemm.plan(64, n, 4096, dtype=float8, device=GPUS["sm_90"])
        assert hopper.family == "wgmma"
        few = mixed_gemm.plan(4, n, 4096, dtype=float8, device=GPUS["sm_90"])
        assert few.family == "skinny"
        by_torch = [c for c in hopper.candidates if c.config == "torch._scaled_mm"]
        assert by_torch == ([hopper.candidates[-1]] if n % 16 == 0 else [])
        assert all(c.predicted_us is None for c in by_torch)
    if has_code(100):
        behind = GPUS["sm_90"].replace("sm=90", "sm=100")
        torchs = mixed_gemm.plan(16, 4096, 4096, dtype=float8, device=behind)
        assert (torchs.family, torchs.selected) == ("torch", "torch._scaled_mm")
        assert "behind compute capability 9.0" in torchs.reason
    assert mixed_gemm.plan(64, 4096, 4096, dtype=float8, device=GPUS["sm_89"]).family == "scaled"
    refusal = mixed_gemm.why_not(16, 4096, 4096, dtype=float8, device=GPUS["sm_86"])
    assert refusal is not None and "compute capability 8.9 or newer, got 8.6" in str(refusal)


def test_why_not_of_int8_counts_k() -> None:
    refusal = mixed_gemm.why_not(1, 8, 131072, dtype=torch.int8, device="cpu")
    assert refusal is not None and "131071" in str(refusal) and "131072" in str(refusal)
    wrong = mixed_gemm.why_not(1, 8, 64, dtype=torch.int8, out_dtype="float64", device="cpu")
    assert wrong is not None and wrong.nearest == {"out_dtype": "float16"}
