"""Every method of peft over quantized layers, against the same adapter over dense layers with the
dequantized weights: the output, every gradient, the parameters that train, what merging leaves.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm

peft = pytest.importorskip("peft", reason="optional: hf extra")

K = 144  # the longest sum in a layer here: 16 channels of 3 x 3 taps
# Sums in another order: below K * eps of each of two layers, and of what goes back through them.
BOUND = 4 * K * torch.finfo(torch.float32).eps
INPUT: dict[str, Callable[[], Tensor]] = {
    "linear": lambda: torch.randn(5, 64),
    "conv": lambda: torch.randn(2, 16, 6, 6),
    "embedding": lambda: torch.tensor([[1, 4, 7, 3]]),
}
# What this version of a method is known to run on; the others refuse the dense layer as well.
RUNS = {
    "linear": "LORA ADALORA BOFT FOURIERFT HRA IA3 LOHA LOKR OFT VBLORA VERA dora rslora lora_bias",
    "conv": "LORA ADALORA BOFT HRA IA3 LOHA LOKR OFT dora rslora lora_bias",
    "embedding": "LORA OFT TRAINABLE_TOKENS dora rslora",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
    "lora_bias": {"lora_bias": True},
    "gaussian": {"init_lora_weights": "gaussian"},
    "orthogonal": {"init_lora_weights": "orthogonal"},
    "all biases": {"bias": "all"},
}
# Writes into a copy of the weight in every call, which is rounded: has a test of its own below.
ROUNDS = {"SHIRA"}
# Trains the weight itself, or asks for exactly nn.Linear: refused for a quantized layer.
REFUSED = {"LN_TUNING": "do not train", "GLORA": "is not a plain torch.nn.Linear"}


class Net(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a: nn.Module
        self.b: nn.Module
        if kind == "conv":
            self.a, self.b = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 16, 1)
        else:
            self.a = nn.Linear(64, 64) if kind == "linear" else nn.Embedding(50, 64)
            self.b = nn.Linear(64, 64)
        self.config = {"model_type": "custom", "hidden_size": 64}

    def forward(self, x: Tensor) -> Any:
        return self.b(torch.relu(self.a(x)))


def pair(kind: str) -> tuple[Net, Net]:
    """(quantized, dense with the dequantized weights)."""
    quantized = Net(kind).eval()
    mixed_gemm.quantize_(quantized, "w4a16", group_size=16, embeddings=True, progress=False)
    dense = copy.deepcopy(quantized)
    dense.a, dense.b = quantized.a.to_float(), quantized.b.to_float()  # type: ignore[operator]
    for layer in (dense.a, dense.b):
        layer.weight.requires_grad_(False)  # type: ignore[union-attr,operator]
    return quantized, dense


def methods() -> dict[str, Callable[[list[str]], Any]]:
    """Name -> f(names of layers) -> a configuration of peft."""
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    sizes = {
        "r": 4, "oft_block_size": 4, "boft_block_size": 4, "total_step": 10, "block_size": 16,
        "n_frequency": 20, "num_vectors": 16, "vector_length": 16, "topk": 2,
        "token_indices": [1, 3], "feedforward_modules": [],
    }  # fmt: skip

    def of(config: Any) -> Callable[[list[str]], Any]:
        fields = config.__dataclass_fields__
        options = {name: value for name, value in sizes.items() if name in fields}
        if "oft_block_size" in fields:
            options.pop("r", None)  # one says the other
        targeted = "target_modules" in fields
        return lambda names: config(**options, **({"target_modules": names} if targeted else {}))

    found = {x.value: of(config) for x, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    for name, options in VARIANTS.items():
        found[name] = lambda names, more=options: peft.LoraConfig(r=4, target_modules=names, **more)
    return found


def adapted(model: Net, config: Any) -> Any:
    """With adapters that are no longer zero."""
    torch.manual_seed(7)
    found = peft.get_peft_model(copy.deepcopy(model), config).eval()
    torch.manual_seed(8)
    for parameter in found.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn(parameter.shape) * 0.05)
    return found


def apart(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-30))


def outcome(model: Net, config: Callable[[list[str]], Any], names: list[str], x: Tensor) -> Any:
    """(adapted, its output, its gradients), or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = adapted(model, config(names))
            y = found(x)
            (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
        except Exception as error:
            return error
    trained = {n: p.grad for n, p in found.named_parameters() if p.requires_grad}
    return found, y.detach(), trained


@pytest.mark.parametrize("kind", INPUT)
def test_every_method_is_as_over_dense_layers(kind: str) -> None:
    quantized, dense = pair(kind)
    names, ran = ["a"] if kind == "embedding" else ["a", "b"], set()
    x = INPUT[kind]()
    for name, config in methods().items():
        wanted = outcome(dense, config, names, x)
        found = outcome(quantized, config, names, x)
        if isinstance(wanted, Exception):
            assert type(found) is type(wanted), (name, found)
            continue
        if name in REFUSED:
            assert REFUSED[name] in str(found), (name, found)
            continue
        assert not isinstance(found, Exception), (name, found)
        if name in ROUNDS:
            continue
        assert apart(found[1], wanted[1]) <= BOUND, name
        assert found[2].keys() == wanted[2].keys(), name
        for parameter, grad in wanted[2].items():
            if grad is None:
                assert found[2][parameter] is None, (name, parameter)
            else:
                assert apart(found[2][parameter], grad) <= BOUND, (name, parameter)
        ran.add(name)
    assert set(RUNS[kind].split()) & methods().keys() <= ran


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in INPUT
        for name in ("LORA", "dora", "OFT", "LOHA", "LOKR", "BOFT", "IA3")[
            : 3 if kind == "embedding" else None
        ]
    ],
)
def test_merging_rounds_what_it_leaves_of_the_dense_layer(kind: str, name: str) -> None:
    quantized, dense = pair(kind)
    config = methods()[name]
    wanted = adapted(dense, config(["a"])).merge_and_unload().a.weight.detach()
    merged = adapted(quantized, config(["a"])).merge_and_unload()
    assert type(merged.a) is type(quantized.a)
    before: Any = quantized.a.weight
    rounded, found = before.requantized(wanted).dequantize(), merged.a.weight.dequantize()
    # Where the dense value is half way between two codes, the last bit of a sum decides.
    slack = BOUND * wanted.abs().max()
    assert ((found - wanted).abs() <= (rounded - wanted).abs() + slack).all()
    assert apart(found, before.dequantize()) > 1e-3


def test_shira_trains_the_weight_that_merging_leaves() -> None:
    """It adds to a copy of the weight in place, which rounds; gradients pass straight through."""
    if "SHIRA" not in methods():
        pytest.skip("this peft has no SHiRA")
    quantized, dense = pair("linear")
    config, x = methods()["SHIRA"], INPUT["linear"]()
    found, y, grads = outcome(quantized, config, ["a", "b"], x)
    rounded = copy.deepcopy(dense)
    for layer in "ab":
        delta = found.base_model.model.get_submodule(layer).get_delta_weight("default").to_dense()
        weight: Any = quantized.get_submodule(layer).weight
        leaf = weight.requantized(weight.dequantize() + delta.detach()).dequantize()
        rounded.get_submodule(layer).weight = nn.Parameter(leaf)
    wanted = rounded(x)
    (wanted * torch.linspace(-1, 1, wanted.numel()).reshape(wanted.shape)).sum().backward()
    assert apart(y, wanted.detach()) <= BOUND
    for layer in "ab":
        module = found.base_model.model.get_submodule(layer)
        rows, columns = module.shira_indices["default"].long()
        whole: Any = rounded.get_submodule(layer).weight
        (name,) = (n for n in grads if f".{layer}." in n)
        assert apart(grads[name], whole.grad[rows, columns]) <= BOUND
    merged = found.merge_and_unload()
    assert apart(merged(x), y) <= BOUND


def test_lora_beside_a_convolution_that_rounds_images() -> None:
    model, x = Net("conv").eval(), INPUT["conv"]()
    mixed_gemm.quantize_(
        model, "w8a8", activations="static", calibration=[torch.randn(4, 16, 6, 6)], progress=False
    )
    plain = copy.deepcopy(model.a)
    found, _, grads = outcome(model, methods()["LORA"], ["a", "b"], x)
    assert all(bool(grad.any()) for grad in grads.values())
    layer = found.base_model.model.a
    first, second = layer.lora_A["default"], layer.lora_B["default"]
    assert type(first) is type(second) is nn.Conv2d
    wanted = plain(x) + second(first(x)) * layer.scaling["default"]
    assert torch.equal(layer(x), wanted)


@pytest.mark.parametrize("kind", INPUT)
def test_a_layer_that_is_to_train_whole_is_refused(kind: str) -> None:
    quantized, _ = pair(kind)
    with pytest.raises(RuntimeError, match=r"do not train.*stays dense with quantize_\(skip="):
        peft.get_peft_model(quantized, peft.LoraConfig(target_modules=["a"], modules_to_save=["b"]))
