"""Calls of the ops on a lattice of integers (problems/lattice.py) whose derivatives are compared
with those of the same function in float64, and modules of this library as such functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from problems import block, conv, conv_int8, gemm, registry, scaled, scaled_dynamic, weights
from problems.lattice import TORCH, Sample, full_range, integers, powers
from torch import Tensor

import mixed_gemm
from mixed_gemm import Scheme, reference
from mixed_gemm.reference import conv as reference_conv
from mixed_gemm.weights import Fp8Weight, W8A8Weight


def forced(sample: Sample, op: str, **more: Any) -> Sample:
    """An op for tests and benchmarks, with the arguments of the one it forces."""
    names = [x.name for x in getattr(TORCH, op).default._schema.arguments]
    given = {name: x for name, x in {**sample.arguments, **more}.items() if name in names}
    return Sample(op, given)


def sum_over_ranks() -> Sample:
    given = {
        "term": integers(2, 8),
        "inboxes": [torch.zeros(16, dtype=torch.uint8) for _ in range(2)],
        "counter": torch.zeros(2, dtype=torch.int64),
        "rank": 0,
        "few_bytes": 0,
    }
    return Sample("_sum_over_ranks", given)


# An op for tests and benchmarks -> the one that it forces.
FORCED = {
    "_scaled_mm_config": scaled.sample,
    "_qconv2d_config": conv.sample,
    "_qconv2d_configs": conv.sample,
    "_qconv2d_int8_config": conv_int8.sample,
    "_qconv2d_int8_configs": conv_int8.sample,
    "_block_quant_gemm_config": block.sample,
    "_block_quantize": block.sample,
}
# op -> a call of it; each op of the library that takes a tensor is here.
SAMPLES: dict[str, Callable[[], Sample]] = {
    **{op: row.make for op, row in registry.CALLS.items()},
    **{
        op: lambda op=op, make=make: forced(make(), op, config="", azp_adj=None, azp=None)  # type: ignore[misc]
        for op, make in FORCED.items()
    },
    "_sum_over_ranks": sum_over_ranks,
}


def takes_tensors() -> list[str]:
    """Every op of the library with a tensor among its arguments."""
    names = [x for x in torch._C._dispatch_get_all_op_names() if x.startswith("mixed_gemm::")]
    ops = [x.removeprefix("mixed_gemm::") for x in names]
    return sorted(
        op
        for op in ops
        if not op.startswith("_autograd_")  # the Python half of another op
        if any("Tensor" in str(x.type) for x in getattr(TORCH, op).default._schema.arguments)
    )


def on_cpu() -> list[str]:
    return [op for op in takes_tensors() if not op.startswith("_")]


# name -> a call whose derivatives are compared with those of ``exact``
TRAINED = registry.TRAINED
HALF: dict[str, Callable[[], Sample]] = {
    f"{name} {dtype}": lambda make=make, dtype=dtype: make(dtype=dtype)  # type: ignore[misc]
    for name, make in (
        ("gemm", lambda dtype: gemm.sample(dtype=dtype, zeros=False, pre_scale=False)),
        ("dequantize", lambda dtype: weights.sample_dequantize(dtype=dtype)),
        ("conv", lambda dtype: conv.sample(dtype=dtype, kernel=(2, 1), offsets=False)),
        ("scaled_mm", lambda dtype: scaled.sample(dtype=dtype)),
        ("scaled_mm_dynamic", lambda dtype: scaled_dynamic.sample(dtype=dtype)),
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
    given = gemm.sample().arguments
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
    given = conv.sample(channels=7).arguments
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
