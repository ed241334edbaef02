"""Quantized weights and ``torch.inference_mode``: what is made outside is used within, and what is
made within is used outside, as any tensor of torch is.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from support.weight_kinds import MODULES, module
from torch import Tensor, nn

# What is asked of a weight [N, ...]. Operators that are made of others (``to``, ``contiguous``,
# ``chunk``) reach a weight of inference mode as they are, the others in parts.
CALLS: dict[str, Callable[[Any], Any]] = {
    "detach": lambda w: w.detach(),
    "data": lambda w: w.data,
    "parameter": lambda w: nn.Parameter(w, requires_grad=False),
    "rows": lambda w: w[:16],
    "a row": lambda w: w[3],
    "an element": lambda w: w.flatten()[5].item(),
    "narrow": lambda w: w.narrow(0, 0, 16),
    "chunk": lambda w: w.chunk(2)[1],
    "view": lambda w: w.view(w.shape),
    "flat": lambda w: w.view(-1),
    "unsqueeze": lambda w: w.unsqueeze(0),
    "transpose": lambda w: w.transpose(0, 1),
    "clone": lambda w: w.clone(),
    "contiguous": lambda w: w.contiguous(),
    "to a device": lambda w: w.to("cpu"),
    "cpu": lambda w: w.cpu(),
    "to its dtype": lambda w: w.to(w.dtype),
    "bfloat16": lambda w: w.bfloat16(),
    "to another dtype": lambda w: w.to(device="cpu", dtype=torch.float16),
    "type_as": lambda w: w.type_as(torch.ones(1)),
    "a sum": lambda w: w + 1,
    "a norm": lambda w: w.float().norm(dim=-1),
    "dequantize": lambda w: w.dequantize(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda w: pickle.loads(pickle.dumps(w)),
}
# Made in the one mode and used in the other.
MODES: dict[str, tuple[Any, Any]] = {
    "used within": (nullcontext, torch.inference_mode),
    "made within": (torch.inference_mode, nullcontext),
    "both within": (torch.inference_mode, torch.inference_mode),
}


def _value(x: Any) -> Any:
    return x.dequantize() if hasattr(x, "scheme") else x * 1.0


def _outcome(call: Callable[[Any], Any], weight: Tensor) -> tuple[Any, ...]:
    """The kind and the value of what a call gives, or the kind of its error."""
    try:
        found = call(weight)
    except (NotImplementedError, RuntimeError, ValueError) as error:
        return type(error), str(error)
    is_parameter = isinstance(found, nn.Parameter)
    dtype = getattr(found, "dtype", None)
    return type(found), is_parameter, dtype, torch.as_tensor(_value(found)).double().tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", MODULES)
def test_a_weight_is_the_same_in_both_modes(kind: str, mode: str) -> None:
    made_in, used_in = MODES[mode]
    usual = module(kind).weight
    with made_in():
        weight = module(kind).weight
    differ = []
    for name, call in CALLS.items():
        expected = _outcome(call, usual)
        with used_in():
            found = _outcome(call, weight)
        if found != expected:
            differ.append(f"{name}: {found[:3]}, not {expected[:3]}")
    assert not differ, "\n".join(differ)


@pytest.mark.parametrize("view", ("detach", "rows", "chunk", "transpose"))
def test_a_view_of_a_usual_weight_is_no_tensor_of_inference_mode(view: str) -> None:
    weight = module("int4").weight
    with torch.inference_mode():
        assert not CALLS[view](weight).is_inference()
        assert CALLS["clone"](weight).is_inference()


@pytest.mark.parametrize("convert", ("half", "cpu", "bfloat16"))
@pytest.mark.parametrize("mode", MODES)
def test_a_layer_is_converted_saved_and_loaded_in_both_modes(mode: str, convert: str) -> None:
    made_in, used_in = MODES[mode]
    with made_in():
        layer = module("int4 zero points")
    usual, loaded = module("int4 zero points"), getattr(module("int4 zero points"), convert)()
    with used_in():
        for each in (layer, usual):
            getattr(each, convert)()
        loaded.load_state_dict(layer.state_dict())
    assert type(layer.weight) is type(usual.weight) and layer.weight.dtype == usual.weight.dtype
    x = torch.randn(3, layer.in_features, dtype=layer.weight.dtype)
    with torch.no_grad():
        assert torch.equal(layer(x), usual(x)) and torch.equal(loaded(x), usual(x))
