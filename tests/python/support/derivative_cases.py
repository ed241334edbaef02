"""One valid call of every op that takes tensors, and what it computes, as a float64 function of the
arguments that train.

Everything is on an integer lattice: products and sums are exact in float32, and activations that
are rounded to int8 are integers already. So derivatives must equal those of the function bit for
bit, unless the activation is smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from problems.awq import awq_words
from torch import Tensor

import mixed_gemm
from mixed_gemm import Scheme, reference
from mixed_gemm.ops.problem import num_groups
from mixed_gemm.reference import conv as reference_conv
from mixed_gemm.weights import Fp8Weight, W8A8Weight

OPS = torch.ops.mixed_gemm
SMOOTH = ("gelu", "gelu_tanh", "silu")


@dataclass(frozen=True)
class Sample:
    """One call. trains: the arguments that ``exact`` takes, in this order."""

    op: str
    arguments: dict[str, Any]
    trains: tuple[str, ...] = ()
    exact: Callable[..., Tensor] | None = None

    def primals(self) -> tuple[Tensor, ...]:
        return tuple(self.arguments[name] for name in self.trains)

    def to(self, device: str) -> Sample:
        """The same call on another device; ``exact`` stays where it is."""
        moved = {
            name: x.to(device) if isinstance(x, Tensor) else x for name, x in self.arguments.items()
        }
        return replace(self, arguments=moved)

    def run(self, *trained: Tensor) -> Any:
        """The op with other values for the arguments that train."""
        return self.call(**dict(zip(self.trains, trained, strict=True)))

    def call(self, **changes: Any) -> Any:
        return getattr(OPS, self.op).default(**{**self.arguments, **changes})

    def frozen(self) -> list[str]:
        """Arguments that could ask for a derivative and have none."""
        return [
            name
            for name, x in self.arguments.items()
            if isinstance(x, Tensor) and x.is_floating_point() and name not in self.trains
        ]

    @property
    def is_smooth(self) -> bool:
        return self.arguments.get("activation") in SMOOTH


def integers(
    *shape: int, low: int = -2, high: int = 2, dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.randint(low, high + 1, shape).to(dtype)


def powers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Scales: 1/16 or -1/8."""
    return torch.tensor([0.0625, -0.125]).to(dtype)[torch.randint(0, 2, shape)]


def gemm(
    shape: tuple[int, ...] = (2, 40),
    dtype: torch.dtype = torch.float32,
    bits: int = 4,
    group_size: int = 16,
    zero_mode: str = "sub",
    zeros: bool = True,
    bias: bool = True,
    pre_scale: bool = True,
    activation: str = "identity",
) -> Sample:
    k, n = shape[-1], 5
    groups = (num_groups(k, group_size), n)
    q = integers(n, k, low=-3, high=3, dtype=torch.int8)
    scales = powers(*groups, dtype=dtype)
    z = None
    if zeros:
        z = integers(*groups, dtype=dtype) / (1 if zero_mode == "sub" else 8)
    options = {"group_size": group_size, "zero_mode": zero_mode, "activation": activation}
    before = powers(k, dtype=dtype) * 16 if pre_scale else None

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference.fpA_intB_gemm(a, q, scales, z, bias, before, **options)

    given = {
        "a": integers(*shape, low=-1, high=1, dtype=dtype),
        "b_packed": mixed_gemm.pack_weights(q, bits),
        "scales": scales,
        "zeros": z,
        "bias": integers(n, dtype=dtype) if bias else None,
        "pre_scale": before,
        "bits": bits,
        **options,
    }
    return Sample("fpA_intB_gemm", given, ("a", "bias") if bias else ("a",), exact)


def dequantize(
    zero_mode: str = "sub",
    zeros: bool = True,
    group_size: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Sample:
    n, k = 5, 40
    groups = (num_groups(k, group_size), n)
    q = integers(n, k, low=-3, high=3, dtype=torch.int8)
    z = None
    if zeros:
        z = integers(*groups, dtype=dtype) / (1 if zero_mode == "sub" else 8)
    options: dict[str, Any] = {"group_size": group_size, "zero_mode": zero_mode}

    def exact(scales: Tensor) -> Tensor:
        return reference.dequantize(q, scales, z, **options)

    given = {
        "b_packed": mixed_gemm.pack_weights(q, 4),
        "scales": powers(*groups, dtype=dtype),
        "zeros": z,
        "bits": 4,
        **options,
        "n": n,
        "k": k,
        "dtype": dtype,
    }
    return Sample("dequantize_weights", given, ("scales",), exact)


def conv(
    size: tuple[int, int] = (3, 3),
    kernel: tuple[int, int] = (3, 3),
    channels: int = 20,
    dtype: torch.dtype = torch.float32,
    offsets: bool = True,
    bias: bool = True,
    activation: str = "identity",
    channels_last: bool = False,
    images: int = 1,
    **geometry: tuple[int, int],
) -> Sample:
    out_c, block = 3, 16 if channels > 16 else -1
    blocks = (num_groups(channels, block), out_c)
    q = integers(out_c, channels, *kernel, dtype=torch.int8)
    scales = powers(*blocks, dtype=dtype)
    offset = integers(*blocks, dtype=dtype) / 16 if offsets else None
    options: dict[str, Any] = {"block_size": block, "activation": activation, **geometry}

    def exact(input: Tensor, bias: Tensor | None = None) -> Tensor:
        return reference_conv.qconv2d(input, q, scales, offset, bias, **options)

    input = integers(images, channels, *size, low=-1, high=1, dtype=dtype)
    if channels_last:
        input = input.contiguous(memory_format=torch.channels_last)
    given = {
        "input": input,
        "weight_packed": mixed_gemm.pack_conv_weights(q, 4),
        "scales": scales,
        "offsets": offset,
        "bias": integers(out_c, dtype=dtype) if bias else None,
        "bits": 4,
        "kernel_size": kernel,
        **options,
    }
    return Sample("qconv2d", given, ("input", "bias") if bias else ("input",), exact)


def full_range(*shape: int, block: int, low: int = -128) -> Tensor:
    """Integers that int8 holds as they are: each block of a row has a ``low`` and a 127."""
    x = integers(*shape, low=-3, high=3)
    x[..., ::block], x[..., 1::block] = low, 127
    return x


def block_gemm(
    shape: tuple[int, ...] = (2, 40), bias: bool = True, activation: str = "identity"
) -> Sample:
    k, n, block = shape[-1], 5, 16
    groups = (num_groups(k, block), n)
    b = integers(n, k, dtype=torch.int8).t()
    scale, offset = powers(*groups) / 8, integers(*groups) / 64

    def exact(a: Tensor, bias: Tensor | None = None) -> Tensor:
        w = reference.dequantize(b.t(), scale, offset, group_size=block, zero_mode="add")
        y = a @ w.t() if bias is None else a @ w.t() + bias
        return reference.ACTIVATION_TABLE[activation][0](y)

    given = {
        "a": full_range(*shape, block=block),
        "b": b,
        "scale_b": scale,
        "offset_b": offset,
        "bias": integers(n) if bias else None,
        "block_size": block,
        "activation": activation,
    }
    return Sample("block_quant_gemm", given, ("a", "bias") if bias else ("a",), exact)


def awq(op: str) -> Sample:
    k, n, groups = 32, 8, 2
    codes, zeros = torch.randint(5, 12, (k, n)), torch.randint(7, 10, (groups, n))
    scales = powers(groups, n)
    weight = {"qweight": awq_words(codes), "scales": scales, "qzeros": awq_words(zeros)}
    integer = (codes.reshape(groups, -1, n) - zeros.unsqueeze(1)).double()

    def dense(scales: Tensor) -> Tensor:
        return (integer * scales.unsqueeze(1)).reshape(k, n)

    if op == "awq_dequantize":
        return Sample(op, weight, ("scales",), dense)
    given = {"input": integers(3, k, low=-1, high=1), **weight, "split_k_iters": 1}
    return Sample(op, given, ("input",), lambda input: input @ dense(scales.double()))


def scaled(
    op: str = "scaled_mm", operand: torch.dtype = torch.int8, dtype: torch.dtype = torch.float32
) -> Sample:
    a, b = integers(3, 16, dtype=operand), integers(4, 16, dtype=operand).t()
    given = {
        "a": a,
        "b": b,
        "scale_a": powers(3, 1),
        "scale_b": torch.ones(1),
        "bias": integers(4, dtype=dtype),
        "out_dtype": dtype,
    }
    y = (a.double() @ b.double()) * given["scale_a"].double() * given["scale_b"].double()
    return Sample(op, given, ("bias",), lambda bias: y + bias)


def scaled_azp() -> Sample:
    plain = scaled("scaled_mm_azp")
    given = {**plain.arguments, "azp_adj": torch.zeros(4, dtype=torch.int32)}
    return replace(plain, arguments={**given, "azp": torch.ones(3, 1, dtype=torch.int32)})


def scaled_dynamic(azp: bool = True, dtype: torch.dtype = torch.float32) -> Sample:
    """Activations that are integers already, in rows whose scale is 1."""
    a = full_range(3, 16, block=16, low=-128 if azp else -127).to(dtype)
    b = integers(4, 16, dtype=torch.int8).t()
    given = {
        "a": a,
        "b": b,
        "scale_b": powers(4),
        "azp_adj": b.sum(0, dtype=torch.int32) if azp else None,
        "bias": integers(4, dtype=dtype),
    }
    y = (a.double() @ b.double()) * given["scale_b"].double()
    return Sample("scaled_mm_dynamic", given, ("bias",), lambda bias: y + bias)


def conv_int8() -> Sample:
    given = {
        "input": integers(2, 4, 5, 5, dtype=torch.int8),
        "weight": integers(3, 4, 3, 3, dtype=torch.int8),
        "weight_scale": torch.ones(3),
        "bias": integers(3),
        "input_scale": 1.0,
        "input_zero_point": 0,
        "output_scale": 1.0,
        "output_zero_point": 0,
    }
    return Sample("qconv2d_int8", given)


def forced(sample: Sample, op: str, **more: Any) -> Sample:
    """An op for tests and benchmarks, with the arguments of the one it forces."""
    names = [x.name for x in getattr(OPS, op).default._schema.arguments]
    given = {name: x for name, x in {**sample.arguments, **more}.items() if name in names}
    return Sample(op, given)


def _config() -> str:
    options = {"dtype": torch.float32, "group_size": 16, "zero_mode": "sub"}
    return mixed_gemm.plan(2, 5, 40, device="cpu", **options).selected


def gptq() -> Sample:
    words = torch.randint(-(2**31), 2**31, (8, 24), dtype=torch.int32)
    order = torch.randperm(64).to(torch.int32)
    return Sample("gptq_repack", {"qweight": words, "perm": order, "bits": 4})


# op -> a call of it; each op of the library that takes a tensor is here.
SAMPLES: dict[str, Callable[[], Sample]] = {
    "fpA_intB_gemm": gemm,
    "fpA_intB_gemm_config": lambda: forced(gemm(), "fpA_intB_gemm_config", config=_config()),
    "dequantize_weights": dequantize,
    "awq_gemm": lambda: awq("awq_gemm"),
    "awq_dequantize": lambda: awq("awq_dequantize"),
    "qconv2d": conv,
    "qconv2d_int8": conv_int8,
    "block_quant_gemm": block_gemm,
    "scaled_mm": scaled,
    "scaled_mm_azp": scaled_azp,
    "scaled_mm_dynamic": scaled_dynamic,
    "quantize_per_token": lambda: Sample("quantize_per_token", {"a": integers(3, 8)}),
    "quantize_fp8": lambda: Sample("quantize_fp8", {"a": integers(3, 8), "block_size": 4}),
    "quantize_per_tensor": lambda: Sample(
        "quantize_per_tensor", {"a": integers(3, 8), "scale": torch.ones(())}
    ),
    "pack_weights": lambda: Sample(
        "pack_weights", {"q": integers(5, 40, dtype=torch.int8), "bits": 4}
    ),
    "unpack_weights": lambda: Sample(
        "unpack_weights",
        {"b_packed": gemm().arguments["b_packed"], "bits": 4, "n": 5, "k": 40},
    ),
    "pack_conv_weights": lambda: Sample(
        "pack_conv_weights", {"q": integers(3, 4, 3, 3, dtype=torch.int8), "bits": 4}
    ),
    "awq_repack": lambda: Sample("awq_repack", {"qweight": awq("awq_gemm").arguments["qweight"]}),
    "gptq_repack": gptq,
    "_scaled_mm_config": lambda: forced(
        scaled(), "_scaled_mm_config", azp_adj=None, azp=None, config=""
    ),
    "_qconv2d_config": lambda: forced(conv(), "_qconv2d_config", config=""),
    "_qconv2d_configs": lambda: forced(conv(), "_qconv2d_configs"),
    "_qconv2d_int8_config": lambda: forced(conv_int8(), "_qconv2d_int8_config", config=""),
    "_qconv2d_int8_configs": lambda: forced(conv_int8(), "_qconv2d_int8_configs"),
    "_block_quant_gemm_config": lambda: forced(block_gemm(), "_block_quant_gemm_config", config=""),
    "_block_quantize": lambda: forced(block_gemm(), "_block_quantize"),
    "_sum_over_ranks": lambda: Sample(
        "_sum_over_ranks",
        {
            "term": integers(2, 8),
            "inboxes": [torch.zeros(16, dtype=torch.uint8) for _ in range(2)],
            "counter": torch.zeros(2, dtype=torch.int64),
            "rank": 0,
            "few_bytes": 0,
        },
    ),
}


def takes_tensors() -> list[str]:
    """Every op of the library with a tensor among its arguments."""
    names = [x for x in torch._C._dispatch_get_all_op_names() if x.startswith("mixed_gemm::")]
    ops = [x.removeprefix("mixed_gemm::") for x in names]
    return sorted(
        op
        for op in ops
        if not op.startswith("_autograd_")  # the Python half of another op
        if any("Tensor" in str(x.type) for x in getattr(OPS, op).default._schema.arguments)
    )


def on_cpu() -> list[str]:
    return [op for op in takes_tensors() if not op.startswith("_")]


# name -> a call whose derivatives are compared with those of ``exact``
TRAINED: dict[str, Callable[[], Sample]] = {
    "gemm": gemm,
    "gemm symmetric 8 bits": lambda: gemm(bits=8, zeros=False, group_size=-1, pre_scale=False),
    "gemm add": lambda: gemm(zero_mode="add"),
    "gemm no bias": lambda: gemm(bias=False),
    "gemm 1-D": lambda: gemm((40,)),
    "gemm 3-D": lambda: gemm((2, 1, 40)),
    **{
        f"gemm {activation}": lambda activation=activation: gemm(activation=activation)  # type: ignore[misc]
        for activation in ("relu", "relu6", *SMOOTH)
    },
    "gemm gelu no bias": lambda: gemm(activation="gelu", bias=False),
    "dequantize": dequantize,
    "dequantize add": lambda: dequantize("add"),
    "dequantize symmetric": lambda: dequantize(zeros=False, group_size=-1),
    "awq_gemm": lambda: awq("awq_gemm"),
    "awq_dequantize": lambda: awq("awq_dequantize"),
    "conv": conv,
    "conv 1x1": lambda: conv((2, 2), (1, 1), images=2, offsets=False),
    "conv strided": lambda: conv(
        (4, 5), (3, 2), 3, images=2, stride=(2, 1), padding=(1, 2), dilation=(1, 2)
    ),
    "conv channels-last": lambda: conv(channels_last=True, padding=(1, 1), bias=False),
    "conv relu": lambda: conv(activation="relu"),
    "conv silu": lambda: conv(activation="silu", channels=7),
    "block": block_gemm,
    "block 1-D": lambda: block_gemm((40,)),
    "block no bias": lambda: block_gemm(bias=False),
    "block relu6": lambda: block_gemm(activation="relu6"),
    "block gelu": lambda: block_gemm(activation="gelu"),
    "scaled_mm": scaled,
    "scaled_mm float8": lambda: scaled(operand=torch.float8_e4m3fn),
    "scaled_mm_azp": scaled_azp,
    "scaled_mm_dynamic": lambda: scaled_dynamic(azp=False),
    "scaled_mm_dynamic azp": scaled_dynamic,
}
HALF: dict[str, Callable[[], Sample]] = {
    f"{name} {dtype}": lambda make=make, dtype=dtype: make(dtype=dtype)  # type: ignore[misc]
    for name, make in (
        ("gemm", lambda dtype: gemm(dtype=dtype, zeros=False, pre_scale=False)),
        ("dequantize", lambda dtype: dequantize(dtype=dtype)),
        ("conv", lambda dtype: conv(dtype=dtype, kernel=(2, 1), offsets=False)),
        ("scaled_mm", lambda dtype: scaled(dtype=dtype)),
        ("scaled_mm_dynamic", lambda dtype: scaled_dynamic(dtype=dtype)),
    )
    for dtype in (torch.float16, torch.bfloat16)
}


@dataclass(frozen=True)
class ModuleSample:
    """A module of this library as a function of its input and its bias."""

    module: torch.nn.Module
    input: Tensor
    exact: Callable[..., Tensor]
    is_smooth: bool = False

    def primals(self) -> tuple[Tensor, ...]:
        return self.input, self.module.bias.detach()  # type: ignore[return-value, operator]

    def run(self, input: Tensor, bias: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(self.module, {"bias": bias}, (input,))
        return out


def linear() -> ModuleSample:
    given = gemm().arguments
    q, order = integers(5, 40, low=-3, high=3, dtype=torch.int8), torch.randperm(40)
    tensors = (q, given["scales"], given["zeros"], given["bias"], given["pre_scale"])
    module = mixed_gemm.Linear.from_quantized(*tensors, order, bits=4, group_size=16)

    def exact(input: Tensor, bias: Tensor) -> Tensor:
        x = input.index_select(-1, order)
        return reference.fpA_intB_gemm(x, *tensors[:3], bias, given["pre_scale"], group_size=16)

    return ModuleSample(module, given["a"], exact)


def linear_w8a8(activations: str) -> ModuleSample:
    """Rows that rounding does not change: their range is that of int8, or the scale is 1."""
    q, scale, bias = integers(5, 24, dtype=torch.int8), powers(5), integers(5)
    static = {"input_scale": 1.0} if activations.startswith("static") else {}
    weight = W8A8Weight.from_quantized(
        q, scale, powers(24) * 16, scheme=Scheme.w8a8(activations), **static
    )
    module = mixed_gemm.Linear.from_weight(weight, bias)

    def exact(input: Tensor, bias: Tensor) -> Tensor:
        assert module.pre_scale is not None
        return (input * module.pre_scale.double()) @ (q * scale[:, None]).double().t() + bias

    x = integers(2, 24, low=-60, high=60)
    if not static:
        x = full_range(2, 24, block=24, low=-128 if activations.endswith("azp") else -127)
    assert module.pre_scale is not None
    return ModuleSample(module, x / module.pre_scale, exact)


def linear_fp8(scheme: Scheme) -> ModuleSample:
    """Integers that float8 holds, in rows whose scale is 1."""
    q, bias = integers(5, 24, low=-15, high=15).to(torch.float8_e4m3fn), integers(5)
    by_block = scheme.weights.block is not None
    scale = powers(3, 3) if by_block else powers(5)
    static = {"input_scale": 1.0} if scheme.activations == "static" else {}
    weight = Fp8Weight.from_quantized(q, scale, scheme=scheme, **static)
    module = mixed_gemm.Linear.from_weight(weight, bias)
    dense = weight.dequantize(torch.float64)
    x = integers(2, 24, low=-15, high=15)
    if not static:  # whose scale is 1 whatever the rows are
        x[:, :: 8 if by_block else 24] = 448

    def exact(input: Tensor, bias: Tensor) -> Tensor:
        return input @ dense.t() + bias

    return ModuleSample(module, x, exact)


def conv2d() -> ModuleSample:
    given = conv(channels=7).arguments
    q = integers(3, 7, 3, 3, dtype=torch.int8)
    module = mixed_gemm.Conv2d.from_quantized(
        q,
        given["scales"],
        given["offsets"],
        given["bias"],
        bits=4,
        padding=1,
        padding_mode="reflect",
    )

    def exact(input: Tensor, bias: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(input, (1, 1, 1, 1), "reflect")
        return reference_conv.qconv2d(padded, q, given["scales"], given["offsets"], bias)

    return ModuleSample(module, given["input"], exact)


MODULES: dict[str, Callable[[], ModuleSample]] = {
    "Linear": linear,
    "Conv2d": conv2d,
    **{
        f"Linear, w8a8 {activations}": lambda activations=activations: linear_w8a8(activations)  # type: ignore[misc]
        for activations in ("dynamic", "dynamic_azp", "static", "static_azp")
    },
    "Linear, fp8 dynamic": lambda: linear_fp8(Scheme.fp8()),
    "Linear, fp8 static": lambda: linear_fp8(Scheme.fp8("static")),
    "Linear, fp8 weight only": lambda: linear_fp8(Scheme.fp8(None)),
    "Linear, fp8 blocks, weight only": lambda: linear_fp8(
        Scheme.fp8(None, strategy="block", block=(2, 8))
    ),
    "Linear, fp8 blocks": lambda: linear_fp8(Scheme.fp8(strategy="block", block=(2, 8))),
}
