"""What torch.nn.utils and torch.ao make of quantized layers: what they make of dense layers with
the dequantized weights, to the bit, or a refusal."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao import quantization as ao
from torch.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx
from torch.nn.utils import fusion, parametrizations, parametrize, prune

import mixed_gemm

LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "Linear": (lambda: nn.Linear(64, 64), lambda: torch.randn(5, 64)),
    "Conv2d": (lambda: nn.Conv2d(16, 32, 3), lambda: torch.randn(2, 16, 8, 8)),
    "Embedding": (lambda: nn.Embedding(50, 64), lambda: torch.tensor([[1, 4, 7, 3]])),
}


def pair(kind: str) -> tuple[Any, Any, Tensor]:
    """(quantized, dense and frozen, input)."""
    torch.manual_seed(0)
    make, x = LAYERS[kind]
    model = nn.Sequential(make())
    mixed_gemm.quantize_(model, "w4a16", group_size=16, embeddings=True, progress=False)
    dense: Any = model[0].to_float()  # type: ignore[operator]
    dense.weight.requires_grad_(False)
    return model[0].eval(), dense.eval(), x()


class Plus(nn.Module):
    """Adds what trains to a weight."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.delta = nn.Parameter(torch.randn(weight.shape) * 0.01)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.delta


def parametrized(layer: Any) -> Any:
    return parametrize.register_parametrization(layer, "weight", Plus(layer.weight))


def baked(layer: Any) -> Any:
    """The sum is the weight, a dense one."""
    return parametrize.remove_parametrizations(parametrized(layer), "weight")


TOOLS: dict[str, Callable[[Any], Any]] = {
    "register_parametrization": parametrized,
    "remove_parametrizations": baked,
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": lambda layer: parametrizations.spectral_norm(layer).train(),
    "orthogonal": parametrizations.orthogonal,
    "old spectral_norm": nn.utils.spectral_norm,
    "l1_unstructured": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    "ln_structured": lambda layer: prune.ln_structured(layer, "weight", 0.3, n=2, dim=0),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_tool_does_what_it_does_to_the_dense_layer(kind: str, tool: str) -> None:
    results = []
    quantized, dense, x = pair(kind)
    for layer in (quantized, dense):
        torch.manual_seed(3)
        made = TOOLS[tool](layer)
        y = made(x)
        if y.requires_grad:
            y.square().sum().backward()
        grads = {n: p.grad for n, p in made.named_parameters() if p.grad is not None}
        results.append((y.detach(), grads))
    (found, mine), (wanted, theirs) = results
    assert mine.keys() == theirs.keys()
    assert torch.equal(found, wanted)
    # Gradients of a filter are sums over pixels, in an order that its strides decide.
    assert all(torch.allclose(mine[n], theirs[n], rtol=1e-5, atol=1e-5) for n in mine)


def test_what_would_train_the_weight_is_refused() -> None:
    quantized, _, _ = pair("Linear")
    with pytest.raises(RuntimeError, match="quantized weights do not train"):
        nn.utils.weight_norm(quantized)


@pytest.mark.parametrize("kind", ["Linear", "Conv2d"])
def test_a_batch_norm_is_folded_into_a_dense_layer(kind: str) -> None:
    quantized, dense, x = pair(kind)
    norm = (nn.BatchNorm1d(64) if kind == "Linear" else nn.BatchNorm2d(32)).eval()
    for buffer in (norm.running_mean, norm.running_var, norm.weight.data):
        buffer.uniform_(0.5, 2)  # type: ignore[union-attr]
    fuse: Any = fusion.fuse_linear_bn_eval if kind == "Linear" else fusion.fuse_conv_bn_eval
    before = quantized(x)
    found, wanted = fuse(quantized, norm), fuse(dense, norm)
    assert not isinstance(found.weight, mixed_gemm.QuantizedTensor)
    assert torch.equal(found(x), wanted(x))
    assert torch.equal(quantized(x), before)


def test_quantization_of_torch_leaves_them_alone() -> None:
    quantized, _, x = pair("Linear")
    model = nn.Sequential(quantized, nn.ReLU(), nn.Linear(64, 8)).eval()
    model.qconfig = ao.get_default_qconfig("x86")  # type: ignore[assignment]
    wanted = quantized(x)
    mapping = ao.get_default_qconfig_mapping("x86")
    made = [
        ao.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, torch.qint8),
        ao.convert(ao.prepare(copy.deepcopy(model))),
        convert_fx(prepare_fx(copy.deepcopy(model), mapping, (x,))),
        fuse_fx(copy.deepcopy(model)),
    ]
    for each in made:
        layer = each.get_submodule("0")
        assert type(layer) is mixed_gemm.Linear and torch.equal(layer(x), wanted)
    with pytest.raises((AssertionError, NotImplementedError)):
        ao.fuse_modules(model, [["0", "1"]])
