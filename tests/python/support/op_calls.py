"""A valid call of every op that has a CPU kernel, with all of its optional tensors, small: what the
tests of refusals change one argument of. An op that is missing here fails test_refusals.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import mixed_gemm
from mixed_gemm.ops.errors import translates_errors

N, K, GROUP = 72, 96, 32
HALF = torch.float16
Arguments = dict[str, Any]


def ints(*shape: int, low: int = -8, high: int = 8) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=torch.int8)


def words(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32)


def changed(valid: Arguments, changes: Arguments) -> Arguments:
    """``valid`` with other values of some arguments; a callable maps the valid one."""
    given = {
        name: change(valid[name]) if callable(change) else change
        for name, change in changes.items()
    }
    return {**valid, **given}


def gemm() -> Arguments:
    return {
        "a": torch.randn(3, K).half(),
        "b_packed": torch.ops.mixed_gemm.pack_weights(ints(N, K), 4),
        "scales": torch.rand(3, N).half(),
        "zeros": torch.rand(3, N).half(),
        "bias": torch.rand(N).half(),
        "pre_scale": torch.rand(K).half(),
        "bits": 4,
        "group_size": GROUP,
        "zero_mode": "sub",
        "activation": "relu",
    }


def dequantize() -> Arguments:
    names = ("b_packed", "scales", "zeros", "bits", "group_size", "zero_mode")
    return {**{name: gemm()[name] for name in names}, "n": N, "k": K, "dtype": HALF}


def scaled() -> Arguments:
    return {
        "a": ints(3, K),
        "b": ints(N, K).t(),
        "scale_a": torch.rand(3, 1),
        "scale_b": torch.rand(1, N),
        "bias": torch.rand(N).half(),
        "out_dtype": HALF,
    }


def scaled_dynamic() -> Arguments:
    given = {"a": torch.randn(3, K).half(), "azp_adj": words(N)}
    return {**given, **{name: scaled()[name] for name in ("b", "scale_b", "bias")}}


def awq() -> Arguments:
    return {
        "qweight": words(K, N // 8),
        "scales": torch.rand(3, N).half(),
        "qzeros": words(3, N // 8),
    }


def conv() -> Arguments:
    return {
        "input": torch.randn(2, 40, 5, 6).half(),
        "weight_packed": torch.ops.mixed_gemm.pack_conv_weights(ints(24, 40, 3, 3), 4),
        "scales": torch.rand(3, 24).half(),
        "offsets": torch.rand(3, 24).half(),
        "bias": torch.rand(24).half(),
        "bits": 4,
        "block_size": 16,
        "kernel_size": [3, 3],
        "stride": [1, 2],
        "padding": [1, 0],
        "dilation": [1, 1],
        "activation": "relu",
    }


def conv_int8() -> Arguments:
    weight = ints(8, 6, 3, 3)
    return {
        "input": ints(2, 6, 5, 5),
        "weight": weight,
        "weight_scale": torch.rand(8),
        "bias": torch.rand(8),
        "weight_sums": mixed_gemm.ops.weight_sums(weight),
        "input_scale": 0.1,
        "input_zero_point": 3,
        "output_scale": 0.2,
        "output_zero_point": -4,
        "clamp_min": -100,
        "clamp_max": 100,
        "stride": [1, 1],
        "padding": [1, 1],
        "dilation": [1, 1],
    }


def block() -> Arguments:
    b = ints(N, K).t()
    return {
        "a": torch.randn(3, K),
        "b": b,
        "scale_b": torch.rand(3, N),
        "offset_b": torch.rand(3, N),
        "bias": torch.rand(N),
        "b_sums": mixed_gemm.ops.block_sums(b, GROUP),
        "block_size": GROUP,
        "activation": "relu",
    }


def config() -> str:
    """The configuration that runs on this CPU."""
    return mixed_gemm.plan(3, N, K, group_size=GROUP, zero_mode="sub", device="cpu").selected


CALLS: dict[str, Callable[[], Arguments]] = {
    "pack_weights": lambda: {"q": ints(N, K), "bits": 4, "check": False},
    "unpack_weights": lambda: {"b_packed": gemm()["b_packed"], "bits": 4, "n": N, "k": K},
    "dequantize_weights": dequantize,
    "fpA_intB_gemm": gemm,
    "fpA_intB_gemm_config": lambda: {**gemm(), "config": config()},
    "scaled_mm": scaled,
    "scaled_mm_azp": lambda: {**scaled(), "azp_adj": words(N), "azp": words(3, 1)},
    "scaled_mm_dynamic": scaled_dynamic,
    "quantize_per_token": lambda: {"a": torch.randn(3, K), "symmetric": False},
    "quantize_fp8": lambda: {"a": torch.randn(3, K), "block_size": 40},
    "quantize_per_tensor": lambda: {
        "a": torch.randn(3, K),
        "scale": torch.rand(1),
        "azp": words(1),
    },
    "awq_gemm": lambda: {"input": torch.randn(3, K).half(), **awq(), "split_k_iters": 2},
    "awq_dequantize": awq,
    "awq_repack": lambda: {"qweight": words(K, N // 8)},
    "gptq_repack": lambda: {
        "qweight": words(K // 8, N),
        "perm": torch.randperm(K).int(),
        "bits": 4,
    },
    "pack_conv_weights": lambda: {"q": ints(24, 40, 3, 3), "bits": 4, "check": False},
    "qconv2d": conv,
    "qconv2d_int8": conv_int8,
    "block_quant_gemm": block,
}

# (op, tensor), for every tensor of every op.
TENSORS = [
    (op, name)
    for op, make in CALLS.items()
    for name, value in make().items()
    if isinstance(value, torch.Tensor)
]
PUBLIC_TENSORS = [(op, name) for op, name in TENSORS if hasattr(mixed_gemm.ops, op)]


def raw(op: str, arguments: Arguments) -> Any:
    return getattr(torch.ops.mixed_gemm, op)(**arguments)


def public(op: str, arguments: Arguments) -> Any:
    """The function of mixed_gemm.ops; of an op without one, torch's with errors of their kinds."""
    call = getattr(mixed_gemm.ops, op, None) or translates_errors(op)(
        getattr(torch.ops.mixed_gemm, op)
    )
    return call(**arguments)


def placed(arguments: Arguments, device: str) -> Arguments:
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def registered() -> set[str]:
    """Every op of the library that is meant for callers."""
    names = {
        x.partition("::")[2] for x in torch._C._dispatch_get_all_op_names() if "mixed_gemm::" in x
    }
    return {x.partition(".")[0] for x in names if not x.startswith("_")}
