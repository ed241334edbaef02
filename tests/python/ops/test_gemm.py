"""fpA_intB_gemm on the CPU against float64, under the bound of reference.error_bound: ratio > 1
fails. Two tests need no bound: one-hot activations and the integer lattice are exact.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from problems.gemm import Case, make
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import num_groups


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("zero_mode", ["none", "sub", "add"])
def test_gemm_one_hot_reads_back_every_weight(
    zero_mode: str, dtype: torch.dtype, bits: int
) -> None:
    # y[k, n] = w[n, k]: each output is one weight, so it differs from the exact one by the
    # roundings of that weight alone; q, scale and zero are chosen so that there are none.
    n, k, group_size = 80, 176, 48
    q = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (n, k), dtype=torch.int8)
    groups = (num_groups(k, group_size), n)
    scales = torch.full(groups, 0.5, dtype=dtype) * 2.0 ** torch.randint(-3, 3, groups)
    low = -(2 ** (bits - 1))
    zeros = {
        "none": None,
        "sub": torch.randint(low, 1, groups).to(dtype),
        "add": (torch.randint(-4, 4, groups) * scales).to(dtype),
    }[zero_mode]
    scales = scales.to(dtype)
    mode = "sub" if zero_mode == "none" else zero_mode
    expected = reference.dequantize(q, scales, zeros, group_size=group_size, zero_mode=mode)
    assert torch.equal(expected.to(dtype).double(), expected), "the data must be exact"
    out = mixed_gemm.fpA_intB_gemm(
        torch.eye(k, dtype=dtype),
        mixed_gemm.pack_weights(q, bits),
        scales,
        zeros,
        bits=bits,
        group_size=group_size,
        zero_mode=mode,
    )
    assert torch.equal(out.double(), expected.t())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("m", [1, 16, 200])
def test_gemm_integer_lattice_is_exact(m: int, dtype: torch.dtype, bits: int) -> None:
    # Sums of integers below 2^24 times a power of two are exact in fp32 in any order, so the
    # output is the exact value rounded once: it must be equal, bit for bit.
    n, k, group_size = 96, 320, 64
    a = torch.randint(-2, 3, (m, k)).to(dtype)
    low = -(2 ** (bits - 1))
    q = torch.randint(low, -low, (n, k), dtype=torch.int8)
    scales = torch.full((num_groups(k, group_size), n), 2.0**-6, dtype=dtype)
    zeros = torch.randint(low, -low, scales.shape).to(dtype)
    bias = torch.randint(-8, 9, (n,)).to(dtype)
    options = {"group_size": group_size, "zero_mode": "sub"}
    packed = mixed_gemm.pack_weights(q, bits)
    out = mixed_gemm.fpA_intB_gemm(a, packed, scales, zeros, bias, bits=bits, **options)
    expected = reference.fpA_intB_gemm(a, q, scales, zeros, bias, **options)
    assert torch.equal(out, expected.to(dtype))


def _misaligned(a: Tensor) -> Tensor:
    """The same values at a storage offset of one element, which no vector load likes."""
    flat = torch.empty(a.numel() + 1, dtype=a.dtype)
    flat[1:] = a.flatten()
    return flat[1:].view(a.shape)


def _wide(a: Tensor) -> Tensor:
    wide = torch.full((a.shape[0], a.shape[1] + 24), torch.nan, dtype=a.dtype)
    wide[:, 8:-16] = a
    return wide[:, 8:-16]


def _every_other_column(a: Tensor) -> Tensor:
    return torch.stack((a, torch.full_like(a, torch.nan)), -1).flatten(-2)[:, ::2]


def _every_other_row(a: Tensor) -> Tensor:
    return torch.stack((a, torch.full_like(a, torch.nan)), 1).flatten(0, 1)[::2]


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda a: a.t().contiguous().t(),
    "misaligned": _misaligned,
    "leading dimension": _wide,
    "every other column": _every_other_column,
    "every other row": _every_other_row,
    "negated": lambda a: torch._neg_view(-a),
}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("m", [6, 33])
def test_gemm_view_equals_contiguous(m: int, view: str, dtype: torch.dtype, bits: int) -> None:
    problem = make(Case(m, 72, 144, dtype, bits, 32, "sub", bias=True, pre_scale=True))
    a = VIEWS[view](problem.a)
    assert torch.equal(a, problem.a)
    assert torch.equal(problem.run(a), problem.run())


def test_gemm_expanded_rows_are_equal() -> None:
    problem = make(Case(1, 72, 144, torch.float16, 4, 32))
    out = problem.run(problem.a.expand(5, -1))
    assert torch.equal(out, problem.run().expand(5, -1))


def test_gemm_no_input_channels_give_the_bias(repository: Path) -> None:
    # In a process of its own: a null weight pointer that is read takes the interpreter with it.
    code = """
import mixed_gemm, torch
packed = mixed_gemm.pack_weights(torch.zeros(4, 0, dtype=torch.int8), 4)
bias = torch.arange(4.0)
out = mixed_gemm.fpA_intB_gemm(torch.ones(3, 0), packed, torch.ones(0, 4), bias=bias, bits=4)
assert torch.equal(out, bias.expand(3, 4)), out
"""
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, f"status {run.returncode}: {run.stderr[-2000:]}"


def test_gemm_zero_scale_is_legal() -> None:
    problem = make(Case(4, 72, 144, torch.float16, 4, 48, bias=True))
    problem.scales[1] = 0
    assert problem.ratio(problem.run()) <= 1


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("zero_mode", ["none", "sub", "sub_real", "add"])
@pytest.mark.parametrize(("n", "k", "group_size"), [(64, 128, 32), (65, 130, -1), (3, 50, 16)])
def test_dequantize_rounds_once_or_as_its_zeros_need(
    n: int, k: int, group_size: int, zero_mode: str, dtype: torch.dtype, bits: int
) -> None:
    problem = make(Case(1, n, k, dtype, bits, group_size, zero_mode))
    out = mixed_gemm.dequantize_weights(
        problem.b_packed,
        problem.scales,
        problem.zeros,
        bits=bits,
        n=n,
        k=k,
        dtype=dtype,
        **problem.scheme(),
    )
    exact = reference.dequantize(problem.q, problem.scales, problem.zeros, **problem.scheme())
    assert out.shape == (n, k)
    assert out.dtype == dtype
    if problem.case.zero_mode in ("none", "sub"):
        assert torch.equal(out, exact.to(dtype)), "q - zero is exact, so w is rounded once"
        return
    # Real zero points: q - z rounds too. "add": the product may round before the sum does.
    u, eta = reference.ROUNDING[dtype]
    product = reference.dequantize(problem.q, problem.scales, group_size=group_size)
    bound = 2.5 * u * (exact.abs() + (zero_mode == "add") * product.abs()) + eta
    assert reference.error_ratio(out, exact, bound) <= 1


@pytest.mark.parametrize("instruction_set", ["portable", "avx2"])
def test_gemm_on_a_lesser_instruction_set(instruction_set: str) -> None:
    # The choice is made once in a process; the environment variable only lowers it.
    here = Path(__file__)
    tests = "scheme or lattice or one_hot or ragged"
    command = [sys.executable, "-m", "pytest", "-q", "-x", str(here), "-k", tests]
    environment = {**os.environ, "MIXED_GEMM_CPU": instruction_set}
    run = subprocess.run(
        command, env=environment, cwd=here.parents[3], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
