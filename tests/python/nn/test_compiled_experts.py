"""Experts in stacked weights under torch.compile and torch.export: one graph, never of weights that
were replaced."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.stacked_experts import (
    CHANGES,
    INNER,
    check,
    experts_of,
    given,
    linear,
    set_bias_data,
    set_weight,
    step,
)
from torch import Tensor, nn

from mixed_gemm.nn.experts import Experts


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def compiled(module: Any, **words: Any) -> Any:
    return torch.compile(module, **{"fullgraph": True, "backend": "aot_eager", **words})


@pytest.mark.parametrize("kind", ["mixtral", "gpt-oss", "nemotron"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_graph_serves_all_tokens_and_routings(kind: str, dtype: torch.dtype) -> None:
    experts = experts_of(kind, dtype=dtype).requires_grad_(False)
    experts.stack()
    graphs = 0

    def count(module: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return module.forward

    run = torch.compile(experts, fullgraph=True, backend=count, dynamic=True)
    for tokens in (7, 2, 30):
        args = given(dtype, tokens)
        assert torch.equal(run(*args), experts(*args))
    assert graphs == 1


def test_inductor_computes_the_same() -> None:
    experts = experts_of("gpt-oss").requires_grad_(False)
    experts.stack()
    run = compiled(experts, backend="inductor", dynamic=True)
    for tokens in (7, 30):
        args = given(tokens=tokens)
        assert torch.allclose(run(*args), experts(*args), rtol=1e-4, atol=1e-3)


def test_gradients_of_a_graph() -> None:
    grads = []
    experts = experts_of("gpt-oss").requires_grad_(False)
    experts.stack()
    for way in (experts, compiled(experts)):
        x, index, weights = given()
        way(x.requires_grad_(), index, weights.requires_grad_()).square().sum().backward()
        grads.append((x.grad, weights.grad))
    for found, wanted in zip(*grads, strict=True):
        assert found is not None and torch.equal(found, wanted)


@pytest.mark.parametrize("change", [x for x in CHANGES if x not in (set_bias_data, step)])
def test_a_graph_is_left_for_another_when_something_is_replaced(change: Any) -> None:
    """Where a bias is assigned memory, nobody hears of it before the next call that is eager."""
    experts = experts_of("gpt-oss").requires_grad_(False)
    experts.stack()
    run = compiled(experts, fullgraph=False)
    first = run(*given())
    assert torch.equal(first, experts(*given()))
    change(experts)
    experts.requires_grad_(False)
    found = run(*given())  # where nothing is stacked, the graph breaks and the experts are stacked
    assert not torch.equal(found, first)
    assert torch.equal(found, check(experts))
    torch._dynamo.reset()
    assert torch.equal(compiled(experts)(*given()), found)


def test_a_graph_is_left_while_hooks_hear() -> None:
    experts = experts_of("gpt-oss").requires_grad_(False)
    experts.stack()
    run = compiled(experts, fullgraph=False)
    first = run(*given())
    for owner in (linear(experts), experts.expert(1)):
        handle = owner.register_forward_hook(lambda *x: x[2] * 2)
        found = run(*given())
        assert torch.equal(found, experts(*given())) and not torch.equal(found, first)
        handle.remove()
        for _ in range(2):
            assert torch.allclose(run(*given()), first, rtol=1e-4, atol=1e-3)
        assert torch.equal(run(*given()), first)
        assert torch._dynamo.explain(experts)(*given()).graph_break_count == 0


def test_who_compiles_first_has_one_graph_in_the_second_call() -> None:
    experts = experts_of()
    run = compiled(experts, fullgraph=False)
    first = run(*given())
    assert experts._stacked is not None
    assert torch.equal(run(*given()), first) and torch.equal(experts(*given()), first)
    torch._dynamo.reset()
    broken = torch._dynamo.explain(experts)(*given()).graph_break_count
    assert broken == 0


def test_a_graph_after_another_dtype_and_after_files() -> None:
    experts = experts_of().requires_grad_(False)
    experts.stack()
    run = compiled(experts)
    run(*given())
    experts.bfloat16()
    args = given(torch.bfloat16)
    assert torch.equal(run(*args), experts(*args))
    state = copy.deepcopy(experts.state_dict())
    for name, x in state.items():
        if name.endswith("scales"):
            x.mul_(2)
    before = run(*args)
    for assign in (False, True):
        experts.load_state_dict(state, assign=assign)
        assert torch.equal(run(*args), check(experts, True, *args))
    assert not torch.equal(run(*args), before)


def test_functions_of_other_parameters_are_traced() -> None:
    experts = experts_of("gpt-oss").requires_grad_(False)
    experts.stack()

    def run(parameters: dict[str, Tensor], *args: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(experts, parameters, args)
        return found

    first = experts(*given())
    weight = linear(experts, 2).weight.cut(0, 0, INNER)
    bias = torch.randn(INNER)
    for other in ({"1.up_proj.weight": weight}, {"1.up_proj.bias": bias}):
        traced = compiled(run, fullgraph=False)
        found = traced(other, *given())
        assert torch.allclose(found, run(other, *given()), rtol=1e-4, atol=1e-3)
        assert not torch.allclose(found, first, rtol=1e-4, atol=1e-3)
        assert torch.allclose(experts(*given()), first, rtol=1e-4, atol=1e-3)


def test_they_are_exported() -> None:
    class Layer(nn.Module):
        def __init__(self, experts: Experts) -> None:
            super().__init__()
            self.experts = experts

        def forward(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
            return self.experts(x, index, weights)  # type: ignore[no-any-return]

    layer = Layer(experts_of("gpt-oss").requires_grad_(False))
    layer.experts.stack()
    tokens = torch.export.Dim("tokens", min=2)
    shapes = ({0: tokens},) * 3
    exported = torch.export.export(layer, given(), dynamic_shapes=shapes)
    for count in (11, 5):
        args = given(tokens=count)
        assert torch.equal(exported.module()(*args), layer(*args))


def test_a_graph_without_a_stack_is_refused_whole() -> None:
    experts = experts_of()
    set_weight(experts)
    experts.expert(1).up_proj = linear(experts).to_float()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(experts)(*given())
    assert torch.equal(compiled(experts, fullgraph=False)(*given()), check(experts, False))
