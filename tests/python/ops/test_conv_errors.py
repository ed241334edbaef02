"""Bad inputs of the convolutions and the block GEMM: op, argument, what was expected with numbers,
what came. On fake tensors the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems.conv import ConvCase, make
from torch._subclasses.fake_tensor import FakeTensorMode

import mixed_gemm

CASE = ConvCase(2, 40, 24, dtype=torch.float16, block_size=16, offsets=True, bias=True)
HALF, FLOAT = "float16", "float32"
INT8, BYTE, WORD = "int8", "uint8", "int32"


def conv_arguments() -> dict[str, Any]:
    p = make(CASE)
    return {
        "input": p.input,
        "weight_packed": p.packed,
        "scales": p.scales,
        "offsets": p.offsets,
        "bias": p.bias,
        "bits": 4,
        "kernel_size": (3, 3),
        **p.options(),
    }


def int8_arguments() -> dict[str, Any]:
    return {
        "input": torch.zeros(2, 6, 5, 5, dtype=torch.int8),
        "weight": torch.zeros(8, 6, 3, 3, dtype=torch.int8),
        "weight_scale": torch.ones(8),
        "bias": torch.zeros(8),
        "weight_sums": torch.zeros(8, dtype=torch.int32),
        "input_scale": 0.1,
        "input_zero_point": 3,
        "output_scale": 0.2,
        "output_zero_point": -4,
    }


def block_arguments() -> dict[str, Any]:
    return {
        "a": torch.zeros(3, 80),
        "b": torch.zeros(24, 80, dtype=torch.int8).t(),
        "scale_b": torch.ones(3, 24),
        "offset_b": torch.zeros(3, 24),
        "bias": torch.zeros(24),
        "b_sums": torch.zeros(3, 24, dtype=torch.int32),
        "block_size": 32,
    }


OPS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[..., Any]]] = {
    "qconv2d": (conv_arguments, mixed_gemm.qconv2d),
    "qconv2d_int8": (int8_arguments, mixed_gemm.qconv2d_int8),
    "block_quant_gemm": (block_arguments, mixed_gemm.block_quant_gemm),
}

# (op, argument, its new value or a function of the valid one, text)
TENSORS: list[tuple[str, str, Any, str]] = [
    ("qconv2d", "input", lambda x: x[0], r"input must be 4-d \(N, Ci, H, W\), got \(40, 7, 6\)"),
    ("qconv2d", "input", lambda x: x.double(), "input must be float16, bfloat16 or float32, got"),
    ("qconv2d", "input", lambda x: x.float(), f"scales must be {FLOAT}.*got {HALF}"),
    ("qconv2d", "input", lambda x: x[:, :30], r"scales must be .*\(2, 24\), got \(3, 24\); Ci=30"),
    ("qconv2d_int8", "input", lambda x: x[:, :0], "weight must be .* with Ci=0 of input"),
    (
        "qconv2d",
        "weight_packed",
        lambda x: x[:, 1:],
        r"weight_packed must be \(round_up\(Co, 64\), round_up\(K, 64\) \* bits / 8\) = "
        r"\(64, 288\), got \(64, 287\).*Co=24.*Ci=40",
    ),
    ("qconv2d", "weight_packed", lambda x: x.char(), f"weight_packed must be {BYTE}.*got {INT8}"),
    ("qconv2d", "scales", lambda x: x[0], "scales must be 2-d"),
    ("qconv2d", "scales", lambda x: x.float(), f"scales must be {HALF}.*got {FLOAT}"),
    (
        "qconv2d",
        "scales",
        lambda x: x[:2],
        r"scales must be \(ceil\(Ci/block_size\), Co\) = \(3, 24\), got \(2, 24\); Ci=40, "
        "block_size=16",
    ),
    ("qconv2d", "offsets", lambda x: x.t(), r"offsets must be .*\(3, 24\), got \(24, 3\).*transp"),
    ("qconv2d", "offsets", lambda x: x.float(), f"offsets must be {HALF}.*got {FLOAT}"),
    ("qconv2d", "bias", lambda x: x[1:], r"bias must be \(Co,\) = \(24,\), got \(23,\)"),
    ("qconv2d", "bias", lambda x: x.float(), f"bias must be {HALF}.*got {FLOAT}"),
    ("qconv2d_int8", "input", lambda x: x[0], "input must be 4-d"),
    ("qconv2d_int8", "input", lambda x: x.float(), f"input must be {INT8}.*got {FLOAT}"),
    ("qconv2d_int8", "weight", lambda x: x[0], r"weight must be 4-d \(Co, Ci, Kh, Kw\)"),
    ("qconv2d_int8", "weight", lambda x: x.byte(), f"weight must be {INT8}.*got {BYTE}"),
    (
        "qconv2d_int8",
        "weight",
        lambda x: x[:, :3],
        r"weight must be .* with Ci=6 of input, got \(8, 3, 3, 3\).*groups are not supported",
    ),
    ("qconv2d_int8", "weight_scale", lambda x: x.half(), f"weight_scale must be {FLOAT}"),
    ("qconv2d_int8", "weight_scale", lambda x: x[1:], r"weight_scale must be \(Co,\) = \(8,\)"),
    ("qconv2d_int8", "bias", lambda x: x[1:], r"bias must be \(Co,\) = \(8,\), got \(7,\)"),
    ("qconv2d_int8", "bias", lambda x: x.int(), f"bias must be {FLOAT}"),
    ("block_quant_gemm", "a", lambda x: x.char(), "a must be float16, bfloat16 or float32, got"),
    ("block_quant_gemm", "a", torch.tensor(1.0), r"a must be \(..., K\), got a 0-d tensor"),
    ("block_quant_gemm", "b", lambda x: x.half(), f"b must be {INT8}.*got {HALF}"),
    (
        "block_quant_gemm",
        "b",
        lambda x: x.t(),
        r"b must be \(K, N\) with K=80 of a, got \(24, 80\).*transposed",
    ),
    ("block_quant_gemm", "b", lambda x: x.contiguous(), r"b must be column-major.*\(24, 1\)"),
    ("block_quant_gemm", "scale_b", lambda x: x.half(), f"scale_b must be {FLOAT}.*got {HALF}"),
    (
        "block_quant_gemm",
        "scale_b",
        lambda x: x[1:],
        r"scale_b must be \(ceil\(K/block_size\), N\) = \(3, 24\), got \(2, 24\); K=80",
    ),
    ("block_quant_gemm", "offset_b", lambda x: x.t(), r"offset_b must be .*\(3, 24\).*transp"),
    ("block_quant_gemm", "bias", lambda x: x[1:], r"bias must be \(N,\) = \(24,\), got \(23,\)"),
    ("block_quant_gemm", "b_sums", lambda x: x.long(), f"b_sums must be {WORD}.*got int64"),
    (
        "block_quant_gemm",
        "b_sums",
        lambda x: x[:2],
        r"b_sums must be \(ceil\(K/block_size\), N\) = \(3, 24\), got \(2, 24\); K=80",
    ),
    ("block_quant_gemm", "b_sums", lambda x: x.t(), r"b_sums must be .*\(3, 24\).*transp"),
    ("qconv2d_int8", "weight_sums", lambda x: x.float(), f"weight_sums must be {WORD}.*{FLOAT}"),
    (
        "qconv2d_int8",
        "weight_sums",
        lambda x: x[1:],
        r"weight_sums must be \(Co,\) = \(8,\), got \(7,\)",
    ),
]

SCALARS: list[tuple[str, str, Any, str]] = [
    ("qconv2d", "bits", 5, "bits must be 4 or 8, got 5"),
    ("qconv2d", "block_size", 24, "block_size must be -1 .* multiple of 16.*block_size=24, Ci=40"),
    ("qconv2d", "block_size", 0, "block_size must be -1 .* multiple of 16"),
    ("qconv2d", "block_size", 48, "block_size must not be larger than Ci.*block_size=48, Ci=40"),
    ("qconv2d", "kernel_size", (0, 3), r"kernel_size must be in 1..2147483647, got \(0, 3\)"),
    ("qconv2d", "stride", (1, 0), r"stride must be in 1..2147483647, got \(1, 0\)"),
    ("qconv2d", "padding", (-1, 0), r"padding must be in 0..2147483647, got \(-1, 0\)"),
    ("qconv2d", "dilation", 0, r"dilation must be in 1..2147483647, got \(0, 0\)"),
    ("qconv2d", "activation", "tanh", "activation must be one of .*identity.*relu6.*got '?tanh"),
    ("qconv2d_int8", "stride", 0, r"stride must be in 1..2147483647, got \(0, 0\)"),
    ("qconv2d_int8", "input_scale", 0.0, "input_scale must be positive and finite, got 0"),
    ("qconv2d_int8", "input_scale", float("nan"), "input_scale must be positive and finite"),
    ("qconv2d_int8", "output_scale", float("inf"), "output_scale must be positive and finite"),
    ("qconv2d_int8", "input_zero_point", 128, "input_zero_point must be in -128..127, got 128"),
    ("qconv2d_int8", "output_zero_point", -129, "output_zero_point must be in -128..127, got -129"),
    ("qconv2d_int8", "clamp_min", 300, "clamp_min must be in -128..127, got 300"),
    ("qconv2d_int8", "clamp_max", -200, "clamp_max must be in -128..127, got -200"),
    ("block_quant_gemm", "block_size", 8, "block_size must be -1 .* multiple of 16.*K=80"),
    ("block_quant_gemm", "block_size", 96, "block_size must not be larger than K.*K=80"),
    ("block_quant_gemm", "activation", "tanh", "activation must be one of .*got '?tanh"),
]


def changed(op: str, name: str, change: Any) -> dict[str, Any]:
    arguments = OPS[op][0]()
    arguments[name] = change(arguments[name]) if callable(change) else change
    return arguments


def raw(op: str, arguments: dict[str, Any]) -> Any:
    arguments = {
        name: [value, value] if name in ("dilation", "stride") and isinstance(value, int) else value
        for name, value in arguments.items()
    }
    return getattr(torch.ops.mixed_gemm, op)(**arguments)


@pytest.mark.parametrize(("op", "name", "change", "text"), TENSORS)
def test_bad_tensor_raises_by_name(op: str, name: str, change: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=f"mixed_gemm::{op}: {text}"):
        OPS[op][1](**changed(op, name, change))
    assert OPS[op][1](**OPS[op][0]()).isfinite().all()


@pytest.mark.parametrize(("op", "name", "change", "text"), TENSORS)
def test_bad_tensor_raises_on_fake_tensors_too(op: str, name: str, change: Any, text: str) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = {
            k: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v
            for k, v in changed(op, name, change).items()
        }
        with pytest.raises(RuntimeError, match=f"mixed_gemm::{op}: {text}"):
            OPS[op][1](**fake)


@pytest.mark.parametrize(("op", "name", "value", "text"), SCALARS)
def test_bad_scalar_raises_value_error(op: str, name: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"mixed_gemm::{op}: {text}"):
        OPS[op][1](**changed(op, name, value))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("op", "name", "value", "text"), SCALARS)
def test_bad_scalar_raises_runtime_error_in_the_raw_op(
    op: str, name: str, value: Any, text: str, device: str
) -> None:
    arguments = {
        k: v.to(device) if isinstance(v, torch.Tensor) else v
        for k, v in changed(op, name, value).items()
    }
    with pytest.raises(RuntimeError, match=f"mixed_gemm::{op}: {text}"):
        raw(op, arguments)


@pytest.mark.parametrize("name", ["kernel_size", "stride", "padding", "dilation"])
@pytest.mark.parametrize("value", [(1, 1, 1), True])
def test_a_setting_that_is_no_pair_raises_value_error(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an int or two"):
        mixed_gemm.qconv2d(**{**conv_arguments(), name: value})


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_kernel_larger_than_the_padded_image(device: str) -> None:
    arguments = {
        k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in conv_arguments().items()
    }
    text = (
        r"qconv2d: kernel_size must not be larger than the padded image: it spans (9, 9) pixels, "
        r"the image has (9, 8); kernel_size=(3, 3), dilation=(4, 4), padding=(1, 1)"
    )
    with pytest.raises(RuntimeError, match=re.escape(text)):
        mixed_gemm.qconv2d(**{**arguments, "dilation": 4})


@pytest.mark.parametrize("fake", [False, True])
def test_images_of_two_to_the_31_elements_are_refused_with_the_count(fake: bool) -> None:
    # Expanded, so that nothing of that size exists.
    q = torch.zeros(1, 8, 1, 1, dtype=torch.int8)
    packed, scales = mixed_gemm.pack_conv_weights(q, 8), torch.ones(1, 1)
    weight, int8_scales = torch.zeros(2, 8, 1, 1, dtype=torch.int8), torch.ones(1)
    text = r"input must have fewer than 2\^31 = 2147483648 elements, got 2147483648 of"
    scalars: dict[str, Any] = {"input_scale": 1.0, "output_scale": 1.0}
    scalars.update(input_zero_point=0, output_zero_point=0)
    with FakeTensorMode(allow_non_fake_inputs=True) if fake else torch.no_grad():
        image = torch.zeros(1, 8, 1, 1).expand(1, 8, 2**14, 2**14)
        with pytest.raises(RuntimeError, match=f"qconv2d: {text}"):
            mixed_gemm.qconv2d(image, packed, scales, bits=8, kernel_size=1)
        with pytest.raises(RuntimeError, match=f"qconv2d_int8: {text}"):
            mixed_gemm.qconv2d_int8(image.to(torch.int8), weight, int8_scales, **scalars)


def test_outputs_of_two_to_the_31_elements_are_refused_with_the_count() -> None:
    q = torch.zeros(64, 1, 1, 1, dtype=torch.int8)
    packed, scales = mixed_gemm.pack_conv_weights(q, 8), torch.ones(1, 64)
    image = torch.zeros(1, 1, 1, 1).expand(1, 1, 2**13, 2**13)
    text = r"the output must have fewer than 2\^31 = 2147483648 elements, got 4294967296 of"
    with pytest.raises(RuntimeError, match=text):
        mixed_gemm.qconv2d(image, packed, scales, bits=8, kernel_size=1)
    # Counted without wrapping: 2^31 - 1 pixels each way.
    text = "the output must have fewer .* got 4611686014132420609 of .1, 1, 2147483647, 2147483647."
    with pytest.raises(RuntimeError, match=text):
        mixed_gemm.qconv2d(
            image[..., :1, :1],
            packed,
            scales[:, :1],
            bits=8,
            kernel_size=1,
            padding=2**30 - 1,
        )


def test_int8_filters_whose_sums_could_wrap_are_refused() -> None:
    image = torch.zeros(1, 65794, 1, 1, dtype=torch.int8)
    weight = torch.zeros(1, 65794, 1, 1, dtype=torch.int8)
    with pytest.raises(RuntimeError, match=r"Ci \* Kh \* Kw must be at most 65793.*got K=65794"):
        mixed_gemm.qconv2d_int8(
            image,
            weight,
            torch.ones(1),
            input_scale=1.0,
            input_zero_point=0,
            output_scale=1.0,
            output_zero_point=0,
        )


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_images_without_channels_are_refused(device: str) -> None:
    arguments = {**conv_arguments(), "block_size": -1}
    tensors = {k: v.to(device) for k, v in arguments.items() if isinstance(v, torch.Tensor)}
    arguments.update(tensors, input=tensors["input"][:, :0])
    with pytest.raises(RuntimeError, match="must have channels, got Ci=0, Co=24"):
        mixed_gemm.qconv2d(**arguments)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_pack_conv_weights_refuses(device: str) -> None:
    pack = mixed_gemm.pack_conv_weights
    with pytest.raises(ValueError, match="pack_conv_weights: bits must be 4 or 8, got 2"):
        pack(torch.zeros(1, 1, 1, 1, dtype=torch.int8), 2)
    with pytest.raises(RuntimeError, match=r"q must be 4-d \(Co, Ci, Kh, Kw\), got \(3, 4\)"):
        pack(torch.zeros(3, 4, dtype=torch.int8, device=device), 4)
    with pytest.raises(RuntimeError, match=f"q must be {INT8}.*got {FLOAT}"):
        pack(torch.zeros(3, 4, 1, 1, device=device), 4)
    with pytest.raises(RuntimeError, match=r"q must not be empty, got \(3, 0, 1, 1\)"):
        pack(torch.zeros(3, 0, 1, 1, dtype=torch.int8, device=device), 4)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("qconv2d", "scales"),
        ("qconv2d", "offsets"),
        ("qconv2d_int8", "weight_scale"),
        ("qconv2d_int8", "bias"),
        ("block_quant_gemm", "scale_b"),
        ("block_quant_gemm", "offset_b"),
    ],
)
def test_what_does_not_train_refuses_a_gradient(op: str, name: str) -> None:
    arguments = changed(op, name, lambda x: x.detach().requires_grad_())
    with pytest.raises(RuntimeError, match=f"mixed_gemm::{op}: {name} requires grad, but .*Hint"):
        OPS[op][1](**arguments)


@pytest.mark.parametrize("op", OPS)
def test_tensors_on_two_devices_are_named(op: str) -> None:
    for name, value in OPS[op][0]().items():
        if not isinstance(value, torch.Tensor) or name in ("input", "a"):
            continue
        with pytest.raises(RuntimeError, match=f"{op}: all tensors must be on one device.*{name}"):
            OPS[op][1](**{**OPS[op][0](), name: value.to("meta")})
