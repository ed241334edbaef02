"""The other ops and the Python layer on CUDA: packing, dequantization, autograd, Linear."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from problems.gemm import Case, make

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.selection.planning import device_string

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("shape", ((64, 64), (1, 1), (65, 127), (200, 1000), (1024, 4096)))
def test_pack_equals_cpu_and_unpack_inverts(bits, shape):
    q = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), shape, dtype=torch.int8)
    packed = mixed_gemm.pack_weights(q.cuda(), bits)
    assert torch.equal(packed.cpu(), mixed_gemm.pack_weights(q, bits))
    assert torch.equal(mixed_gemm.unpack_weights(packed, bits, *shape).cpu(), q)


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("zero_mode", ("none", "sub", "add"))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
def test_dequantize_equals_cpu_bit_for_bit(dtype, zero_mode, bits):
    for n, k, group in ((130, 320, 32), (64, 777, -1), (8, 4096, 128)):
        cpu = make(Case(1, n, k, dtype, bits, group, zero_mode))
        options = {"bits": bits, "n": n, "k": k, **cpu.scheme()}
        for out in (dtype, torch.float32):
            expected = mixed_gemm.dequantize_weights(
                cpu.b_packed, cpu.scales, cpu.zeros, dtype=out, **options
            )
            on_gpu = [
                None if t is None else t.cuda() for t in (cpu.b_packed, cpu.scales, cpu.zeros)
            ]
            actual = mixed_gemm.dequantize_weights(*on_gpu, dtype=out, **options)
            assert torch.equal(actual.cpu(), expected)


def test_backward_matches_dense(record):
    case = Case(20, 96, 256, torch.float32, 4, 32, "sub", bias=True, activation="gelu")
    problem = make(case, "cuda")
    a = problem.a.clone().requires_grad_()
    problem.run(a).square().sum().backward()
    dense = problem.a.double().requires_grad_()
    out = reference.fpA_intB_gemm(
        dense, problem.q, *problem.extras(), activation="gelu", **problem.scheme()
    )
    out.square().sum().backward()
    assert torch.allclose(
        a.grad.double(), dense.grad, rtol=1e-4, atol=1e-4 * dense.grad.abs().max()
    )


def test_compiled_linear_and_autocast():
    linear = torch.nn.Linear(256, 192).cuda().half()
    quantized = mixed_gemm.Linear.from_float(linear, bits=4, group_size=64)
    x = torch.randn(7, 256, device="cuda", dtype=torch.float16)
    eager = quantized(x)
    assert torch.equal(torch.compile(quantized, fullgraph=True, backend="aot_eager")(x), eager)
    single = copy.deepcopy(quantized).float()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert single(x.float()).dtype == torch.bfloat16
    with torch.autocast("cuda", dtype=torch.float16):
        assert single(x.float()).dtype == torch.float16


def test_bad_input_raises_and_leaves_no_sticky_error():
    problem = make(Case(5, 72, 128, torch.float16, 4, 32), "cuda")
    expected = problem.run()
    bad = [
        (dict(a=problem.a.cpu()), r"one device.*cpu"),
        (dict(scales=problem.scales[:1]), r"scales must be .*\(4, 72\), got \(1, 72\)"),
        (dict(scales=problem.scales.float()), r"scales must be float16.*got float32"),
        (
            dict(bias=torch.zeros(3, device="cuda", dtype=torch.float16)),
            r"bias must be \(N,\) = \(72,\), got \(3,\)",
        ),
    ]
    for change, message in bad:
        arguments = {
            "a": problem.a,
            "b_packed": problem.b_packed,
            "scales": problem.scales,
            **change,
        }
        with pytest.raises(RuntimeError, match=message):
            torch.ops.mixed_gemm.fpA_intB_gemm(**arguments, bits=4, group_size=32)
        assert torch.equal(problem.run(), expected)
    with pytest.raises(RuntimeError, match=r"split_k must not be larger.*= 2, got 5"):
        torch.ops.mixed_gemm.fpA_intB_gemm_config(
            problem.a,
            problem.b_packed,
            problem.scales,
            bits=4,
            group_size=32,
            config="multistage_m16n128s6_parallel5",
        )
    with pytest.raises(RuntimeError, match="unknown config"):
        torch.ops.mixed_gemm.fpA_intB_gemm_config(
            problem.a, problem.b_packed, problem.scales, bits=4, group_size=32, config="fastest"
        )


def test_plans_know_what_the_ops_know():
    """Of the GPU they run on: near ties a bandwidth guessed otherwise gives another choice."""
    p = torch.cuda.get_device_properties(0)
    found = re.fullmatch(r"cuda:sm=(\d+),sms=(\d+),smem=(\d+),gbs=([\d.]+)", device_string("cuda"))
    assert found, device_string("cuda")
    assert tuple(map(int, found.groups()[:3])) == (
        10 * p.major + p.minor,
        p.multi_processor_count,
        p.shared_memory_per_block_optin,
    )
    assert 100 < float(found[4]) < 20_000


def test_gpu_that_is_not_there_is_named():
    count = torch.cuda.device_count()
    for where in (f"cuda:{count}", "cuda:100"):
        with pytest.raises(ValueError, match=f"one of the {count} CUDA devices .* got {where}"):
            device_string(where)
    for index in (-1, count, 100, 2**32, 2**40):
        text = f"_device: index must be of one of the {count} CUDA devices, got {index}"
        with pytest.raises(RuntimeError, match=text):
            torch.ops.mixed_gemm._device(index)
