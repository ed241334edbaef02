"""``Int8Conv2d``: what it computes beside plain arithmetic on its parts, what calibration gives it,
state, gradients, graphs."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Int8Conv2d
from mixed_gemm.nn import FusedSequential
from mixed_gemm.reference import conv as reference
from mixed_gemm.weights import Int8ConvWeight

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def drawn(seed: int) -> tuple[Int8Conv2d, nn.Conv2d, Tensor]:
    """A layer of drawn geometry and dtype, what it was made of, and images for it."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype = draw.choice(DTYPES)
    conv = nn.Conv2d(
        draw.choice([1, 3, 16, 33]), draw.choice([1, 8, 20]), draw.choice([1, 3, (2, 3)]),
        stride=draw.choice([1, 2]), padding=draw.choice([0, 1, (1, 0)]),
        dilation=draw.choice([1, 2]), bias=draw.random() < 0.7,
        padding_mode=draw.choice(["zeros", "zeros", "reflect"]),
    ).to(dtype)  # fmt: skip
    x = (draw.uniform(0.1, 30) * (torch.randn(2, conv.in_channels, 9, 8) + 0.3)).to(dtype)
    if draw.random() < 0.5:
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        y = conv(x)
    ranges = [(0.9 * float(v.min()), 0.9 * float(v.max())) for v in (x, y)]
    mode = draw.choice(["static", "static_azp"])
    made = Int8Conv2d.from_float(conv, mode, input_range=ranges[0], output_range=ranges[1])
    return made, conv, x


def by_hand(layer: Int8Conv2d, x: Tensor) -> Tensor:
    """The same of the oracle of the op, from the parts."""
    w, mode = layer.weight, "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padding: Any = layer.padding
    if mode != "constant":
        x, padding = nn.functional.pad(x, layer._reversed_padding_repeated_twice, mode), 0
    integers = (x.double() / w.input_scale.double()).round() + w.input_azp
    # The op rounds x * (1 / scale) in float32: where that is a tie, either integer will do.
    q = mixed_gemm.quantize_per_tensor(x.contiguous(), w.input_scale, w.input_azp)
    assert (q - integers.clamp(-128, 127)).abs().max() <= 1
    out = reference.qconv2d_int8(
        q, w.filters(), w.weight_scale, None if layer.bias is None else layer.bias.float(),
        input_scale=w.input_scale.item(), input_zero_point=int(w.input_azp),
        output_scale=w.output_scale.item(), output_zero_point=int(w.output_azp),
        stride=layer.stride, padding=padding, dilation=layer.dilation,
    )  # fmt: skip
    return ((out.float() - w.output_azp) * w.output_scale).to(x.dtype)


@pytest.mark.parametrize("seed", range(16))
def test_is_the_oracle_of_the_op_between_two_roundings(seed: int) -> None:
    layer, conv, x = drawn(seed)
    found = layer(x)
    assert torch.equal(found, by_hand(layer, x)) and found.dtype == x.dtype
    assert found.stride() == conv(x).stride()
    # A tenth of either range is cut off, the rest is a few steps away.
    dense = conv(x)
    inside = (dense > 0.9 * dense.min()) & (dense < 0.9 * dense.max())
    error = (found - dense)[inside].float().norm() / dense.float().norm()
    assert error < 0.2
    assert torch.equal(layer(x[0]), found[0]) and layer(x[:0]).shape == conv(x[:0]).shape


def net() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2), nn.ReLU6(),
        nn.Conv2d(8, 8, 1, groups=2), nn.Flatten(), nn.Linear(128, 10),
    ).eval()  # fmt: skip


def images(count: int = 4, seed: int = 6) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(count, 8, 10, 10)


def quantized(mode: str = "static", **options: Any) -> tuple[nn.Sequential, mixed_gemm.Report]:
    model = net()
    options = {"calibration": [images(), images(seed=7)], "progress": False, **options}
    return model, mixed_gemm.quantize_(model, "w8a8", activations=mode, **options)


@pytest.mark.parametrize("mode", ["static", "static_azp"])
def test_quantize_takes_convolutions_with_static_activations(mode: str) -> None:
    model, report = quantized(mode)
    assert report.quantized == ("0", "2", "6")
    assert "grouped convolution" in report.skipped["4"]
    assert type(model[0]) is type(model[2]) is Int8Conv2d and type(model[6]) is mixed_gemm.Linear
    dense = net()
    seen = torch.cat([images(), images(seed=7)])
    with torch.no_grad():
        hidden, want = dense[0](seen), dense(seen)
        error = (model(seen) - want).norm() / want.norm()
    low, high = (float(x) for x in hidden.aminmax())
    weight = model[0].weight
    assert weight.output_scale.item() == pytest.approx((high - low) / 255, rel=1e-5)
    assert weight.input_scale.item() == pytest.approx(
        float(seen.abs().max()) / 127
        if mode == "static"
        else float(seen.max() - seen.min()) / 255, rel=1e-5
    )  # fmt: skip
    assert (weight.input_azp != 0).item() == (mode == "static_azp")
    assert error < 0.04


def test_calibration_is_needed_and_must_reach_every_layer() -> None:
    with pytest.raises(ValueError, match="activations='static' needs calibration"):
        quantized(calibration=None)

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    model = Half()
    with pytest.raises(ValueError, match="calibration never reached unused"):
        mixed_gemm.quantize_(model, "w8a8", activations="static", calibration=[images()])
    assert type(model.used) is nn.Conv2d
    with pytest.raises(ValueError, match="the input of used holds NaN or Inf"):
        mixed_gemm.quantize_(
            model, "w8a8", activations="static", calibration=[images() / 0], skip="unused"
        )


def test_relu_runs_in_the_kernel_and_the_others_do_not() -> None:
    model, report = quantized(fuse_activations=True)
    assert type(model) is FusedSequential and report.fused == {"0": "relu"}
    apart = nn.Sequential(*model)
    x = 3 * images()
    with torch.no_grad():
        assert torch.equal(model(x), apart(x)) and torch.equal(model[0].activated(x, "relu"),
                                                               torch.relu(model[0](x)))  # fmt: skip
    with pytest.raises(ValueError, match="activation must be identity or relu"):
        model[0].activated(x, "relu6")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_and_exports_as_one_graph(backend: str) -> None:
    model, _ = quantized(fuse_activations=True)
    x = images(3)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
        assert torch.equal(torch.export.export(model, (x,)).module()(x), model(x))
    found, want = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(found).square().sum().backward()
    model(want).square().sum().backward()
    torch.testing.assert_close(found.grad, want.grad)


def test_gradients_pass_straight_through() -> None:
    for seed in range(4):
        layer, conv, x = drawn(seed)
        if x.dtype != torch.float32:
            layer, conv, x = layer.float(), conv.float(), x.float()
        conv.weight.data = layer.dequantize()
        seed_of_output = torch.randn_like(conv(x))
        grads = []
        for module in (layer, conv):
            a = x.clone().requires_grad_()
            module.zero_grad()
            module(a).backward(seed_of_output)
            grads.append([a.grad, None if conv.bias is None else module.bias.grad.clone()])
        for found, want in zip(*grads, strict=True):
            if want is not None:
                torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


def test_state_goes_into_another_module_and_through_copies() -> None:
    model, _ = quantized("static_azp")
    x, state = images(), model.state_dict()
    want = model(x)
    fresh = net()
    fresh[0] = Int8Conv2d(8, 16, 3, padding=1, activations="static_azp")
    fresh[2] = Int8Conv2d(16, 8, 3, stride=2, activations="static_azp", device="meta")
    fresh[6] = mixed_gemm.Linear(128, 10, scheme="w8a8", activations="static_azp")
    fresh.load_state_dict(state, assign=True)
    for twin in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), want)
    other, _ = quantized("static_azp", calibration=[9 * images()])
    assert not torch.equal(other(x), want)
    other.load_state_dict(state)
    assert torch.equal(other(x), want)


def has_its_sums(layer: Int8Conv2d) -> bool:
    weight = layer.weight
    return torch.equal(weight.weight_sums, weight.weight_int8.double().sum((1, 2, 3)).int())


def test_sums_of_the_filter_are_its_own_and_in_no_state() -> None:
    model, _ = quantized("static_azp")
    layer, x = model[0], images()
    state = layer.state_dict()
    # What was written before there were sums loads: the names are the same.
    assert set(state) == {
        "weight_int8", "weight_scale", "input_scale", "input_azp", "output_scale", "output_azp",
        "bias", "_extra_state",
    }  # fmt: skip
    other = quantized("static_azp")[0][0]
    other.weight.data = torch.randn(other.weight.shape)
    assert has_its_sums(layer) and has_its_sums(other)
    twins: list[Any] = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), other]
    other.load_state_dict(state)
    for made, assign in (("meta", True), ("cpu", False)):
        twin = Int8Conv2d(8, 16, 3, padding=1, activations="static_azp", device=made)
        assert twin.weight.weight_sums.is_meta == (made == "meta")
        twin.load_state_dict(state, assign=assign)
        twins.append(twin)
    for twin in twins:
        assert has_its_sums(twin) and torch.equal(twin(x), layer(x))
    with torch.no_grad():
        layer.weight.mul_(-1).add_(0.1)
    assert has_its_sums(layer)
    before = layer(x)
    layer.weight.weight_sums.add_(10_000)
    assert not torch.equal(layer(x), before)


def test_states_that_do_not_fit_are_refused() -> None:
    model, _ = quantized("static")
    layer = model[0]
    with pytest.raises(RuntimeError, match="the packed weight is of another kind"):
        Int8Conv2d(8, 16, 3, padding=1, activations="static_azp").load_state_dict(
            layer.state_dict()
        )
    for name, value, text in (
        ("output_scale", torch.tensor(0.0), "output_scale must be positive"),
        ("input_scale", torch.tensor(torch.nan), "input_scale must be finite"),
        ("output_azp", torch.tensor(200, dtype=torch.int32), "output_azp must be in -128..127"),
    ):
        with pytest.raises(ValueError, match=text):
            layer.load_state_dict({**layer.state_dict(), name: value})
    with pytest.raises(ValueError, match="must be 'static' or 'static_azp'"):
        Int8Conv2d(8, 16, 3, activations="dynamic")
    with pytest.raises(ValueError, match="Ci \\* Kh \\* Kw must be at most 65793"):
        Int8Conv2d(8192, 16, 3, activations="static")
    with pytest.raises(ValueError, match="input must be a positive scale"):
        q = torch.zeros(4, 3, 1, 1, dtype=torch.int8)
        Int8ConvWeight.from_quantized(
            q, torch.ones(4), scheme=layer.scheme, input=(0.0, 0), output=(1.0, 0)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_of_any_dtype_and_autocast(dtype: torch.dtype) -> None:
    model, _ = quantized()
    x = images()
    assert model[0](x.to(dtype)).dtype == dtype
    with torch.autocast("cpu", dtype):
        found = model[0](x)
    assert torch.equal(found, model[0](x).to(dtype))
    torch.testing.assert_close(model[0].to(dtype)(x), model[0](x))
    with pytest.raises(TypeError, match="float64"):
        model[0](x.double())


def test_torch_sees_a_dense_filter() -> None:
    model, _ = quantized()
    layer = model[0]
    dense = layer.to_float()
    assert type(dense) is nn.Conv2d and layer.weight.shape == dense.weight.shape
    torch.testing.assert_close(layer.weight + 0, dense.weight)
    with torch.no_grad():
        layer.weight.copy_(2 * dense.weight)
    torch.testing.assert_close(layer.dequantize(), 2 * dense.weight, rtol=1e-2, atol=2e-3)


def test_saved_as_the_dense_convolution(tmp_path: Any) -> None:
    model, _ = quantized()
    mixed_gemm.save_checkpoint(model, tmp_path)
    found = mixed_gemm.open_checkpoint(tmp_path)
    assert list(found.layers) == ["6"]
    assert torch.equal(found.tensor("0.weight"), model[0].dequantize())
