"""Code that calls the class of a quantized layer with the arguments of torch's gets torch's layer;
one that says how to quantize gets ours."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import mixed_gemm
from mixed_gemm import Conv2d, Embedding, Int8Conv2d, Linear

# class -> (torch's, its first arguments by name, what asks for a quantized layer)
CLASSES: dict[Any, tuple[Any, dict[str, Any], list[dict[str, Any]]]] = {
    Linear: (
        nn.Linear,
        {"in_features": 128, "out_features": 32},
        [
            {"scheme": "w4a16"},
            {"bits": 8},
            {"group_size": 32},
            {"zero_mode": "sub"},
            {"scheme": "w8a8", "activations": "dynamic"},
            {"pre_scale": False},
            {"permutation": False},
        ],
    ),
    Conv2d: (
        nn.Conv2d,
        {"in_channels": 16, "out_channels": 8, "kernel_size": 3},
        [{"bits": 4}, {"block_size": -1}, {"offsets": False}],
    ),
    Int8Conv2d: (
        nn.Conv2d,
        {"in_channels": 16, "out_channels": 8, "kernel_size": 3},
        [{"activations": "static"}],
    ),
    Embedding: (
        nn.Embedding,
        {"num_embeddings": 10, "embedding_dim": 8},
        [{"bits": 8}, {"scheme": "w8a16"}],
    ),
}
EACH = pytest.mark.parametrize("kind", CLASSES)


def made(kind: Any) -> Any:
    _, arguments, quantizing = CLASSES[kind]
    return kind(**arguments, **quantizing[0])


@EACH
def test_a_clone_by_type_is_the_dense_layer(kind: Any) -> None:
    of_torch, arguments, _ = CLASSES[kind]
    layer = made(kind)
    places = {"device": "cpu", "dtype": torch.float64}
    for clone in (
        type(layer)(*arguments.values()),
        layer.__class__(**arguments),
        type(layer)(*arguments.values(), **places),
        nn.utils.skip_init(type(layer), *arguments.values()),
    ):
        wanted = of_torch(*arguments.values())
        assert type(clone) is of_torch and clone.weight.shape == wanted.weight.shape
        assert clone.weight.requires_grad and list(clone.state_dict()) == list(wanted.state_dict())
    assert type(layer)(*arguments.values(), **places).weight.dtype == torch.float64
    torch.manual_seed(5)
    found = type(layer)(*arguments.values())
    torch.manual_seed(5)
    assert torch.equal(found.weight, of_torch(*arguments.values()).weight)


@EACH
def test_every_keyword_on_quantizing_makes_a_quantized_layer(kind: Any) -> None:
    _, arguments, quantizing = CLASSES[kind]
    for options in quantizing:
        layer = kind(*arguments.values(), **options)
        assert type(layer) is kind and isinstance(layer.weight, mixed_gemm.QuantizedTensor)
    assert {name for options in quantizing for name in options} == kind.quantizing
    known = inspect.signature(kind).parameters
    assert kind.quantizing < known.keys() and known.keys() >= {*arguments, "device", "dtype"}


@EACH
def test_copies_of_a_layer_stay_quantized(kind: Any) -> None:
    layer = made(kind)
    for twin in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(twin) is kind
        assert all(
            torch.equal(part, twin.state_dict()[name]) for name, part in layer.state_dict().items()
        )


@EACH
def test_a_subclass_makes_what_its_constructor_says(kind: Any) -> None:
    of_torch, arguments, quantizing = CLASSES[kind]

    class Renamed(kind):
        pass

    class Own(kind):
        def __init__(self, *sizes: Any) -> None:
            super().__init__(*sizes, **quantizing[0])

    assert type(Renamed(*arguments.values())) is of_torch
    assert type(Renamed(*arguments.values(), **quantizing[0])) is Renamed
    assert type(Own(*arguments.values())) is Own
    assert isinstance(Own(*arguments.values()).weight, mixed_gemm.QuantizedTensor)


def test_torch_renames_the_class_of_a_parametrized_layer() -> None:
    layer = Linear.from_float(nn.Linear(64, 32), "w8a16")
    parametrize.register_parametrization(layer, "weight", nn.Identity())
    assert type(layer) is not Linear and type(type(layer)(16, 8)) is nn.Linear


@pytest.mark.parametrize("kind", [Linear, Conv2d])
def test_a_parametrized_weight_is_computed_once_in_a_call(kind: Any) -> None:
    """A parametrization may draw numbers, or count its calls as spectral_norm does."""

    class Counted(nn.Module):
        count = 0

        def forward(self, weight: Any) -> Any:
            self.count += 1
            return weight * 1.0

    torch.manual_seed(0)
    of_torch, arguments, _ = CLASSES[kind]
    layer = kind.from_float(of_torch(*arguments.values()))
    counted = Counted()
    parametrize.register_parametrization(layer, "weight", counted)
    x = torch.randn(2, 128) if kind is Linear else torch.randn(2, 16, 5, 5)
    counted.count = 0
    layer(x)
    assert counted.count == 1


def test_bits_of_an_embedding() -> None:
    with pytest.raises(ValueError, match=r"mixed_gemm.Embedding: bits must be 8, got 4"):
        Embedding(10, 8, bits=4)
