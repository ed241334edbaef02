"""``Experts`` computes what the module of transformers does that it takes the place of, for every
routing, and the same bits each time."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from problems import experts as exact
from torch import Tensor, nn
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.llama4.modeling_llama4 import Llama4TextExperts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHExperts

from mixed_gemm.nn.expert import Names
from mixed_gemm.nn.expert_tensors import apart, form_of
from mixed_gemm.nn.experts import Experts

HIDDEN, INNER = 24, 40


def config(kind: Any, count: int, **more: Any) -> Any:
    made = kind(
        hidden_size=HIDDEN, intermediate_size=INNER, num_local_experts=count,
        num_attention_heads=2, num_key_value_heads=2, **more,
    )  # fmt: skip
    made._experts_implementation = "eager"
    return made


def made(name: str, count: int) -> nn.Module:
    """A module of transformers with random weights and biases."""
    torch.manual_seed(count)
    if name == "mixtral":
        module: Any = MixtralExperts(config(transformers.MixtralConfig, count))
    elif name == "gpt-oss":
        module = GptOssExperts(config(transformers.GptOssConfig, count))
    elif name == "nemotron":
        whole = config(
            transformers.NemotronHConfig, count, n_routed_experts=count,
            moe_intermediate_size=INNER, moe_latent_size=None,
        )  # fmt: skip
        module = NemotronHExperts(whole)
    else:
        module = Llama4TextExperts(config(transformers.Llama4TextConfig, count))
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    return module.eval()


def replaced(module: nn.Module) -> Experts:
    form = form_of(module)
    assert form is not None
    return apart(module, form, Names())


ROUTINGS = {
    "all experts": lambda e, k: torch.randint(0, e, (17, k)),
    "one takes all": lambda e, k: torch.full((9, k), e - 1),
    "some are empty": lambda e, k: torch.randint(0, e, (11, k)) // 2 * 2 % e,
    "one token": lambda e, k: torch.arange(k).view(1, k) % e,
    "no token": lambda e, k: torch.zeros(0, k, dtype=torch.int64),
}


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("count", "k"), [(1, 1), (4, 1), (4, 2), (7, 4), (256, 8)])
@pytest.mark.parametrize("name", ["mixtral", "gpt-oss", "nemotron"])
def test_they_compute_what_the_module_does(name: str, count: int, k: int, routing: str) -> None:
    module = made(name, count)
    experts = replaced(module)
    torch.manual_seed(0)
    index = ROUTINGS[routing](count, k)
    x, weights = torch.randn(len(index), HIDDEN), torch.rand(len(index), k)
    wanted = module(x, index, weights)
    found = experts(x, index, weights)
    assert found.dtype == x.dtype and found.shape == wanted.shape
    assert torch.allclose(found, wanted, atol=1e-5)
    assert torch.equal(found, experts(x, index, weights))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("count", "k"), [(1, 1), (4, 2), (16, 4)])
@pytest.mark.parametrize("tokens", [0, 1, 7, 60])
@pytest.mark.parametrize("routing", exact.ROUTINGS)
def test_every_row_goes_to_its_expert(
    routing: str, tokens: int, count: int, k: int, dtype: torch.dtype
) -> None:
    exact.check(routing, tokens, count, k, dtype, "cpu")


@pytest.mark.parametrize("count", [1, 5])
def test_sorted_rows_go_to_one_expert_each(count: int) -> None:
    module = made("llama4", count)
    x = torch.randn(count * 3, HIDDEN)
    assert torch.allclose(replaced(module)(x), module(x), atol=1e-5)


def test_numbers_of_no_expert_add_nothing() -> None:
    """As ranks mark the experts of others, and whatever else is no expert of theirs."""
    experts = replaced(made("mixtral", 4))
    x, weights = torch.randn(3, HIDDEN), torch.rand(3, 2)
    index = torch.tensor([[0, 4], [-1, 2], [9, -5]])
    found = experts(x, index, weights)
    first, second = (experts.expert(e)(x[i : i + 1], experts)[0] for i, e in ((0, 0), (1, 2)))
    assert torch.allclose(found[0], first * weights[0, 0], atol=1e-6)
    assert torch.allclose(found[1], second * weights[1, 1], atol=1e-6)
    assert not found[2].any()


@pytest.mark.parametrize("name", ["mixtral", "gpt-oss", "nemotron"])
def test_gradients_are_those_of_the_module(name: str) -> None:
    module = made(name, 4)
    experts = replaced(module)
    index, grads = torch.randint(0, 4, (9, 2)), list[list[Tensor]]()
    for each in (module, experts):
        torch.manual_seed(0)
        x = torch.randn(9, HIDDEN, requires_grad=True)
        weights = torch.rand(9, 2, requires_grad=True)
        each(x, index, weights).square().sum().backward()
        assert x.grad is not None and weights.grad is not None
        grads.append([x.grad, weights.grad])
    for found, wanted in zip(*grads, strict=True):
        assert torch.allclose(found, wanted, atol=1e-4)


def test_weights_are_views_and_copies_are_apart() -> None:
    module = made("gpt-oss", 3)
    experts = replaced(module)
    stacked: Any = module.gate_up_proj
    up = experts.expert(1)._modules["up_proj"]
    assert isinstance(up, nn.Linear)
    assert up.weight.untyped_storage().data_ptr() == stacked.untyped_storage().data_ptr()
    assert torch.equal(up.weight, stacked[1].t()[1::2])
    x, index, weights = torch.randn(5, HIDDEN), torch.randint(0, 3, (5, 2)), torch.rand(5, 2)
    copied = copy.deepcopy(experts)
    wanted = experts(x, index, weights)
    assert torch.equal(copied(x, index, weights), wanted)
    with torch.no_grad():
        up.weight.zero_()
    assert torch.equal(copied(x, index, weights), wanted)


def test_autocast_and_half_precision() -> None:
    module = made("mixtral", 4)
    x, index, weights = torch.randn(5, HIDDEN), torch.randint(0, 4, (5, 2)), torch.rand(5, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found = replaced(module)(x, index, weights)
    assert found.dtype == torch.float32
    half = module.bfloat16()
    wanted = half(x.bfloat16(), index, weights.bfloat16())
    found = replaced(half)(x.bfloat16(), index, weights.bfloat16())
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), wanted.float(), atol=0.05)


def test_modules_that_do_not_say_how_they_compute_are_none() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj = nn.Parameter(torch.zeros(2, 2 * INNER, HIDDEN))
            self.down_proj = nn.Parameter(torch.zeros(2, HIDDEN, INNER))

    assert form_of(Other()) is None
    assert form_of(nn.Linear(2, 2)) is None
    wrong = made("mixtral", 2)
    wrong.down_proj = nn.Parameter(torch.zeros(2, HIDDEN, INNER + 1))
    assert form_of(wrong) is None
    ranked: Any = made("mixtral", 2)
    ranked._is_expert_parallel = True
    assert form_of(ranked) is None
