"""The names of gates are found by trying what the code of a model computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from nn.test_experts import config, replaced
from support.stacked_experts import check, experts_of
from torch import nn
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Experts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from mixed_gemm.nn.gates import Gate, gate_of


@contextlib.contextmanager
def gated(activation: str, own: bool = False) -> Iterator[Any]:
    kind, module = (
        (transformers.DeepseekV4Config, DeepseekV4Experts) if own
        else (transformers.MixtralConfig, MixtralExperts)
    )  # fmt: skip
    yield replaced(module(config(kind, 2, hidden_act=activation)))


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        ("silu", "silu"), ("swish", "silu"), ("gelu", "gelu"), ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"), ("relu", "relu"), ("gelu_python", "gelu"),
        ("gelu_fast", "gelu_tanh"), ("quick_gelu", None), ("relu2", None), ("relu6", None),
        ("gelu_10", None), ("tanh", None), ("mish", None), ("linear", None), ("leaky_relu", None),
    ],
)  # fmt: skip
def test_gates_are_found_by_trying(activation: str, name: str | None) -> None:
    with gated(activation) as experts:
        assert gate_of(experts) == (None if name is None else Gate(name))


def test_gates_of_classes_are_found_by_trying() -> None:
    experts = experts_of("gpt-oss")
    assert gate_of(experts) == Gate("swiglu_oai", 7.0, 1.702)
    first = check(experts)
    experts.limit = 0.25  # type: ignore[assignment]
    assert not torch.equal(check(experts), first)
    assert gate_of(experts) == Gate("swiglu_oai", 0.25, 1.702)
    with gated("silu", own=True) as other:
        assert gate_of(other) == Gate("silu", float(other.limit))


def test_another_activation_is_computed() -> None:
    experts = experts_of()
    first = check(experts)
    experts.act_fn = nn.GELU()
    found = check(experts)
    assert not torch.allclose(found, first, atol=1e-3)
    experts.act_fn = nn.PReLU(init=0.0)  # is a relu until it has learned
    check(experts)
    nn.init.constant_(experts.act_fn.weight, 0.5)
    check(experts)
