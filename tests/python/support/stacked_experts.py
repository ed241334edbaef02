"""Experts whose weights may be stacked, a comparison with experts one by one, and the ways in which
a linear, its weight or its bias becomes another."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from nn.test_experts import made, replaced
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.nn.experts import Experts

HIDDEN, INNER, COUNT = 64, 128, 4
ANY = {"w4a16": {"group_size": 32}, "w4a16_asym": {"group_size": 32}, "w8a16": {}, "mxfp4": {},
       "nvfp4": {}}  # fmt: skip


def dense_experts(kind: str, count: int, inner: int, dtype: torch.dtype) -> Experts:
    """Experts of random weights and biases, as linears."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nn.test_experts.HIDDEN", HIDDEN)
        patch.setattr("nn.test_experts.INNER", inner)
        return replaced(made(kind, count).to(dtype))


def experts_of(
    kind: str = "mixtral", scheme: str = "w4a16", dtype: torch.dtype = torch.float32
) -> Experts:
    """Experts of random weights and biases, quantized, in no stack yet."""
    found = dense_experts(kind, COUNT, INNER, dtype)
    for expert in found.experts:
        for name, linear in list(expert._modules.items()):
            assert isinstance(linear, nn.Linear)
            setattr(expert, name, mixed_gemm.Linear.from_float(linear, scheme, **ANY[scheme]))
    return found


def given(dtype: torch.dtype = torch.float32, tokens: int = 11) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(7)
    return (
        torch.randn(tokens, HIDDEN, generator=random).to(dtype),
        torch.randint(0, COUNT, (tokens, 2), generator=random),
        torch.rand(tokens, 2, generator=random).to(dtype),
    )


def check(experts: Experts, stacked: bool = True, *args: Tensor) -> Tensor:
    """Compare with experts one by one, and return the result."""
    args = args or given()
    found = experts(*args)
    assert (experts._stacked is not None) is stacked, experts.why_one_by_one
    wanted = experts._one_by_one(*args)
    near = 1e-4 if found.dtype == torch.float32 else 0.05
    assert torch.allclose(found.float(), wanted.float(), rtol=near, atol=near * 10)
    assert torch.equal(experts(*args), found)
    return found.detach()


def linear(experts: Experts, number: int = 1, name: str = "up_proj") -> Any:
    return experts.expert(number)._modules[name]


def address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def set_weight(experts: Experts) -> None:
    linear(experts).set_weight(linear(experts, 2).weight.cut(0, 0, INNER))


def set_parameter(experts: Experts) -> None:
    linear(experts).weight = nn.Parameter(linear(experts, 2).weight.cut(0, 0, INNER), False)


def set_data(experts: Experts) -> None:
    linear(experts).weight.data = torch.randn(INNER, HIDDEN)


def write(experts: Experts) -> None:
    with torch.no_grad():
        linear(experts).weight.copy_(torch.randn(INNER, HIDDEN))
        linear(experts, 3).weight[3:5] = 1.5


def set_part(experts: Experts) -> None:
    linear(experts).weight.scales = linear(experts).scales * 2


def write_part(experts: Experts) -> None:
    linear(experts).weight.scales.mul_(2)


def swap(experts: Experts) -> None:
    torch.utils.swap_tensors(linear(experts).weight, linear(experts, 2).weight)


def replace(experts: Experts) -> None:
    experts.expert(1).up_proj = copy.deepcopy(linear(experts, 2))


def replace_straight(experts: Experts) -> None:
    experts.expert(1)._modules["up_proj"] = copy.deepcopy(linear(experts, 2))


def replace_submodule(experts: Experts) -> None:
    experts.set_submodule("1.up_proj", copy.deepcopy(linear(experts, 2)))


def replace_expert(experts: Experts) -> None:
    experts.add_module("1", copy.deepcopy(experts.expert(2)))


def set_bias(experts: Experts) -> None:
    linear(experts).bias = nn.Parameter(torch.randn(INNER))


def set_bias_data(experts: Experts) -> None:
    linear(experts).bias.data = torch.randn(INNER)


def write_bias(experts: Experts) -> None:
    with torch.no_grad():
        linear(experts).bias.add_(1)


def step(experts: Experts) -> None:
    optimizer = torch.optim.SGD([linear(experts).bias], lr=0.1)
    experts(*given()).sum().backward()
    optimizer.step()


CHANGES = [set_weight, set_parameter, set_data, write, set_part, write_part, swap, replace,
           replace_straight, replace_submodule, replace_expert, set_bias, set_bias_data, write_bias,
           step]  # fmt: skip
