"""SmoothQuant: the factors, where they go, what calibration sees, and that it helps."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Linear
from mixed_gemm.quantization import smoothing_factors
from mixed_gemm.quantization.dataflow import observe
from mixed_gemm.quantization.methods import GPTQ, SmoothQuant
from mixed_gemm.quantization.sample import RowSample

D = 64
OUTLIERS = (3, 17, 40)


class RMSNorm(nn.Module):
    """As transformer libraries write it, not torch's."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(D) + 0.5)
        self.offset = offset  # Gemma multiplies by 1 + weight

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * (self.weight + self.offset)


class Block(nn.Module):
    """A norm with outliers, two linears that read it, one that reads the product of others."""

    def __init__(self, norm: nn.Module, residual: bool = False) -> None:
        super().__init__()
        self.norm, self.residual = norm, residual
        self.gate, self.up, self.down = nn.Linear(D, 96), nn.Linear(D, 96), nn.Linear(96, D)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        y = self.down(nn.functional.silu(self.gate(h)) * self.up(h))
        return y + h if self.residual else y


def with_outliers(norm: nn.Module, factor: float = 50.0) -> nn.Module:
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter[list(OUTLIERS)] *= factor
    return norm


def block(norm: nn.Module | None = None, residual: bool = False) -> Block:
    torch.manual_seed(0)
    return Block(with_outliers(nn.LayerNorm(D)) if norm is None else norm, residual)


def batches(count: int = 4) -> list[Tensor]:
    g = torch.Generator().manual_seed(1)
    return [torch.randn(32, D, generator=g) for _ in range(count)]


def quantized(
    dense: nn.Module, smooth: Any, activations: str = "dynamic", **options: Any
) -> tuple[nn.Module, mixed_gemm.Report]:
    model = copy.deepcopy(dense)
    options.setdefault("calibration", batches())
    options.setdefault("skip", None)  # the default leaves what is called "gate" alone, a router
    report = mixed_gemm.quantize_(
        model, scheme="w8a8", activations=activations, smooth=smooth, progress=False, **options
    )
    return model, report


def error(model: nn.Module, dense: nn.Module) -> float:
    """On what calibration saw: beyond its range static activations saturate."""
    x = torch.cat(batches())
    with torch.no_grad():
        expected = dense(x)
        return float((model(x) - expected).norm() / expected.norm())


# --- the factors ------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", (0.0, 0.25, 0.5, 1.0))
def test_factors_are_those_of_the_paper(alpha: float) -> None:
    x, weight = torch.rand(D) * 10 + 0.1, torch.randn(40, D)
    factors = smoothing_factors(x, weight, alpha)
    largest = weight.abs().amax(0)
    assert torch.allclose(factors, x**alpha / largest ** (1 - alpha), rtol=1e-5)
    assert factors.dtype == torch.float32
    # alpha 0.5: both sides get the same range
    if alpha == 0.5:
        assert torch.allclose(x / factors, largest * factors, rtol=1e-5)


def test_factors_of_dead_channels_are_one_and_none_is_tiny() -> None:
    x, weight = torch.ones(4), torch.ones(3, 4)
    x[0], weight[:, 1], x[2], weight[:, 2] = 0, 0, 1e-30, 1e3
    factors = smoothing_factors(x, weight)
    assert factors[:2].tolist() == [1, 1]
    assert factors[2] == pytest.approx(1e-5) and factors[3] == 1


def test_factors_refuse_bad_arguments() -> None:
    for alpha in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"alpha must be in 0\.\.1, got"):
            smoothing_factors(torch.ones(4), torch.ones(3, 4), alpha)
    with pytest.raises(RuntimeError, match=r"activations must be \[K\].*got \(5,\) and \(3, 4\)"):
        smoothing_factors(torch.ones(5), torch.ones(3, 4))


# --- where they go ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "norm",
    (
        pytest.param(lambda: nn.LayerNorm(D), id="LayerNorm"),
        pytest.param(lambda: nn.LayerNorm(D, bias=False), id="LayerNorm without bias"),
        pytest.param(lambda: nn.RMSNorm(D), id="RMSNorm of torch"),
        pytest.param(lambda: RMSNorm(), id="RMSNorm of a library"),
    ),
)
def test_factors_fold_into_the_norm_before(norm: Any) -> None:
    dense = block(with_outliers(norm()))
    model, report = quantized(dense, 0.5)
    assert report.smoothed["gate"] == report.smoothed["up"] == "folded into norm"
    assert report.smoothed["down"].startswith("kept as pre_scale")
    assert "2 folded into the layer before, 1 with a pre_scale" in str(report)
    assert model.gate.pre_scale is None and model.down.pre_scale is not None
    assert not torch.equal(model.norm.weight, dense.norm.weight)
    # In real numbers nothing changed: the weights undo what the norm divides by.
    back = copy.deepcopy(model)
    for name in ("gate", "up", "down"):
        setattr(back, name, getattr(model, name).to_float())
    assert error(back, dense) < 0.02


def test_folding_is_exact_but_for_rounding() -> None:
    dense = block()
    model, _ = quantized(dense, 0.5)
    x = batches(1)[0]
    with torch.no_grad():
        ratio = dense.norm(x) / model.norm(x)
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio), rtol=1e-3), "one factor a channel"
    largest = torch.cat([dense.norm(b).abs() for b in batches()]).amax(0)
    weights = torch.cat([dense.gate.weight, dense.up.weight])
    expected = smoothing_factors(largest.detach(), weights, 0.5)
    assert torch.allclose(ratio[0], expected, rtol=1e-3)


def test_factors_fold_into_a_linear_before() -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(D, 48), nn.Linear(48, 32))
    with torch.no_grad():
        dense[0].weight[5] *= 50
    model, report = quantized(dense, 0.5)
    assert report.smoothed["1"] == "folded into 0"
    assert error(model, dense) < error(quantized(dense, None)[0], dense)
    # The first linear was quantized after its rows were divided.
    assert model[0].weight.weight_scale.abs().max() < 0.5 * dense[0].weight.abs().max() / 127


@pytest.mark.parametrize(
    "change, reason",
    (
        pytest.param(lambda b: setattr(b, "residual", True), "norm is also read by", id="residual"),
        pytest.param(
            lambda b: setattr(b.norm, "weight", b.other.weight), "shares its parameters", id="tied"
        ),
        pytest.param(
            lambda b: b.norm.register_forward_hook(lambda *args: None), "has hooks", id="hooks"
        ),
    ),
)
def test_factors_stay_as_pre_scale_where_folding_would_be_wrong(change: Any, reason: str) -> None:
    dense = block()
    dense.other = nn.LayerNorm(D)
    change(dense)
    before = dense.norm.weight.detach().clone()
    model, report = quantized(dense, 0.5)
    assert reason in report.smoothed["gate"] and report.smoothed["gate"].startswith("kept")
    assert torch.equal(model.norm.weight, before), "untouched"
    assert model.gate.pre_scale is not None
    assert error(model, dense) < 0.03


def test_norm_that_does_not_scale_with_its_weight_is_left_alone() -> None:
    dense = block(RMSNorm(offset=1.0))
    model, report = quantized(dense, 0.5)
    assert "norm does not scale with its weight" in report.smoothed["gate"]
    assert torch.equal(model.norm.weight, dense.norm.weight), "tried and undone"
    assert error(model, dense) < 0.03


def test_a_linear_with_two_inputs_keeps_its_pre_scale() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(D), nn.LayerNorm(D)
            self.linear = nn.Linear(D, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(self.first(x)) + self.linear(self.second(x + 1))

    _, report = quantized(Twice(), 0.5)
    assert "linear has other inputs than" in report.smoothed["linear"]


# --- it helps ---------------------------------------------------------------------------------


@pytest.mark.parametrize("activations", ("dynamic", "dynamic_azp", "static", "static_azp"))
@pytest.mark.parametrize("residual", (False, True))
def test_outliers_cost_less_with_smoothing(activations: str, residual: bool) -> None:
    dense = block(residual=residual)
    plain = error(quantized(dense, None, activations)[0], dense)
    smooth = error(quantized(dense, 0.5, activations)[0], dense)
    assert smooth < 0.7 * plain, (smooth, plain)


@pytest.mark.parametrize("activations", ("dynamic", "dynamic_azp", "static", "static_azp"))
@pytest.mark.parametrize("factor", (1.0, 50.0, 5000.0))
def test_the_searched_alpha_is_as_good_as_any(activations: str, factor: float) -> None:
    """Of a single layer, measured on the rows that it was chosen on."""
    torch.manual_seed(0)
    dense = nn.Sequential(with_outliers(nn.LayerNorm(D), factor), nn.Linear(D, 96))
    fixed = [error(quantized(dense, x, activations)[0], dense) for x in (None, 0.2, 0.5, 0.8)]
    model, report = quantized(dense, "search", activations)
    assert error(model, dense) <= 1.001 * min(fixed)
    assert report.smoothed == {} or report.smoothed == {"1": "folded into 0"}


def test_a_layer_that_needs_no_smoothing_gets_none() -> None:
    """All channels are alike, so that factors would only multiply both sides by a number."""
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(D, 96, bias=False))
    with torch.no_grad():
        dense[0].weight.sign_()
    data = torch.randn(64, D).sign()
    model, report = quantized(dense, "search", calibration=[data])
    assert report.smoothed == {} and model[0].pre_scale is None


@settings(deadline=None, max_examples=100)
@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=12), most=st.integers(1, 30))
def test_a_sample_is_evenly_spaced(counts: list[int], most: int) -> None:
    stream = torch.arange(sum(counts)).float()[:, None]
    sample = RowSample(most)
    for part in stream.split(counts):
        sample.add(part)
    rows = sample.rows().flatten().long().tolist()
    assert len(rows) <= most
    assert len(rows) == len(stream) or 2 * len(rows) >= most
    if len(rows) > 1:
        stride = rows[1] - rows[0]
        assert rows == list(range(0, len(stream), stride))


@pytest.mark.parametrize("activations", ("dynamic", "dynamic_azp", "static", "static_azp"))
@pytest.mark.parametrize("alpha", (None, 0.5, "search"))
def test_weights_that_gptq_rounds_cost_less(activations: str, alpha: Any) -> None:
    """Measured with what the activations cost taken away: x @ w with the stored weight."""
    dense, made = block(), {}
    x = torch.cat(batches())
    for then in (None, GPTQ()):
        model = copy.deepcopy(dense)
        report = mixed_gemm.quantize_(
            model, "w8a8", activations=activations, calibration=batches(), skip=None,
            method=SmoothQuant(alpha, then=then), progress=False,
        )  # fmt: skip
        assert error(model, dense) < (0.06 if alpha is None else 0.03)
        assert model.down.weight.input_scale is None or "static" in activations
        made[then is not None] = copy.deepcopy(model), report
    for name in ("gate", "up"):
        costs = []
        for model, _ in (made[False], made[True]):
            layer = getattr(model, name)
            out = nn.functional.linear(model.norm(x), layer.to_float().weight)
            wanted = nn.functional.linear(dense.norm(x), getattr(dense, name).weight)
            costs.append(float((out - wanted).norm()))
        assert costs[1] < costs[0]
    assert made[True][1].layers["gate"].output_error is not None
    assert made[True][1].smoothed.keys() == made[False][1].smoothed.keys()


def test_what_gptq_refuses_leaves_the_model_as_it_was() -> None:
    class Never(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.idle = block(), nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    dense = Never()
    before = copy.deepcopy(dense.state_dict())
    with pytest.raises(ValueError, match="never reached idle"):
        mixed_gemm.quantize_(
            dense, "w8a8", method="smoothquant+gptq", calibration=batches(), skip=None,
            progress=False,
        )  # fmt: skip
    assert type(dense.body.gate) is nn.Linear
    after = dense.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[x], after[x]) for x in before)


@pytest.mark.parametrize(
    ("scheme", "why"),
    [(mixed_gemm.Scheme.w8a8_block(32), "weights of 'w8a8' and 'fp8'"), ("fp8", "method='gptq'")],
)
def test_gptq_behind_smoothing_is_for_w8a8(scheme: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        mixed_gemm.quantize_(
            block(), scheme, method="smoothquant+gptq", calibration=batches(), progress=False
        )


# --- calibration ------------------------------------------------------------------------------


def test_batches_may_be_mappings_tuples_tensors_and_a_generator() -> None:
    dense = block()
    expected, _ = quantized(dense, 0.5, "static")

    def pairs() -> Iterator[Any]:
        first, second, third, fourth = batches()
        yield from ({"x": first}, (second,), [third], fourth)

    model, _ = quantized(dense, 0.5, "static", calibration=pairs())
    state, other = model.state_dict(), expected.state_dict()
    assert all(torch.equal(state[name], other[name]) for name in other)


def test_calibration_leaves_no_trace() -> None:
    dense = block()
    dense.train()
    seen: list[bool] = []
    dense.norm.register_forward_hook(lambda module, *args: seen.append(module.training))
    model = dense
    mixed_gemm.quantize_(model, scheme="w8a8", calibration=batches(2), smooth=0.5, progress=False)
    assert seen == [False, False], "in eval mode"
    assert model.training and model.gate.training
    assert len(model.norm._forward_hooks) == 1 and not model.norm._forward_pre_hooks
    assert all(p.grad is None for p in model.parameters())


def test_ranges_are_the_extremes_of_all_batches() -> None:
    dense, data = block(nn.LayerNorm(D)), batches()
    linears = {"gate": dense.gate, "up": dense.up}
    seen = observe(dense, linears, data).layers["gate"]
    inputs = torch.cat([dense.norm(b) for b in data]).detach()
    assert torch.equal(seen.low, inputs.amin(0)) and torch.equal(seen.high, inputs.amax(0))  # type: ignore[arg-type]
    assert seen.producers == {"norm"}


def test_static_scale_is_that_of_the_smoothed_range() -> None:
    dense = block()
    model, _ = quantized(dense, 0.5, "static")
    with torch.no_grad():
        largest = max(model.norm(b).abs().max() for b in batches())
    assert isinstance(model.gate, Linear) and model.gate.weight.input_scale is not None
    assert float(model.gate.weight.input_scale) == pytest.approx(float(largest) / 127, rel=1e-3)


def test_half_precision_models() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        dense = block().to(dtype)
        data = [b.to(dtype) for b in batches()]
        model, report = quantized(dense, 0.5, calibration=data)
        assert report.smoothed["gate"] == "folded into norm"
        assert model.down.pre_scale.dtype == dtype
        x = data[0]
        with torch.no_grad():
            expected = dense(x).float()
            off = (model(x).float() - expected).norm() / expected.norm()
        assert off < 0.03, (dtype, off)
