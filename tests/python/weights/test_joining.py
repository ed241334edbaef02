"""Several weights as one: the same rows, to the bit, in the memory of the whole."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.weight_kinds import MODULES, module, same_parts
from torch import nn

from mixed_gemm import Linear, Scheme
from mixed_gemm.weights import QuantizedTensor
from mixed_gemm.weights.joining import joined, same_memory, shared_parts, why_apart

K = 96
ROWS = (72, 128, 5)  # behind the first there is padding, behind the second none
OTHERS: dict[str, Callable[..., Any]] = {
    name: lambda n, scheme=name: Linear.from_float(nn.Linear(K, n), scheme)
    for name in ("mxfp4", "nvfp4", "nf4", "fp4")
}


def weights_of(kind: str) -> list[QuantizedTensor]:
    """Three weights of a kind that read the same activations."""
    torch.manual_seed(1)
    if kind in OTHERS:
        return [OTHERS[kind](n).weight for n in ROWS]
    first: QuantizedTensor = module(kind).weight
    found = [first]
    for n in ROWS[1:]:
        dense = torch.randn(n, K) * 0.1
        new = type(first)(
            {**first.cut(0, 0, 1).join([first.cut(0, 0, 1)] * n).tensors(), **shared_parts(first)},
            first.scheme, (n, K), first.dtype,
        ) if kind != "fp8 blocks" else type(first).from_float(dense, first.scheme)  # fmt: skip
        if kind != "fp8 blocks":
            new = new.requantized(dense)
        found.append(new)
    return found


KINDS = [x for x in MODULES if module(x).weight.dim() == 2 and x != "rows"] + list(OTHERS)


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_parts(kind: str) -> None:
    weights = weights_of(kind)
    assert [why_apart(weights[0], x) for x in weights] == [""] * 3
    made = joined(weights)
    x = torch.randn(7, K)
    whole = made.whole.product(x)
    for weight, (start, count) in zip(weights, made.places, strict=True):
        assert count == weight.shape[0] and start % 64 == 0
        assert torch.equal(whole[:, start : start + count], weight.product(x)), kind
        dense = made.whole.dequantize()[start : start + count]
        assert torch.equal(dense, weight.dequantize())


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_slices_of_the_whole(kind: str) -> None:
    """A weight of the slices is the weight that was joined, and what is written into one is seen by
    the whole."""
    weights = weights_of(kind)
    made = joined(weights)
    for weight, parts in zip(weights, made.parts, strict=True):
        before = copy.deepcopy(weight)
        for name, part in parts.items():
            setattr(weight, name, part)
        assert same_parts(weight, before)
        storages = {x.untyped_storage().data_ptr() for x in made.whole.tensors().values()}
        assert {x.untyped_storage().data_ptr() for x in parts.values()} <= storages
    start, count = made.places[1]
    other = weights[1].requantized(torch.randn(weights[1].shape))
    for name, part in made.parts[1].items():
        given = getattr(other, name)
        part.view(torch.uint8).copy_(given.view(torch.uint8)) if part.is_contiguous() else (
            part.copy_(given)
        )
    assert torch.equal(made.whole.dequantize()[start : start + count], other.dequantize())


def test_what_is_not_alike_is_told() -> None:
    first = Linear.from_float(nn.Linear(K, 64), group_size=32).weight
    others = {
        "its kind of weight is w8a8, beside integer": Linear.from_float(nn.Linear(K, 64), "w8a8"),
        "its scheme is int4, group 16, symmetric, beside int4, group 32, symmetric":
            Linear.from_float(nn.Linear(K, 64), group_size=16),
        "its dtype is bfloat16, beside float32":
            Linear.from_float(nn.Linear(K, 64).bfloat16(), group_size=32),
        "its in_features is 128, beside 96": Linear.from_float(nn.Linear(128, 64), group_size=32),
        "its device is meta, beside cpu":
            Linear(K, 64, group_size=32, scheme=Scheme.weight_only(4, 32), device="meta"),
    }  # fmt: skip
    for reason, layer in others.items():
        assert why_apart(first, layer.weight) == reason
    scaled = [Linear(K, 64, group_size=32, bits=4, pre_scale=True).weight for _ in range(2)]
    assert why_apart(*scaled) == ""
    assert why_apart(first, scaled[0]).startswith("its parts is b_packed uint8")
    scaled[1].tensors()["pre_scale"][3] = 2
    assert why_apart(*scaled) == "its pre_scale has other values"


def test_memory_is_told_by_address_and_strides() -> None:
    x = torch.randn(6, 4)
    assert same_memory(x[2:], x.narrow(0, 2, 4)) and not same_memory(x[2:], x[1:5])
    assert not same_memory(x[:2], x[:2].clone()) and not same_memory(x[:, :2], x[:2, :].t())
    assert not same_memory(torch.empty(2, device="meta"), torch.empty(2, device="meta"))
