"""A layer multiplies by the weight that it has now, compiled and eager, whatever was done to the
parameter: ``F.linear`` with the parameter itself says what is right.
"""

from __future__ import annotations

import copy
import io
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import compiled_layers
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import mixed_gemm

Layer = Any
Change = Callable[[Layer, Layer], Any]  # (layer, another of its kind) -> what takes its place

KINDS = ("w4a16", "w8a16", "w4a16 in act-order", "w8a8", "w8a8_block", "fp8", "embedding")


def frozen(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight, requires_grad=False)


def set_weight(layer: Layer, other: Layer) -> None:
    layer.weight = frozen(other.weight)


def set_data(layer: Layer, other: Layer) -> None:
    layer.weight.data = other.weight.dequantize()


def set_dense(layer: Layer, other: Layer) -> None:
    layer.weight = frozen(other.weight.dequantize())


def delete_and_set(layer: Layer, other: Layer) -> None:
    weight = layer.weight
    del layer.weight
    layer.register_parameter("weight", frozen(other.weight if other is not None else weight))


def write_parameters(layer: Layer, other: Layer) -> None:
    layer._parameters["weight"] = other.weight


def update_parameters(layer: Layer, other: Layer) -> None:
    layer._parameters.update(weight=other.weight)


def pop_parameters(layer: Layer, other: Layer) -> None:
    layer._parameters.pop("weight")
    layer._parameters["weight"] = other.weight


def merge_parameters(layer: Layer, other: Layer) -> None:
    layer._parameters |= {"weight": other.weight}


def take_out_and_put_back(layer: Layer, other: Layer) -> None:
    taken = dict(layer._parameters.popitem() for _ in range(len(layer._parameters)))
    layer._parameters.setdefault("bias", taken.get("bias"))
    layer._parameters.setdefault("weight", other.weight)


def replace_parameters(layer: Layer, other: Layer) -> None:
    layer._parameters = {**layer._parameters, "weight": other.weight}


def swap(layer: Layer, other: Layer) -> None:
    torch.utils.swap_tensors(layer.weight, frozen(other.weight))


def swap_with_module(layer: Layer, other: Layer) -> None:
    torch.utils.swap_tensors(layer.weight, other.weight)


def swap_with_dense(layer: Layer, other: Layer) -> None:
    torch.utils.swap_tensors(layer.weight, frozen(other.weight.dequantize()))


def cast(layer: Layer, other: Layer) -> None:
    layer.to(torch.bfloat16)


def cast_back(layer: Layer, other: Layer) -> None:
    layer.float()


def convert_by_swapping(layer: Layer, other: Layer) -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.to(torch.bfloat16).float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def convert_by_overwriting(layer: Layer, other: Layer) -> None:
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        layer.to(torch.bfloat16).float()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def load(layer: Layer, other: Layer) -> None:
    layer.load_state_dict(other.state_dict())


def assign(layer: Layer, other: Layer) -> None:
    layer.load_state_dict(other.state_dict(), assign=True)


def through_meta(layer: Layer, other: Layer) -> None:
    layer.to("meta")
    layer.to_empty(device="cpu")
    layer.load_state_dict(other.state_dict())


def write_in_place(layer: Layer, other: Layer) -> None:
    with torch.no_grad():
        layer.weight.copy_(other.weight)
        layer.weight.mul_(0.5)


def merge(layer: Layer, other: Layer) -> None:
    layer.weight.data += other.weight.dequantize()


def new_bias(layer: Layer, other: Layer) -> None:
    if getattr(layer, "bias", None) is not None:
        layer.bias = nn.Parameter(torch.randn_like(layer.bias), requires_grad=False)


def pickled(layer: Layer, other: Layer) -> Layer:
    return pickle.loads(pickle.dumps(layer))


def saved(layer: Layer, other: Layer) -> Layer:
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def shallow_then_written(layer: Layer, other: Layer) -> Layer:
    """A copy shares the parameters: what is written into them is for both."""
    twin = copy.copy(layer)
    layer._parameters["weight"] = other.weight
    return twin


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        set_weight, set_data, set_dense, delete_and_set, write_parameters, update_parameters,
        pop_parameters, merge_parameters, take_out_and_put_back, replace_parameters, swap,
        swap_with_module, swap_with_dense, cast,
        cast_back, convert_by_swapping, convert_by_overwriting, load, assign, through_meta,
        write_in_place, merge, new_bias, pickled, saved, shallow_then_written,
    )
}  # fmt: skip
CHANGES["deepcopied"] = lambda layer, other: copy.deepcopy(layer)
DENSE_BEFORE = {"set_dense", "swap_with_dense"}  # the weight is not quantized afterwards


def expected(layer: Layer, x: Tensor) -> Tensor:
    if isinstance(layer, nn.Embedding):
        return nn.functional.embedding(x, layer.weight)
    return nn.functional.linear(x, layer.weight, layer.bias)


def input_for(layer: Layer, x: Tensor) -> Tensor:
    return x.to(layer.weight.dtype) if x.is_floating_point() else x


def check(layer: Layer, call: Callable[[Layer, Tensor], Tensor], x: Tensor) -> None:
    x = input_for(layer, x)
    want = expected(layer, x)
    assert torch.equal(layer(x), want), "eager"
    assert torch.equal(call(layer, x), want), "compiled"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def run(layer: Layer, x: Tensor) -> Tensor:
    return layer(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_one_change(change: str, kind: str) -> None:
    layer, x = compiled_layers.made(kind)
    other, _ = compiled_layers.made(kind, seed=1)
    call = torch.compile(run, backend="eager", fullgraph=True)
    check(layer, call, x)
    changed = CHANGES[change](layer, other)
    check(layer if changed is None else changed, call, x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_changes_in_any_order(kind: str, seed: int) -> None:
    pick = random.Random(f"{kind} {seed}")
    layer, x = compiled_layers.made(kind, seed)
    call = torch.compile(run, backend="eager", fullgraph=True)
    done = []
    for step in range(12):
        other, _ = compiled_layers.made(kind, seed=100 + step)
        quantized = isinstance(layer.weight, mixed_gemm.QuantizedTensor)
        able = [x for x in CHANGES if quantized or x in ("set_weight", "write_parameters")]
        done.append(pick.choice(able))
        if layer.weight.dtype != torch.float32:
            layer.float()
        layer = CHANGES[done[-1]](layer, other) or layer
        try:
            check(layer, call, x)
        except AssertionError as error:
            raise AssertionError(f"{error} after {done}") from error


@pytest.mark.parametrize("kind", KINDS)
def test_parts_stay_the_weights_own(kind: str) -> None:
    """No second copy of a weight is kept: the plain parts are the parts."""
    for name, change in CHANGES.items():
        layer, _ = compiled_layers.made(kind)
        other, _ = compiled_layers.made(kind, seed=1)
        layer = change(layer, other) or layer
        if name in DENSE_BEFORE:
            assert layer.plain_weight is None
            continue
        for part, tensor in layer.weight.tensors().items():
            assert getattr(layer.plain_weight, part) is tensor, (name, part)


def test_functional_call_around_and_inside() -> None:
    layer, x = compiled_layers.made("w4a16")
    others = [compiled_layers.made("w4a16", seed)[0] for seed in (1, 2)]
    state = [dict(other.named_parameters()) for other in others]

    def inside(parameters: dict[str, Any], x: Tensor) -> Any:
        return torch.func.functional_call(layer, parameters, (x,))

    call = torch.compile(inside, backend="eager", fullgraph=True)
    alone = torch.compile(run, backend="eager", fullgraph=True)
    for other, parameters in zip(others, state, strict=True):
        assert torch.equal(inside(parameters, x), other(x))
        assert torch.equal(call(parameters, x), other(x))
        check(layer, alone, x)
    assert layer.plain_weight is layer.weight.plain(), "slow from here on"


def test_a_parametrized_weight() -> None:
    class Half(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight * 0.5

    layer, x = compiled_layers.made("w8a16")
    dense = layer.weight.dequantize()
    call = torch.compile(run, backend="eager")
    parametrize.register_parametrization(layer, "weight", Half(), unsafe=True)
    want = nn.functional.linear(x, dense * 0.5, layer.bias)
    torch.testing.assert_close(layer(x), want)
    torch.testing.assert_close(call(layer, x), want)


def test_a_filter_is_followed_with_its_scales() -> None:
    """Int8Conv2d keeps the scales of images as numbers of Python."""
    layer, x = compiled_layers.made("Int8Conv2d")
    other, _ = compiled_layers.made("Int8Conv2d", seed=1)
    wide = mixed_gemm.Int8Conv2d.from_float(
        other.to_float(), input_range=(-1.0, 9.0), output_range=(-20.0, 20.0)
    )
    wide.bias = layer.bias
    call = torch.compile(run, backend="eager", fullgraph=True)
    call(layer, x)
    for change in (set_weight, write_in_place_whole, swap):
        layer, x = compiled_layers.made("Int8Conv2d")
        change(layer, wide)
        assert torch.equal(layer(x), wide(x)), change.__name__
        assert torch.equal(call(layer, x), wide(x)), change.__name__


def write_in_place_whole(layer: Layer, other: Layer) -> None:
    layer.weight.copy_(other.weight)


@pytest.mark.parametrize("kind", ["Conv2d", "Int8Conv2d"])
def test_a_dense_filter(kind: str) -> None:
    layer, x = compiled_layers.made(kind)
    layer.weight = frozen(layer.weight.dequantize())
    want = nn.functional.conv2d(x, layer.weight, layer.bias, padding=1)
    assert torch.equal(layer(x), want)
    assert torch.equal(torch.compile(run, backend="eager")(layer, x), want)
