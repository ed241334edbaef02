"""The products whose rows belong to experts, beside what the tests of all ops ask."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from problems import registry
from problems.grouped import ROUTINGS, GroupedCase, GroupedFloatCase, Problem
from torch import Tensor

import mixed_gemm

CASES = (
    GroupedCase(45, 72, 96, 5, group_size=32, zero_mode="sub", bias=True, activation="silu"),
    GroupedFloatCase(45, 72, 96, 5, dtype=torch.bfloat16, bias=True),
)


def of_each(problem: Problem) -> list[Tensor]:
    """The rows of each expert by the op of one weight."""
    op = getattr(mixed_gemm, problem.op.removeprefix("grouped_"))
    rows, begin = [], 0
    for expert, end in enumerate(problem.offs.tolist()):
        parts = (problem.b_packed, problem.scales, problem.third, problem.bias)
        of_one = (None if x is None else x[expert] for x in parts)
        rows.append(op(problem.a[begin:end], *of_one, **problem.options))
        begin = end
    return rows


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case).__name__)
def test_rows_have_the_bits_of_the_op_of_one_weight(case: Any, routing: str) -> None:
    problem = registry.make(dataclasses.replace(case, routing=routing))
    out = problem.run()
    rows = torch.cat(of_each(problem))
    assert torch.equal(out[: len(rows)], rows)
    assert not out[len(rows) :].any()


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case).__name__)
def test_no_experts_have_no_rows(case: Any) -> None:
    problem = registry.make(case)
    none = {"offs": problem.offs[:0], "b_packed": problem.b_packed[:0]}
    out = getattr(mixed_gemm, problem.op)(
        problem.a, none["b_packed"], problem.scales[:0], none["offs"], **problem.options
    )
    assert out.shape == (case.m, case.n) and not out.any()


def test_rows_of_no_expert_may_hold_anything() -> None:
    problem = registry.make(dataclasses.replace(CASES[0], routing="rows behind"))
    last = int(problem.offs[-1])
    expected = problem.run()
    spoiled = problem.a.clone()
    spoiled[last:] = torch.nan
    assert last < len(spoiled) and torch.equal(problem.run(spoiled), expected)
    spoiled.requires_grad_()
    problem.run(spoiled).sum().backward()
    assert spoiled.grad is not None and not spoiled.grad[last:].any()
    assert spoiled.grad[:last].isfinite().all()


def test_gradients_are_those_of_each_expert() -> None:
    problem = registry.make(dataclasses.replace(CASES[1], routing="rows behind"))
    assert problem.bias is not None
    a, bias = problem.a.clone().requires_grad_(), problem.bias.clone().requires_grad_()
    grad = torch.randn(45, 72).bfloat16()
    dataclasses.replace(problem, a=a, bias=bias).call().backward(grad)
    mine = a.grad, bias.grad
    a.grad = bias.grad = None
    out = torch.cat(of_each(dataclasses.replace(problem, a=a, bias=bias)))
    out.backward(grad[: len(out)])
    for x, y in zip(mine, (a.grad, bias.grad), strict=True):
        assert torch.equal(x, y)  # type: ignore[arg-type]


def test_a_compiled_step_takes_any_routing() -> None:
    graphs = 0

    def count(graph: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph

    torch._dynamo.reset()
    problem = registry.make(CASES[0])

    def step(a: Tensor, offs: Tensor) -> Tensor:
        return dataclasses.replace(problem, a=a, offs=offs).call().square().sum()

    compiled = torch.compile(step, backend=count, fullgraph=True)
    for routing in ROUTINGS:
        offs = registry.make(dataclasses.replace(CASES[0], routing=routing)).offs
        found = []
        for run in (compiled, step):
            a = problem.a.clone().requires_grad_()
            run(a, offs).backward()
            found.append(a.grad)
        assert torch.equal(*found)
    assert graphs == 1
