"""The rates that a machine reaches now, and the roofline that follows: reads from memory, and
products by dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

import mixed_gemm
from mixed_gemm.selection.timing import Call, time_interleaved, timers_of

ROUNDS = 7
SIDE_ON_GPU = 8192  # extent of the square products
SIDE_ON_CPU = 2048
BYTES_ON_GPU = 1 << 31  # bytes that are copied and read
BYTES_ON_CPU = 1 << 29

# Dtype of the operands -> the ceiling of their products: the first that was measured counts.
ARITHMETIC = {
    "float16": ("dense_fp16_tflops", "dense_fp32_tflops"),
    "bfloat16": ("dense_bf16_tflops", "dense_fp16_tflops"),
    "float32": ("dense_fp32_tflops", "dense_fp16_tflops"),
    "int8": ("dense_int8_tops", "dense_fp32_tflops"),
    "float8_e4m3fn": ("dense_int8_tops", "dense_fp32_tflops"),
}


def roofline_us(
    ceilings: Mapping[str, float], nbytes: float, operations: float, dtype: str
) -> float:
    """Return the larger of the time that ``nbytes`` of reads and writes need and that of
    ``operations`` (2 for a multiplication with its addition) in ``dtype``."""
    name = next(name for name in ARITHMETIC[dtype] if name in ceilings)
    return max(nbytes / (ceilings["read_gb_per_s"] * 1e3), operations / (ceilings[name] * 1e6))


def measured(device: torch.device) -> dict[str, float]:
    """Measure GB/s of reads (and of copies, read and written), TFLOP/s and TOP/s of square
    products."""
    return on_gpu(device) if device.type == "cuda" else on_cpu()


def _median_us(calls: Mapping[str, Sequence[Call]], device: torch.device) -> dict[str, float]:
    times = time_interleaved(timers_of(calls, device), ROUNDS)
    return {name: timing.us for name, timing in times.items()}


def on_gpu(device: torch.device) -> dict[str, float]:
    side = SIDE_ON_GPU
    source = torch.randn(BYTES_ON_GPU // 2, device=device, dtype=torch.float16)
    target = torch.empty_like(source)
    a = torch.randn(side, side, device=device, dtype=torch.float16)
    x, y = (
        torch.randint(-128, 128, (side, side), device=device, dtype=torch.int8) for _ in range(2)
    )
    us = _median_us(
        {
            "copy": [partial(target.copy_, source)] * 4,
            "read": [partial(torch.sum, source, dtype=torch.float32)] * 4,
            "fp16": [partial(torch.mm, a, a)] * 8,
            "int8": [partial(torch._int_mm, x, y.t())] * 8,
        },
        device,
    )
    return {
        "copy_gb_per_s": round(2e-3 * source.nbytes / us["copy"], 1),
        "read_gb_per_s": round(1e-3 * source.nbytes / us["read"], 1),
        "dense_fp16_tflops": round(2e-6 * side**3 / us["fp16"], 1),
        "dense_int8_tops": round(2e-6 * side**3 / us["int8"], 1),
    }


def on_cpu() -> dict[str, float]:
    """Each the better of torch's and ours: on a Zen 5 torch.sum reads two thirds of what our
    kernels do, and MKL does half of the float32 products."""
    side, rows = SIDE_ON_CPU, BYTES_ON_CPU // 8 // SIDE_ON_CPU
    source = torch.ones(BYTES_ON_CPU // 4)
    weight = mixed_gemm.pack_weights(torch.zeros(rows, side, dtype=torch.int8), 8)
    packed = mixed_gemm.pack_weights(torch.zeros(side, side, dtype=torch.int8), 4)

    def ours(a: torch.Tensor, b: torch.Tensor, n: int, bits: int) -> Call:
        scales = torch.ones(1, n, dtype=a.dtype)
        op = torch.ops.mixed_gemm.fpA_intB_gemm
        return partial(op, a, b, scales, bits=bits, group_size=-1)

    one = torch.randn(1, side).bfloat16()
    calls: dict[str, Call] = {
        "sum": partial(torch.sum, source),
        "row": ours(one, weight, rows, 8),
    }
    squares = {"fp32": torch.randn(side, side), "bf16": torch.randn(side, side).bfloat16()}
    for name, a in squares.items():
        calls[name] = partial(torch.mm, a, a)
        calls[f"{name}, ours"] = ours(a, packed, side, 4)
    times = time_interleaved(
        timers_of({name: [call] for name, call in calls.items()}, torch.device("cpu")), ROUNDS
    )
    us = {name: timing.us_min for name, timing in times.items()}
    reads = source.nbytes / us["sum"], weight.nbytes / us["row"]
    return {
        "read_gb_per_s": round(1e-3 * max(reads), 2),
        **{
            f"dense_{name}_tflops": round(2e-6 * side**3 / min(us[name], us[f"{name}, ours"]), 4)
            for name in squares
        },
    }
