"""What torch expects of fpA_intB_gemm: opcheck, gradients, autocast, compile, export, FLOP
counting, beyond what test_op_contract.py asks of every op. Values are test_gemm.py's matter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems.gemm import Case, Problem, make
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.utils.flop_counter import FlopCounterMode

import mixed_gemm
from mixed_gemm import reference

gemm = mixed_gemm.fpA_intB_gemm


def scalars(problem: Problem) -> dict[str, Any]:
    return {
        "bits": problem.case.bits,
        "activation": problem.case.activation,
        **problem.scheme(),
    }


SAMPLES = {
    "plain": Case(m=3, n=64, k=64, bits=8),
    "everything": Case(4, 72, 144, torch.float32, 4, 32, "sub", True, True, "gelu"),
    "bfloat16 add": Case(5, 33, 47, torch.bfloat16, 8, 16, "add", bias=True),
    "no rows": Case(0, 64, 64),
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("grad", [False, True])
def test_gemm_opcheck(sample: str, grad: bool) -> None:
    p = make(SAMPLES[sample])
    p.a.requires_grad_(grad)
    if p.bias is not None:
        p.bias.requires_grad_(grad)
    arguments = (p.a, p.b_packed, *p.extras())
    torch.library.opcheck(torch.ops.mixed_gemm.fpA_intB_gemm.default, arguments, scalars(p))


@pytest.mark.parametrize("sample", SAMPLES)
def test_forced_gemm_opcheck(sample: str) -> None:
    p = make(SAMPLES[sample])
    c = p.case
    mode = None if c.zero_mode == "none" else c.zero_mode
    config = mixed_gemm.plan(
        c.m, c.n, c.k, dtype=c.dtype, bits=c.bits, group_size=c.group_size, zero_mode=mode,
        device="cpu",
    ).selected  # fmt: skip
    arguments = (p.a, p.b_packed, *p.extras())
    options = {**scalars(p), "config": config}
    op = torch.ops.mixed_gemm.fpA_intB_gemm_config.default
    torch.library.opcheck(op, arguments, options)
    assert torch.equal(op(*arguments, **options), p.run())


# --- gradients ---------------------------------------------------------------------------------


def reference_gradients(p: Problem, a: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    a64, bias64 = (x.detach().double().requires_grad_() for x in (a, bias))
    y = reference.fpA_intB_gemm(
        a64,
        p.q,
        p.scales,
        p.zeros,
        bias64,
        p.pre_scale,
        activation=p.case.activation,
        **p.scheme(),
    )
    return torch.autograd.grad(y, (a64, bias64), grad.double())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gemm_half_gradients_are_near_the_reference(dtype: torch.dtype) -> None:
    p = make(Case(6, 72, 144, dtype, 4, 32, "sub", True, True, "silu"))
    assert p.bias is not None
    a, bias = p.a.requires_grad_(), p.bias.requires_grad_()
    grad = torch.randn(6, 72).to(dtype)
    got = torch.autograd.grad(p.run(a), (a, bias), grad)
    for mine, exact in zip(got, reference_gradients(p, a, bias, grad), strict=True):
        # Roundings of dtype, each a few u, of the activation's gradient, the weight, the sum.
        error = (mine.double() - exact).norm() / exact.norm()
        assert error < 4 * reference.ROUNDING[dtype][0]
        assert mine.dtype == dtype


@pytest.mark.parametrize("shape", [(144,), (0, 144)])
def test_gemm_gradients_of_one_row_and_of_none(shape: tuple[int, ...]) -> None:
    p = make(Case(1, 72, 144, torch.float32, 4, 32, bias=True, activation="silu"))
    assert p.bias is not None
    a, bias = torch.randn(shape, requires_grad=True), p.bias.requires_grad_()
    p.run(a).sum().backward()
    assert a.grad is not None and a.grad.shape == shape
    assert bias.grad is not None and bias.grad.shape == (72,)


def test_gemm_bias_alone_trains() -> None:
    p = make(Case(4, 72, 144, torch.float32, 4, 32, bias=True))
    assert p.bias is not None
    p.bias.requires_grad_()
    p.run().sum().backward()
    torch.testing.assert_close(p.bias.grad, torch.full((72,), 4.0))


# --- autocast ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("raw", [False, True])
def test_gemm_autocast_runs_in_the_dtype_of_the_user(raw: bool, dtype: torch.dtype) -> None:
    p = make(Case(3, 72, 144, torch.float32, 4, 32, "sub", True, True))
    run: Callable[..., Tensor] = torch.ops.mixed_gemm.fpA_intB_gemm if raw else gemm
    tensors = (p.a, p.b_packed, *p.extras())
    with torch.autocast("cpu", dtype=dtype):
        out = run(*tensors, **scalars(p))
    cast = [t.to(dtype) if t is not None and t.is_floating_point() else t for t in tensors]
    assert out.dtype == dtype
    assert torch.equal(out, run(*cast, **scalars(p)))


def test_gemm_autocast_disabled_changes_nothing() -> None:
    p = make(Case(3, 72, 144, torch.float32, 4, 32))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        assert torch.equal(p.run(), p.run())
        assert p.run().dtype == torch.float32


def test_gemm_autocast_gradients_come_back_in_the_dtype_of_the_input() -> None:
    p = make(Case(3, 72, 144, torch.float32, 4, 32, bias=True, activation="gelu"))
    assert p.bias is not None
    a, bias = p.a.requires_grad_(), p.bias.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = p.run(a)
    out.sum().backward()
    assert out.dtype == torch.bfloat16
    assert a.grad is not None and a.grad.dtype == torch.float32
    assert bias.grad is not None and bias.grad.dtype == torch.float32
    exact = reference_gradients(p, a, bias, torch.ones(3, 72))
    error = (a.grad.double() - exact[0]).norm() / exact[0].norm()
    assert error < 4 * reference.ROUNDING[torch.bfloat16][0]


# --- compile, export, vmap, FLOPs --------------------------------------------------------------


def block(problem: Problem) -> torch.nn.Module:
    case = problem.case
    first = mixed_gemm.Linear.from_quantized(
        problem.q,
        problem.scales,
        problem.zeros,
        problem.bias,
        problem.pre_scale,
        bits=case.bits,
        **problem.scheme(),
    )
    return torch.nn.Sequential(first, torch.nn.SiLU(), torch.nn.Linear(case.n, 5, dtype=case.dtype))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gemm_compiles_to_one_graph(dynamic: bool, backend: str) -> None:
    model = block(make(Case(4, 72, 144, torch.float32, 4, 32, "sub", True, True)))
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for m in (4, 7) if dynamic else (4,):
        x = torch.randn(m, 144, requires_grad=True)
        x2 = x.detach().clone().requires_grad_()
        want, got = model(x), compiled(x2)
        torch.testing.assert_close(got, want)
        want.sum().backward()
        got.sum().backward()
        torch.testing.assert_close(x2.grad, x.grad)


def test_wrapper_compiles_with_dynamic_shapes_once() -> None:
    counter = CompileCounter()

    def run(a: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
        return gemm(a, packed, scales, bits=4, group_size=32, activation="relu")

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=counter)
    p = make(Case(1, 72, 144, torch.float32, 4, 32))
    for m in (2, 3, 9):
        a = torch.randn(m, 144)
        assert torch.equal(compiled(a, p.b_packed, p.scales), run(a, p.b_packed, p.scales))
    assert counter.frame_count == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_compiled_autocast_equals_eager_autocast(dtype: torch.dtype) -> None:
    model = block(make(Case(4, 72, 144, torch.float32, 4, 32, "sub", True)))
    x = torch.randn(4, 144)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=dtype):
        got, want = compiled(x), model(x)
    assert got.dtype == dtype
    torch.testing.assert_close(got, want)


def test_gemm_exports_with_a_dynamic_batch() -> None:
    model = block(make(Case(4, 72, 144, torch.float32, 4, 32, "sub", True, True))).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(4, 144),), dynamic_shapes=({0: batch},))
    names = [str(node.target) for node in program.graph.nodes]
    assert any("mixed_gemm.fpA_intB_gemm" in name for name in names)
    x = torch.randn(9, 144)
    torch.testing.assert_close(program.module()(x), model(x))


def test_gemm_compiled_model_survives_a_copy() -> None:
    model = block(make(Case(4, 72, 144, torch.float32, 4, 32)))
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
    x = torch.randn(4, 144)
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("shape", [(144,), (5, 144), (2, 3, 144)])
def test_gemm_flops_are_those_of_the_dense_gemm(shape: tuple[int, ...]) -> None:
    p = make(Case(1, 72, 144, torch.float32, 4, 32, bias=True))
    with FlopCounterMode(display=False) as counter:
        p.run(torch.randn(shape))
    assert counter.get_total_flops() == 2 * torch.Size(shape[:-1]).numel() * 72 * 144
