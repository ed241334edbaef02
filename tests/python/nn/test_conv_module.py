"""mixed_gemm.Conv2d as a module, its quantizer, and what quantize_ and save_checkpoint do."""

from __future__ import annotations

import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Conv2d, QuantizedTensor, Scheme, quantize_, quantize_conv_weight, reference
from mixed_gemm.ops.conv_problem import is_channels_last, num_blocks
from mixed_gemm.reference import conv as reference_conv

SCHEMES = [
    {"bits": 8, "block_size": -1, "symmetric": True},
    {"bits": 4, "block_size": 32, "symmetric": True},
    {"bits": 4, "block_size": 48, "symmetric": False},
    {"bits": 8, "block_size": 16, "symmetric": False},
]
GEOMETRIES: dict[str, dict[str, Any]] = {
    "plain": {"kernel_size": 3},
    "all of it": {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
    "valid": {"kernel_size": 3, "padding": "valid"},
    "same": {"kernel_size": (3, 5), "padding": "same", "dilation": 2},
    "same, even": {"kernel_size": (4, 3), "padding": "same"},
    "reflect": {"kernel_size": 3, "padding": 2, "padding_mode": "reflect"},
    "circular": {"kernel_size": 3, "padding": (1, 2), "padding_mode": "circular"},
}


def ids(scheme: dict[str, Any]) -> str:
    return "-".join(str(x) for x in scheme.values())


def make(dtype: torch.dtype | None = None, **scheme: Any) -> Conv2d:
    conv = nn.Conv2d(70, 24, 3, 2, 1, dtype=dtype)
    return Conv2d.from_float(conv, **(scheme or SCHEMES[2]))


# --- quantize_conv_weight ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scheme", SCHEMES, ids=ids)
def test_filter_is_within_a_step(scheme: dict[str, Any], dtype: torch.dtype) -> None:
    weight = (torch.randn(24, 70, 3, 2) + 0.2).to(dtype)
    q, scales, offsets = quantize_conv_weight(weight, **scheme)
    blocks = (num_blocks(70, scheme["block_size"]), 24)
    assert q.shape == weight.shape and q.dtype == torch.int8
    assert scales.shape == blocks and scales.dtype == dtype
    assert (offsets is None) == scheme["symmetric"]
    low = -(2 ** (scheme["bits"] - 1))
    assert int(q.min()) == low and int(q.max()) <= -low - 1
    w = reference_conv.dequantize_filter(q, scales, offsets, block_size=scheme["block_size"])
    step = reference.expand_groups(scales, 70, scheme["block_size"]).abs()[:, :, None, None]
    # Half a step; a whole one at the end of a symmetric range; and the rounding of a stored offset.
    room = (1.02 if scheme["symmetric"] else 0.52) * step
    if offsets is not None:
        stored = reference.expand_groups(offsets, 70, scheme["block_size"])[:, :, None, None]
        room = room + 2 * reference.ROUNDING[dtype][0] * (stored.abs() + 256 * step)
    assert ((w - weight.double()).abs() <= room).all()


@pytest.mark.parametrize("block_size", [-1, 16, 48])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_integers_survive_quantization(symmetric: bool, bits: int, block_size: int) -> None:
    # With the ends of the range in every block (the ragged last one too) the scale is exact.
    low = -(2 ** (bits - 1))
    q = torch.randint(low, -low, (5, 70, 3, 3), dtype=torch.int8)
    q[:, ::16, 0, 0], q[:, ::16, 0, 1] = low, -low - 1
    again, scales, offsets = quantize_conv_weight(q.float() / 4, bits, block_size, symmetric)
    assert torch.equal(again, q)
    assert (scales == 0.25).all()
    assert offsets is None or (offsets == 0).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_constant_filters_are_exact(symmetric: bool) -> None:
    values = torch.tensor([0.0, 1.0, -3.5])
    weight = values[:, None, None, None].expand(3, 20, 2, 2)
    q, scales, offsets = quantize_conv_weight(weight, 4, 16, symmetric)
    w = reference_conv.dequantize_filter(q, scales, offsets, block_size=16)
    assert torch.equal(w.float(), weight)


@pytest.mark.parametrize(
    ("weight", "options", "error", "text"),
    [
        (torch.zeros(2, 3), {}, RuntimeError, r"must be a 4-D .* \[Co, Ci, Kh, Kw\], got \(2, 3\)"),
        (torch.zeros(2, 3, 1, 1).double(), {}, RuntimeError, "float64"),
        (torch.zeros(0, 3, 1, 1), {}, ValueError, r"must not be empty, got \(0, 3, 1, 1\)"),
        (torch.full((1, 3, 1, 1), torch.nan), {}, ValueError, r"finite, got nan at \(0, 0, 0, 0\)"),
        (torch.zeros(2, 40, 1, 1), {"bits": 3}, ValueError, "bits must be 4 or 8, got 3"),
        (torch.zeros(2, 40, 1, 1), {"block_size": 24}, ValueError, "multiple of 16"),
        (torch.zeros(2, 40, 1, 1), {"block_size": 64}, ValueError, "larger than Ci.*Ci=40"),
    ],
)
def test_bad_filter_raises(
    weight: Tensor, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        quantize_conv_weight(weight, **options)


# --- the module --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scheme", SCHEMES, ids=ids)
def test_from_float_computes_with_the_rounded_filter(
    scheme: dict[str, Any], dtype: torch.dtype
) -> None:
    dense = nn.Conv2d(70, 24, 3, 2, 1, dtype=dtype)
    layer = Conv2d.from_float(dense, **scheme)
    x = torch.randn(2, 70, 9, 8).to(dtype)
    tensors = (x, *quantize_conv_weight(dense.weight, **scheme), dense.bias.detach())
    options = {"block_size": scheme["block_size"], "stride": (2, 2), "padding": (1, 1)}
    expected = reference_conv.qconv2d(*tensors, **options)
    bound = reference_conv.error_bound(*tensors, **options)
    assert reference.error_ratio(layer(x).detach(), expected, bound) <= 1
    assert layer.bias is dense.bias
    want = reference_conv.dequantize_filter(*tensors[1:4], block_size=scheme["block_size"])
    torch.testing.assert_close(layer.dequantize(torch.float32).double(), want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("last", [False, True])
def test_conv_is_a_drop_in(geometry: str, last: bool) -> None:
    dense = nn.Conv2d(20, 24, **GEOMETRIES[geometry])
    layer = Conv2d.from_float(dense, 8)
    same = layer.to_float()  # a dense one with the weights that the layer has
    x = torch.randn(2, 20, 11, 12)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    torch.testing.assert_close(layer(x), same(x), rtol=1e-4, atol=1e-5)
    assert is_channels_last(layer(x)) == last
    torch.testing.assert_close(layer(x[0]), same(x[0]), rtol=1e-4, atol=1e-5)
    for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode", "groups"):
        assert getattr(layer, name) == getattr(dense, name), name


def test_conv_is_an_nn_conv2d_with_a_frozen_quantized_weight() -> None:
    layer = make(torch.bfloat16)
    assert isinstance(layer, nn.Conv2d)
    assert isinstance(layer.weight, QuantizedTensor) and not layer.weight.requires_grad
    assert layer.weight.dtype == torch.bfloat16
    assert layer.weight.shape == (layer.out_channels, layer.in_channels, *layer.kernel_size)
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert "bits=4, block_size=48, offsets=True, dtype=bfloat16" in repr(layer)
    assert "stride=(2, 2)" in repr(layer)
    with pytest.raises(RuntimeError, match="cannot be re-initialised"):
        layer.reset_parameters()


@pytest.mark.parametrize("bias", [False, True])
def test_empty_conv_computes_its_bias(bias: bool) -> None:
    layer = Conv2d(64, 48, 3, bias=bias, bits=4, block_size=32, offsets=True)
    assert torch.equal(layer(torch.randn(2, 64, 5, 5)), torch.zeros(2, 48, 3, 3))


@pytest.mark.parametrize(
    ("in_channels", "want"), [(3, -1), (64, -1), (128, -1), (129, 128), (512, 128)]
)
def test_default_block_is_128_or_everything(in_channels: int, want: int) -> None:
    assert Conv2d(in_channels, 8, 1, bits=4).block_size == want
    assert Conv2d.from_float(nn.Conv2d(in_channels, 8, 1)).block_size == want


def test_groups_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"depthwise convolution \(groups=8\).*groups=1"):
        Conv2d(8, 8, 3, groups=8, bits=4)
    grouped = nn.Conv2d(8, 16, 3, groups=2)
    with pytest.raises(ValueError, match=r"grouped convolution \(groups=2\).*Hint: leave it dense"):
        Conv2d.from_float(grouped)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bits": 3}, "bits must be 4 or 8, got 3"),
        ({"block_size": 24}, "block_size must be -1 .* multiple of 16"),
        ({"block_size": 128}, "block_size must not be larger than Ci.*Ci=64"),
        ({"padding_mode": "wrong"}, "padding_mode must be one of"),
    ],
)
def test_constructor_refuses(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Conv2d(64, 8, 3, **options)


def test_from_quantized_refuses() -> None:
    q, scales = torch.zeros(8, 40, 3, 3, dtype=torch.int8), torch.ones(1, 8)
    with pytest.raises(RuntimeError, match=r"q must be int8 \[Co, Ci, Kh, Kw\], got torch.int8"):
        Conv2d.from_quantized(q[0], scales, bits=4)
    with pytest.raises(ValueError, match=r"q must be in -8..7 for bits=4, got 9..9"):
        Conv2d.from_quantized(q + torch.tensor(9, dtype=torch.int8) * (q[:1] == 0), scales, bits=4)
    with pytest.raises(RuntimeError, match=r"scales must be \(1, 8\), got \(2, 8\)"):
        Conv2d.from_quantized(q, torch.ones(2, 8), bits=4)
    with pytest.raises(RuntimeError, match="scales, offsets and bias must share one dtype"):
        Conv2d.from_quantized(q, scales, scales.half(), bits=4)
    with pytest.raises(ValueError, match=r"offsets must be finite, got nan at index \(0, 0\)"):
        Conv2d.from_quantized(q, scales, scales * torch.nan, bits=4)


@pytest.mark.parametrize("way", ["torch.save", "safetensors", "direct"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=ids)
def test_state_dict_round_trip_is_bitwise(way: str, scheme: dict[str, Any], tmp_path: Path) -> None:
    layer = make(torch.float16, **scheme)
    state = layer.state_dict()
    if way == "torch.save":
        torch.save(state, tmp_path / "x.pt")
        state = torch.load(tmp_path / "x.pt", weights_only=True)
    elif way == "safetensors":
        safetensors.torch.save_file(state, tmp_path / "x.safetensors")
        state = safetensors.torch.load_file(tmp_path / "x.safetensors")
    options = {k: v for k, v in scheme.items() if k != "symmetric"}
    empty = Conv2d(70, 24, 3, 2, 1, offsets=not scheme["symmetric"], dtype=torch.float16, **options)
    empty.load_state_dict(state)
    x = torch.randn(1, 70, 7, 7).half()
    assert torch.equal(empty(x), layer(x))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kernel_size": 5}, "of another kind.*kernel_size"),
        ({"bits": 8}, "of another kind"),
        ({"block_size": 16}, r"scales must be \(5, 24\), got \(2, 24\)"),
        ({"out_channels": 100}, r"weight_packed must be \(128, "),
    ],
)
def test_load_of_another_kind_raises_and_changes_nothing(change: dict[str, Any], text: str) -> None:
    settings = {"in_channels": 70, "out_channels": 24, "kernel_size": 3, "block_size": 48}
    other = Conv2d(**{**settings, "offsets": True, **change})
    before = {k: v.clone() for k, v in other.state_dict().items()}
    with pytest.raises(RuntimeError, match=text):
        other.load_state_dict(make().state_dict())
    after = other.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())


def test_load_of_a_bad_scale_or_tag_raises() -> None:
    layer = make()
    state = copy.deepcopy(layer.state_dict())
    state["scales"][1, 2] = torch.inf
    with pytest.raises(ValueError, match=r"scales must be finite, got inf at index \(1, 2\)"):
        layer.load_state_dict(state)
    tag = json.loads(bytes(layer.get_extra_state().tolist()))
    assert tag["kernel_size"] == [3, 3] and tag["block_size"] == 48 and tag["offsets"] is True
    state = {**layer.state_dict(), "_extra_state": torch.tensor([1, 2], dtype=torch.uint8)}
    with pytest.raises(RuntimeError, match=r"not the layout tag of a mixed_gemm\.Conv2d"):
        layer.load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cast_keeps_the_packed_filter(dtype: torch.dtype) -> None:
    layer = make()
    packed = layer.weight_packed.clone()
    layer.to(dtype)
    assert torch.equal(layer.weight_packed, packed)
    assert layer.scales.dtype == layer.bias.dtype == dtype
    assert layer(torch.randn(1, 70, 5, 5).to(dtype)).dtype == dtype


def test_deepcopy_pickle_and_meta() -> None:
    layer = make()
    x = torch.randn(1, 70, 5, 5)
    buffer = io.BytesIO(pickle.dumps(layer))
    for other in (copy.deepcopy(layer), pickle.load(buffer)):
        assert torch.equal(other(x), layer(x))
    meta = Conv2d(70, 24, 3, 2, 1, block_size=48, offsets=True, device="meta")
    assert meta(x.to("meta")).shape == layer(x).shape
    meta.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(meta(x), layer(x))


def test_autocast_and_training_of_the_bias() -> None:
    layer = make()
    x = torch.randn(1, 70, 5, 5, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    layer(x).sum().backward()
    assert x.grad is not None and layer.bias.grad is not None
    torch.testing.assert_close(layer.bias.grad, torch.full((24,), 9.0))


# --- quantize_ and save_checkpoint -------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.wide = nn.Conv2d(32, 160, 1)
        self.tail = nn.Conv2d(160, 16, 3)
        self.lazy = nn.ConvTranspose2d(16, 16, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depthwise(self.stem(x).relu())
        x = self.lazy(self.tail(self.wide(x).relu()))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


def test_quantize_takes_convolutions_along() -> None:
    model = Net()
    x = torch.randn(2, 3, 16, 16)
    want = model(x)
    report = quantize_(model, bits=8, group_size=16, skip=())
    assert report.quantized == ("stem", "wide", "tail", "head")
    assert set(report.skipped) == {"depthwise", "lazy"}
    assert "4 dimensions of a ConvTranspose2d" in report.skipped["lazy"]
    assert "depthwise convolution (groups=32)" in report.skipped["depthwise"]
    assert "depthwise: is a depthwise" in str(report)
    blocks = {name: getattr(model, name).block_size for name in ("stem", "wide", "tail")}
    assert blocks == {"stem": -1, "wide": -1, "tail": 128}
    assert isinstance(model.tail, Conv2d) and type(model.depthwise) is nn.Conv2d
    assert (model(x) - want).norm() < 0.03 * want.norm()
    weights = [model.get_submodule(name).weight for name in report.quantized]
    assert report.bytes_after == sum(x.stored_bytes for x in weights)
    again = quantize_(model, bits=8, group_size=16, skip=())
    assert again.quantized == ()
    assert again.skipped["tail"] == "quantized already"


def test_quantize_options_for_convolutions() -> None:
    model = Net()
    quantize_(
        model,
        lambda name, layer: Scheme.weight_only(
            8 if isinstance(layer, nn.Conv2d) else 4,
            16 if layer.weight.shape[1] >= 16 else -1,
            "sub",
        ),
        skip=("stem",),
    )
    assert type(model.stem) is nn.Conv2d
    assert (model.wide.block_size, model.wide.bits) == (16, 8)
    assert model.tail.offsets is not None
    assert model.head.bits == 4


def test_quantize_names_the_convolution_that_does_not_fit() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"stem: block_size must not be larger than Ci.*Ci=3"):
        quantize_(model, group_size=16, block_size=16)
    assert type(model.tail) is nn.Conv2d


def test_quantize_w8a8_leaves_convolutions() -> None:
    model = Net()
    report = quantize_(model, scheme="w8a8", skip=())
    assert report.quantized == ("head",)
    for name in ("stem", "wide", "tail"):
        assert "no form of the scheme" in report.skipped[name]
        assert "activations='static'" in report.skipped[name]


def test_quantize_of_a_bare_convolution_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"itself an nn.Conv2d.*mixed_gemm.Conv2d.from_float"):
        quantize_(nn.Conv2d(3, 4, 3))


def test_quantize_leaves_subclassed_and_hooked_convolutions() -> None:
    class Mine(nn.Conv2d):
        pass

    hooked = nn.Conv2d(3, 4, 3)
    hooked.register_forward_hook(lambda *_: None)
    report = quantize_(nn.Sequential(Mine(3, 4, 3), hooked))
    assert report.skipped["0"] == "is a Mine, not exactly nn.Conv2d"
    assert "hooks" in report.skipped["1"]


def test_quantize_on_meta_then_load() -> None:
    model = nn.Sequential(nn.Conv2d(40, 8, 3), nn.ReLU())
    with torch.device("meta"):
        empty = nn.Sequential(nn.Conv2d(40, 8, 3), nn.ReLU())
    quantize_(model)
    quantize_(empty)
    empty.load_state_dict(model.state_dict(), assign=True)
    x = torch.randn(1, 40, 5, 5)
    assert torch.equal(empty(x), model(x))


def test_save_checkpoint_writes_convolutions_dense(tmp_path: Path) -> None:
    model = Net()
    quantize_(model, group_size=16, block_size=16, skip=("stem",))
    mixed_gemm.save_checkpoint(model, tmp_path / "saved")
    checkpoint = mixed_gemm.open_checkpoint(tmp_path / "saved")
    assert list(checkpoint.layers) == ["head"]
    assert isinstance(model.tail, Conv2d)
    assert torch.equal(checkpoint.tensor("tail.weight"), model.tail.dequantize())
    assert torch.equal(checkpoint.tensor("tail.bias"), model.tail.bias)
    assert not [name for name in checkpoint.tensors if "weight_packed" in name]


def test_its_dense_forms_are_contiguous_as_the_weight_says() -> None:
    """torch's pruning views a dense weight as flat, and files take nothing else."""
    layer = Conv2d.from_float(nn.Conv2d(16, 8, 3))
    assert layer.weight.is_contiguous()
    assert layer.weight.dequantize().is_contiguous() and layer.to_float().weight.is_contiguous()
    x = torch.randn(2, 16, 5, 5)
    before = layer(x)
    nn.utils.convert_conv2d_weight_memory_format(layer, torch.channels_last)
    assert isinstance(layer.weight, mixed_gemm.QuantizedTensor)
    assert torch.equal(layer(x), before)


@pytest.mark.parametrize("channels", (19, 21, 32))
@pytest.mark.parametrize("bits", (4, 8))
def test_images_of_other_channels_are_refused(bits: int, channels: int) -> None:
    """Also where the padding of a packed filter has room for them."""
    module = Conv2d.from_float(nn.Conv2d(20, 24, 3), bits=bits)
    for shape in ((2, channels, 6, 6), (channels, 6, 6)):
        with pytest.raises(ValueError, match=r"Conv2d: input must be \[N, Ci=20, H, W\], got"):
            module(torch.ones(shape))
