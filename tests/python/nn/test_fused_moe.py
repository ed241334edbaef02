"""``fused_moe`` and ``StackedWeight`` against sums in float64 of each token's experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from problems import fused_moe as problems
from problems.fused_moe import ACTIVATIONS, SCHEMES, exact, made

import mixed_gemm
from mixed_gemm.weights import IntegerWeight, kinds
from mixed_gemm.weights.scheme import Scheme

NEAR = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def check(problem: problems.Problem, **options: Any) -> None:
    found, wanted = problem.run(**options), problem.wanted(**options)
    assert found.dtype == problem.x.dtype and found.shape == problem.x.shape
    far = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1)
    assert far < NEAR[found.dtype]
    assert torch.equal(found, problem.run(**options))


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_results_are_those_of_float64(scheme: str, biases: bool, dtype: torch.dtype) -> None:
    check(made(scheme, dtype=dtype, biases=biases))


@pytest.mark.parametrize("limit", [None, 0.5])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(activation: str, limit: float | None) -> None:
    check(made("int8", biases=True), activation=activation, limit=limit)


@pytest.mark.parametrize(("limit", "alpha"), [(7.0, 1.702), (0.7, 1.702), (None, 1.0)])
def test_the_gate_of_gpt_oss(limit: float | None, alpha: float) -> None:
    check(made("mxfp4", biases=True), activation="swiglu_oai", limit=limit, alpha=alpha)


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("tokens", [0, 1, 7, 60])
@pytest.mark.parametrize(("experts", "top_k"), [(1, 1), (8, 1), (8, 4), (256, 8)])
def test_sums_that_are_exact_are_exact(
    experts: int, top_k: int, tokens: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(experts + tokens)
    problem = exact(experts, top_k, tokens, dtype)
    wanted = problem.wanted(activation="relu").to(dtype)
    assert torch.equal(problem.run(activation="relu"), wanted)


@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_experts_of_other_ranks_add_nothing(ids: torch.dtype) -> None:
    """Two ranks with two and three of five experts: their sums are that of one with all."""
    whole = made("int4", tokens=20)
    whole.ids = whole.ids.to(ids)
    parts = []
    for mine in ([0, 3], [1, 2, 4]):
        expert_map = torch.full((5,), -1, dtype=torch.int32)
        expert_map[mine] = torch.arange(len(mine), dtype=torch.int32)
        w13, w2 = (
            mixed_gemm.StackedWeight(x.b_packed[mine], x.scales[mine], x.scheme)
            for x in (whole.w13, whole.w2)
        )
        dense = (whole.dense[0][mine], whole.dense[1][mine])
        part = problems.Problem(whole.x, w13, w2, whole.weights, whole.ids, dense, None)
        check(part, expert_map=expert_map)
        parts.append(part.run(expert_map=expert_map))
    assert torch.allclose(parts[0] + parts[1], whole.run(), atol=1e-5)


def test_ids_of_no_expert_add_nothing() -> None:
    problem = made("int4", tokens=4)
    problem.ids = torch.tensor([[-1, 0], [5, -1], [1, 5], [2, 3]])
    check(problem)
    assert not problem.run()[1].any()
    problem.ids = torch.tensor([[-1, 0], [5, -9], [1, 99], [2, 3]])
    expert_map = torch.tensor([4, -1, 0, 1, 2])
    check(problem, expert_map=expert_map)
    assert not problem.run(expert_map=expert_map)[1].any()
    with pytest.raises(ValueError, match="topk_ids"):
        problem.run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_routers_weight_on_the_input(dtype: torch.dtype) -> None:
    problem = made("int8", top_k=1, dtype=dtype)
    check(problem, apply_router_weight_on_input=True)
    apart = problem.run() - problem.run(apply_router_weight_on_input=True)
    assert apart.abs().max() > 0.01
    problem.weights = problem.weights.to(dtype)
    check(problem, apply_router_weight_on_input=True)


def ordered(problem: problems.Problem) -> problems.Problem:
    """The same codes as the weights whose columns are in an order of each expert (act-order)."""
    weights, dense = [], []
    for weight, plain in zip((problem.w13, problem.w2), problem.dense, strict=True):
        orders = torch.stack([torch.randperm(plain.shape[2]) for _ in plain])
        weights.append(replace(weight, permutation=orders))
        dense.append(torch.stack([x[:, o.argsort()] for x, o in zip(plain, orders, strict=True)]))
    w13, w2 = weights
    return replace(problem, w13=w13, w2=w2, dense=tuple(dense))


@pytest.mark.parametrize("dtype", NEAR, ids=str)
def test_columns_in_an_order_of_each_expert(dtype: torch.dtype) -> None:
    problem = made("zeros sub", tokens=12, biases=True, dtype=dtype)
    problem.ids[0], problem.ids[1, 0] = -1, 5  # of no expert
    found = ordered(problem)
    check(found)
    assert (found.run() - problem.run()).abs().max() > 0.1
    found.x = found.x[:0]
    found.ids, found.weights = found.ids[:0], found.weights[:0]
    assert found.run().shape == (0, 96)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (torch.zeros(5, 96, dtype=torch.int32), "permutation must be int64, got int32"),
        (torch.zeros(4, 96).long(), r"permutation must be \[5, 96\] on cpu, got \[4, 96\] on cpu"),
        (torch.zeros(6, 96).long(), r"permutation must be \[5, 96\] on cpu, got \[6, 96\]"),
        (torch.zeros(5, 95).long(), r"permutation must be \[5, 96\] on cpu, got \[5, 95\]"),
        (torch.zeros(96).long(), r"permutation must be \[5, 96\] on cpu, got \[96\]"),
        (
            torch.zeros(5, 96, device="meta").long(),
            r"permutation must be .*, got \[5, 96\] on meta",
        ),
    ],
)
def test_an_order_of_other_experts_is_refused(order: torch.Tensor, said: str) -> None:
    problem = made("int4", tokens=5)
    with pytest.raises((TypeError, ValueError), match=f"StackedWeight.product: {said}"):
        replace(problem, w13=replace(problem.w13, permutation=order)).run()


@pytest.mark.parametrize("has_order", [False, True])
@pytest.mark.parametrize("on_input", [False, True])
def test_gradients_are_those_of_the_sums(on_input: bool, has_order: bool) -> None:
    options: dict[str, Any] = {"apply_router_weight_on_input": on_input}
    problem = made("zeros sub", top_k=1 if on_input else 3, biases=True)
    problem = ordered(problem) if has_order else problem
    grads = []
    for of in (problem.run, problem.wanted):
        problem.x = problem.x.detach().requires_grad_()
        problem.weights = problem.weights.detach().requires_grad_()
        of(**options).square().sum().backward()
        grads.append((problem.x.grad, problem.weights.grad))
    for found, wanted in zip(*grads, strict=True):
        assert found is not None and torch.allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_biases_get_gradients() -> None:
    problem = made("int8", biases=True)
    assert problem.biases is not None and problem.w13.bias is not None
    found, wanted = problem.w13.bias.requires_grad_(), problem.biases[0].requires_grad_()
    problem.run().sum().backward()
    problem.wanted().sum().backward()
    assert found.grad is not None and wanted.grad is not None
    assert torch.allclose(found.grad, wanted.grad, rtol=1e-3, atol=1e-4)


def test_a_graph_is_right_for_every_routing() -> None:
    problem = made("int4", tokens=12)
    compiled = torch.compile(problems.Problem.run, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        torch.manual_seed(seed)
        problem.ids = torch.randint(0, 1 + 2 * seed, (12, 2))
        assert torch.equal(compiled(problem), problem.run())


def weight(n: int = 64, k: int = 64, **words: Any) -> Any:
    scheme = words.pop("scheme", Scheme.weight_only(4, 32, "none"))
    kind: Any = kinds.kind_of("tests", scheme, (n, k))
    return kind.from_float(torch.randn(n, k, dtype=words.pop("dtype", torch.float32)), scheme)


def permuted() -> IntegerWeight:
    codes, scales = torch.zeros(64, 64, dtype=torch.int8), torch.ones(2, 64)
    order = torch.arange(63, -1, -1)
    return IntegerWeight.from_quantized(codes, scales, permutation=order, bits=4, group_size=32)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "no expert": ([], None, "weights must be as many of each expert, at least one"),
    "two and one": (
        [[weight(), weight()], [weight()]], None,
        "weights must be as many of each expert, at least one",
    ),
    "nf4": (
        [[weight(scheme=Scheme.named("nf4"))]], None,
        "weights must be packed integers, MXFP4 or NVFP4, got BookWeight",
    ),
    "dense": ([[torch.zeros(64, 64)]], None,
        "weights must be packed integers, MXFP4 or NVFP4, got Tensor"),
    "rows": (
        [[weight(40), weight(40)]], None,
        "weights must have a multiple of 64 rows to lie beside others, got 40",
    ),
    "kinds": (
        [[weight()], [weight(scheme=Scheme.named("mxfp4"))]], None,
        "weights must be of one kind, got IntegerWeight and FloatWeight",
    ),
    "shapes": (
        [[weight()], [weight(64, 128)]], None,
        f"weights must have one scheme, shape, dtype and device, got {weight()!r} and "
        f"{weight(64, 128)!r}",
    ),
    "dtypes": (
        [[weight()], [weight(dtype=torch.float16)]], None,
        f"weights must have one scheme, shape, dtype and device, got {weight()!r} and "
        f"{weight(dtype=torch.float16)!r}",
    ),
    "permuted": (
        [[permuted()]], None,
        "weights must take activations as they are, got a permutation or a pre_scale",
    ),
    "biases": (
        [[weight()], [weight()]], [[torch.zeros(64)], [None]],
        "biases must be given for all weights or for none",
    ),
    "a bias": (
        [[weight()], [weight()]], [[torch.zeros(64)], [torch.zeros(65)]],
        "biases must be [64] float32 on cpu each, got [65] float32 on cpu",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_weights_that_are_not_alike_are_refused(name: str) -> None:
    weights, biases, text = REFUSED[name]
    with pytest.raises(ValueError) as error:
        mixed_gemm.StackedWeight.of(weights, biases)
    assert str(error.value) == f"mixed_gemm.StackedWeight.of: {text}"


def test_one_weight_may_have_any_number_of_rows() -> None:
    one = weight(40)
    stacked = mixed_gemm.StackedWeight.of([[one], [weight(40)]])
    assert stacked.count == 2 and stacked.b_packed.shape == (2, 64, 32)
    rows, offs = torch.randn(3, 64), torch.tensor([3, 3], dtype=torch.int32)
    assert torch.equal(stacked.product(rows, offs), one.product(rows))


def test_calls_that_fit_no_weights_are_refused() -> None:
    problem = made("int4")
    with pytest.raises(ValueError) as error:
        problem.run(apply_router_weight_on_input=True)
    assert str(error.value) == (
        "mixed_gemm.fused_moe: topk_ids must have one choice where the router's weight multiplies "
        "the input, got 2 choices"
    )
    for expert_map, got in (
        (torch.zeros(5), "float32 (5,)"),
        (torch.zeros(0, dtype=torch.int64), "int64 (0,)"),
        (torch.zeros(5, 1, dtype=torch.int64), "int64 (5, 1)"),
    ):
        with pytest.raises(ValueError) as error:
            problem.run(expert_map=expert_map)
        assert str(error.value) == (
            "mixed_gemm.fused_moe: expert_map must be int32 or int64 [experts of the model], "
            f"got {got}"
        )
    problem.w2 = made("int4", experts=4).w2
    with pytest.raises(ValueError) as error:
        problem.run()
    assert str(error.value) == "mixed_gemm.fused_moe: w2 must have 5 experts as w13, got 4"
    with pytest.raises(ValueError, match="activation"):
        made("int4").run(activation="tanh")
    with pytest.raises(TypeError, match="weights"):
        problem = made("int4")
        problem.weights = problem.weights.double()
        problem.run()
