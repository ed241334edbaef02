"""mixed_gemm.Linear as a module: construction, state, casts, copies, gradients, peft."""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from mixed_gemm import Conv2d, Linear, QuantizedTensor, Scheme, quantize_weight, reference
from mixed_gemm.weights import SCHEMES as NAMED

SCHEMES = [
    {"bits": 8, "group_size": -1, "symmetric": True},
    {"bits": 4, "group_size": 32, "symmetric": True},
    {"bits": 4, "group_size": 48, "symmetric": False},
    {"bits": 8, "group_size": 16, "symmetric": False, "zero_mode": "add"},
]


def ids(scheme: dict[str, Any]) -> str:
    return "-".join(str(x) for x in scheme.values())


def make(
    k: int = 80, n: int = 72, bias: bool = True, dtype: torch.dtype | None = None, **scheme: Any
) -> Linear:
    return Linear.from_float(nn.Linear(k, n, bias, dtype=dtype), **(scheme or SCHEMES[1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scheme", SCHEMES, ids=ids)
def test_from_float_computes_with_the_rounded_weight(
    scheme: dict[str, Any], dtype: torch.dtype
) -> None:
    dense = nn.Linear(80, 72, dtype=dtype)
    layer = Linear.from_float(dense, **scheme)
    x = torch.randn(5, 80).to(dtype)
    q, scales, zeros = quantize_weight(
        dense.weight, scheme["bits"], scheme["group_size"], scheme["symmetric"]
    )
    options: dict[str, Any] = {"group_size": scheme["group_size"], "zero_mode": "sub"}
    if scheme.get("zero_mode") == "add":
        assert zeros is not None
        zeros = (-zeros.float() * scales.float()).to(dtype)
        options["zero_mode"] = "add"
    tensors = (x, q, scales, zeros, dense.bias.detach())
    expected = reference.fpA_intB_gemm(*tensors, **options)
    bound = reference.error_bound(*tensors, **options)
    assert reference.error_ratio(layer(x).detach(), expected, bound) <= 1
    assert layer.bias is dense.bias
    # And that weight is near the dense one: half a step, and the rounding of a stored zero.
    step = reference.expand_groups(scales, 80, scheme["group_size"]).abs()
    near = (layer.dequantize(torch.float32).double() - dense.weight.double()).abs()
    assert (near <= (1.1 if scheme["bits"] == 4 else 2.6) * step).all()


def test_linear_is_an_nn_linear_with_a_frozen_quantized_weight() -> None:
    layer = make(dtype=torch.bfloat16)
    assert isinstance(layer, nn.Linear)
    assert (layer.in_features, layer.out_features) == (80, 72)
    assert (layer.weight.dtype, layer.weight.device.type) == (torch.bfloat16, "cpu")
    assert isinstance(layer.weight, QuantizedTensor) and isinstance(layer.weight, nn.Parameter)
    assert layer.weight.shape == (72, 80)
    assert not layer.weight.requires_grad
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]


@pytest.mark.parametrize("bias", [False, True])
def test_empty_linear_computes_its_bias(bias: bool) -> None:
    layer = Linear(64, 48, bias, bits=4, group_size=32, zero_mode="sub", pre_scale=True)
    x = torch.randn(3, 64)
    assert torch.equal(layer(x), torch.zeros(3, 48))


@pytest.mark.parametrize("scheme", SCHEMES, ids=ids)
def test_dequantize_and_to_float_agree(scheme: dict[str, Any]) -> None:
    layer = make(**scheme)
    x = torch.randn(4, 80)
    dense = layer.to_float()
    assert type(dense) is nn.Linear
    assert dense.bias is layer.bias
    assert torch.equal(dense.weight, layer.dequantize())
    torch.testing.assert_close(dense(x), layer(x), rtol=1e-4, atol=1e-5)


def test_to_float_folds_pre_scale() -> None:
    q, scales, _ = quantize_weight(torch.randn(72, 80), 8, 16)
    pre_scale = 0.5 + torch.rand(80)
    layer = Linear.from_quantized(q, scales, pre_scale=pre_scale, bits=8, group_size=16)
    x = torch.randn(4, 80)
    torch.testing.assert_close(layer.to_float()(x), layer(x), rtol=1e-4, atol=1e-4)
    assert "pre_scale=True" in repr(layer)


def test_extra_repr_names_the_scheme() -> None:
    assert repr(make(**SCHEMES[2])) == (
        "Linear(in_features=80, out_features=72, bias=True, scheme=(int4, group 48, "
        "zeros 'sub'), dtype=float32)"
    )
    assert "symmetric" in repr(make())
    assert make(**SCHEMES[2]).scheme == Scheme.weight_only(4, 48, "sub")


def test_reset_parameters_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cannot be re-initialised"):
        make().reset_parameters()


# --- state ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES, ids=ids)
@pytest.mark.parametrize("way", ["torch", "safetensors"])
def test_state_dict_round_trip_is_bitwise(way: str, scheme: dict[str, Any], tmp_path: Path) -> None:
    layer = make(dtype=torch.float16, **scheme)
    path = tmp_path / "state"
    if way == "torch":
        torch.save(layer.state_dict(), path)
        state = torch.load(path, weights_only=True)
    else:
        safetensors.torch.save_file(layer.state_dict(), path)
        state = safetensors.torch.load_file(path)
    s = layer.scheme
    other = Linear(
        80, 72, bits=s.bits, group_size=s.group_size, zero_mode=s.zero_mode, dtype=torch.float16
    )
    other.load_state_dict(state)
    for name, tensor in layer.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    x = torch.randn(3, 80).half()
    assert torch.equal(layer(x), other(x))


def test_meta_construction_then_assign() -> None:
    layer = make(dtype=torch.bfloat16)
    other = Linear(80, 72, bits=4, group_size=32, device="meta", dtype=torch.bfloat16)
    assert all(t.is_meta for t in other.weight.tensors().values())
    other.load_state_dict(layer.state_dict(), assign=True)
    x = torch.randn(3, 80).bfloat16()
    assert torch.equal(layer(x), other(x))
    assert isinstance(other.bias, nn.Parameter)


def test_meta_linear_gives_meta_output() -> None:
    out = make().to("meta")(torch.empty(5, 80, device="meta"))
    assert out.is_meta and out.shape == (5, 72)


def tag(layer: Linear, **changes: Any) -> torch.Tensor:
    text = {**json.loads(bytes(layer.get_extra_state().tolist())), **changes}
    return torch.tensor(list(json.dumps(text).encode()), dtype=torch.uint8)


def put(**changes: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any, Linear], None]:
    """What maps entries of a state."""

    def change(state: Any, layer: Linear) -> None:
        state.update({name: of(state[name]) for name, of in changes.items()})

    return change


BAD_STATES: dict[str, tuple[Any, str]] = {
    "layout version": (
        lambda s, m: s.update(_extra_state=tag(m, layout_version=2)),
        r'checkpoint \{.*"layout_version": 2.*module \{.*"layout_version": 1.*Hint',
    ),
    "scheme": (
        lambda s, m: s.update(_extra_state=tag(m, group_size=16)),
        r'checkpoint \{.*"group_size": 16.*module \{.*"group_size": 32',
    ),
    "tag of no sense": (
        lambda s, m: s.update(_extra_state=torch.zeros(3)),
        "not the layout tag",
    ),
    "tag missing": (lambda s, m: s.pop("_extra_state"), 'Missing key.*"_extra_state"'),
    "b_packed shape": (
        put(b_packed=lambda x: x[:64]),
        r"b_packed must be \(128, 64\), got \(64, 64\)",
    ),
    "b_packed dtype": (
        put(b_packed=lambda x: x.to(torch.int8)),
        "b_packed must be torch.uint8, got torch.int8",
    ),
    "scales shape": (put(scales=torch.t), r"scales must be \(3, 72\), got \(72, 3\)"),
    "scales dtype": (
        put(scales=lambda x: x.to(torch.int32)),
        "scales must be .*float16.*got torch.int32",
    ),
    "mixed dtypes": (
        put(scales=torch.Tensor.half),
        "must share one dtype, got scales torch.float16, bias torch.float32",
    ),
    "bias shape": (put(bias=lambda x: x[:70]), r"bias must be \(72,\), got \(70,\)"),
    "scales missing": (lambda s, m: s.pop("scales"), 'Missing key.*"scales"'),
    "zeros unexpected": (lambda s, m: s.update(zeros=s["scales"]), 'Unexpected key.*"zeros"'),
    "dense": (
        lambda s, m: (s.clear(), s.update(nn.Linear(80, 72).state_dict())),
        'Missing key.*"b_packed".*Unexpected key.*"weight"',
    ),
}


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("name", BAD_STATES)
def test_load_of_a_bad_state_raises_and_changes_nothing(name: str, prefix: bool) -> None:
    change, text = BAD_STATES[name]
    layer, before = make(), None
    state = dict(make().state_dict())
    change(state, layer)
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    target: nn.Module = layer
    if prefix:
        target = nn.ModuleDict({"layer": layer})
        state = {f"layer.{k}": v for k, v in state.items()}
        text = (
            text.replace('"b_', '"layer.b_').replace('"_e', '"layer._e').replace('"w', '"layer.w')
        )
        text = text.replace('key.*"s', 'key.*"layer.s').replace('key.*"z', 'key.*"layer.z')
    with pytest.raises(RuntimeError, match=re.compile(text, re.DOTALL)):
        target.load_state_dict(state)
    if "key" not in text:  # torch copies what it has before it counts the keys
        for key, tensor in layer.state_dict().items():
            assert torch.equal(tensor, before[key]), key
    assert layer(torch.randn(2, 80)).isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["scales", "zeros"])
def test_load_of_a_non_finite_scale_raises_value_error(name: str, value: float) -> None:
    layer = make(**SCHEMES[2])
    state = copy.deepcopy(layer.state_dict())
    state[name][1, 7] = value
    with pytest.raises(ValueError, match=rf"{name} must be finite, got .* at index \(1, 7\)"):
        layer.load_state_dict(state)
    assert layer.scales.isfinite().all()


def test_load_casts_floats_as_torch_does() -> None:
    layer, other = make(), make(dtype=torch.float16)
    other.load_state_dict(layer.state_dict())
    assert other.scales.dtype == torch.float16
    assert torch.equal(other.scales, layer.scales.half())


@pytest.mark.parametrize(
    ("changes", "exception", "text"),
    [
        ({"q": torch.zeros(72, 80)}, RuntimeError, r"q must be int8 \[N, K\], got torch.float32"),
        (
            {"q": torch.full((72, 80), 9, dtype=torch.int8)},
            ValueError,
            r"q must be in -8\.\.7 for bits=4, got 9\.\.9.*subtracting 8",
        ),
        ({"bits": 3}, ValueError, "bits must be 4 or 8, got 3"),
        ({"group_size": 96}, ValueError, "group_size=96, K=80"),
        ({"zeros": torch.zeros(72, 3)}, RuntimeError, r"zeros must be \(3, 72\), got \(72, 3\)"),
        (
            {"bias": torch.zeros(72).half()},
            RuntimeError,
            "bias must be torch.float32 as the weight",
        ),
        ({"pre_scale": torch.ones(72)}, RuntimeError, r"pre_scale must be \(80,\), got \(72,\)"),
        (
            {"scales": torch.full((3, 72), torch.nan)},
            ValueError,
            r"scales must be finite.*\(0, 0\)",
        ),
        ({"zero_mode": "mul", "zeros": torch.zeros(3, 72)}, ValueError, "zero_mode must be one of"),
    ],
)
def test_from_quantized_refuses(
    changes: dict[str, Any], exception: type[Exception], text: str
) -> None:
    valid: dict[str, Any] = {
        "q": torch.zeros(72, 80, dtype=torch.int8),
        "scales": torch.ones(3, 72),
        "bits": 4,
        "group_size": 32,
    }
    Linear.from_quantized(**valid)
    with pytest.raises(exception, match=re.compile(text, re.DOTALL)):
        Linear.from_quantized(**{**valid, **changes})


def test_from_float_group_above_k_names_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"group_size=128, K=80.*Hint: group_size=-1"):
        Linear.from_float(nn.Linear(80, 72), group_size=128)


# --- life as a module --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_cast_keeps_the_packed_weight(dtype: torch.dtype) -> None:
    layer = make(**SCHEMES[2])
    packed = layer.b_packed.clone()
    layer.to(dtype)
    assert layer.b_packed.dtype == torch.uint8
    assert torch.equal(layer.b_packed, packed)
    assert layer.zeros is not None
    assert {layer.scales.dtype, layer.zeros.dtype, layer.bias.dtype, layer.weight.dtype} == {dtype}
    assert layer(torch.randn(2, 80).to(dtype)).dtype == dtype


def test_deepcopy_and_pickle_and_whole_module_save() -> None:
    layer = make(**SCHEMES[2])
    x = torch.randn(2, 80)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    copies = (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        torch.load(buffer, weights_only=False),
    )
    for other in copies:
        assert torch.equal(other(x), layer(x))
        assert other.b_packed.data_ptr() != layer.b_packed.data_ptr()


def test_bias_trains_and_the_rest_does_not() -> None:
    layer = make()
    x = torch.randn(4, 80, requires_grad=True)
    layer(x).square().sum().backward()
    assert layer.bias.grad is not None
    torch.testing.assert_close(
        x.grad, 2 * layer(x).detach() @ layer.dequantize(), rtol=1e-4, atol=1e-5
    )


def test_linear_under_autocast_of_either_dtype() -> None:
    layer, x = make(), torch.randn(3, 80)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype):
            assert layer(x).dtype == dtype


@pytest.mark.parametrize("how", ["plain", "autocast", "vmap", "compile"])
def test_linear_without_grad_equals_with_grad(how: str) -> None:
    # forward() takes a shorter way through the dispatcher when no gradient is recorded.
    layer, x = make(**SCHEMES[2]), torch.randn(3, 80)

    def run() -> torch.Tensor:
        if how == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return layer(x)
        if how == "vmap":
            return torch.vmap(layer)(x)
        if how == "compile":
            return torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        return layer(x)

    want = run().detach()
    with torch.no_grad():
        out = run()
    assert not out.requires_grad
    assert out.dtype == want.dtype
    assert torch.equal(out, want)


def test_wrong_input_dtype_names_the_argument() -> None:
    with pytest.raises(RuntimeError, match=r"mixed_gemm::fpA_intB_gemm: (a|scales) must be"):
        make(dtype=torch.float16)(torch.randn(2, 80).bfloat16())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["w4a16", "w8a8", "convolution"])
def test_float32_is_rounded_on_the_way_as_adapters_need_it(kind: str, dtype: torch.dtype) -> None:
    layer: nn.Module
    if kind == "convolution":
        layer, x = Conv2d.from_float(nn.Conv2d(16, 24, 3).to(dtype)), torch.randn(2, 16, 6, 6)
    else:  # with a bias
        dense, x = nn.Linear(128, 72).to(dtype), torch.randn(2, 128)
        layer = Linear.from_float(dense, kind)
    assert torch.equal(layer(x), layer(x.to(dtype)).float())
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal(layer(x), layer(x.to(dtype)))


# --- peft --------------------------------------------------------------------------------------


def test_peft_lora_trains_on_top() -> None:
    peft = pytest.importorskip("peft")
    model = nn.Sequential(make(80, 64), nn.ReLU(), make(64, 10))
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["0", "2"])
    adapted = peft.get_peft_model(model, config)
    trainable = [name for name, p in adapted.named_parameters() if p.requires_grad]
    assert trainable and all("lora_" in name for name in trainable)

    x, y = torch.randn(32, 80), torch.randn(32, 10)
    optimizer = torch.optim.Adam((p for p in adapted.parameters() if p.requires_grad), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (adapted(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]

    layer = adapted.base_model.model[0]
    wanted = layer.base_layer.dequantize() + layer.get_delta_weight("default").detach()
    merged = adapted.merge_and_unload()  # rounds the sum to the scheme again
    assert type(merged[0]) is Linear
    rounded = Linear.from_float(nn.Linear(80, 64), merged[0].scheme)
    rounded.weight.data = wanted
    assert torch.equal(merged[0].dequantize(), rounded.dequantize())


@pytest.mark.parametrize("name", [*NAMED, "fp8, weight-only"])
@pytest.mark.parametrize("shape", ((2, 71), (2, 73), (3, 0), ()))
def test_inputs_of_another_width_are_refused(name: str, shape: tuple[int, ...]) -> None:
    """Also where the padding of a packed weight has room for them."""
    scheme = NAMED.get(name, Scheme.fp8(None))
    if scheme.group_size > 72:
        scheme = scheme.with_group_size(32)
    module = Linear.from_float(nn.Linear(72, 40), scheme)
    with pytest.raises(ValueError, match=r"K=\d|0-d tensor"):
        module(torch.ones(shape))
