"""Activations in the kernel of the layer before them: what torch computes in two modules."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import mixed_gemm
from mixed_gemm.nn import FusedSequential

ACTIVATIONS: dict[str, Any] = {
    "relu": nn.ReLU,
    "relu_inplace": lambda: nn.ReLU(inplace=True),
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
}
EXACT = ("relu", "relu_inplace", "relu6")  # rounding before or after them is the same
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def layers(kind: str, make: Any) -> nn.Sequential:
    torch.manual_seed(3)
    if kind == "conv":
        return nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), make(), nn.Conv2d(48, 16, 1), make())
    return nn.Sequential(nn.Linear(80, 144), make(), nn.Linear(144, 72), make(), nn.Linear(72, 8))


def inputs(kind: str, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(4)
    return 3 * torch.randn((2, 32, 7, 9) if kind == "conv" else (5, 80), dtype=dtype)


def pair(kind: str, name: str, dtype: torch.dtype) -> tuple[nn.Sequential, nn.Sequential]:
    """(two modules each, fused), of the same weights."""
    plain = layers(kind, ACTIVATIONS[name]).to(dtype)
    fused = copy.deepcopy(plain)
    scheme = "w4a16" if kind == "conv" else "w8a16"
    mixed_gemm.quantize_(plain, scheme, progress=False)
    report = mixed_gemm.quantize_(fused, scheme, fuse_activations=True, progress=False)
    assert type(fused) is FusedSequential and type(plain) is nn.Sequential
    assert set(report.fused.values()) == {name.removesuffix("_inplace")} and len(report.fused) == 2
    return plain, fused


def by_ops(model: nn.Sequential, x: torch.Tensor, name: str) -> torch.Tensor:
    """The same by calls of the ops; every other module is an activation, if one follows."""
    for index in range(0, len(model), 2):
        layer, activation = model[index], name if index + 1 < len(model) else "identity"
        if isinstance(layer, mixed_gemm.Conv2d):
            x = mixed_gemm.qconv2d(
                x, layer.weight_packed, layer.scales, layer.offsets, layer.bias,
                bits=layer.bits, block_size=layer.block_size, activation=activation,
                kernel_size=layer.kernel_size, stride=layer.stride, padding=layer.padding,
            )  # fmt: skip
        else:
            x = mixed_gemm.fpA_intB_gemm(
                x, layer.b_packed, layer.scales, layer.zeros, layer.bias,
                bits=layer.bits, group_size=layer.group_size, activation=activation,
            )  # fmt: skip
    return x


@pytest.mark.parametrize(
    ("kind", "name", "dtype"), itertools.product(("linear", "conv"), ACTIVATIONS, DTYPES)
)
def test_is_what_two_modules_compute(kind: str, name: str, dtype: torch.dtype) -> None:
    plain, fused = pair(kind, name, dtype)
    x = inputs(kind, dtype)
    got, want = fused(x.clone()), plain(x.clone())
    if name not in EXACT:  # which round twice: the op itself is held to its bound elsewhere
        want = by_ops(plain, x, name)
    assert torch.equal(got, want) and got.dtype == want.dtype


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_one_op_runs_for_a_layer_and_its_activation(kind: str) -> None:
    plain, fused = pair(kind, "silu", torch.float32)
    called = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            called.append(str(func))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watch():
        fused(inputs(kind, torch.float32))
    assert not any("silu" in name for name in called)
    assert sum("qconv2d" in name or "fpA_intB" in name for name in called) == len(plain) - 2


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_gradients_of_activations_and_bias(name: str) -> None:
    plain, fused = pair("linear", name, torch.float32)
    grads = []
    for model in (plain, fused):
        x = inputs("linear", torch.float32).requires_grad_()
        model(x).square().sum().backward()
        grads.append((x.grad, model[0].bias.grad))
    for want, got in zip(*grads, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_names_and_states_are_those_of_two_modules() -> None:
    plain, fused = pair("linear", "gelu", torch.float16)
    assert list(fused.state_dict()) == list(plain.state_dict())
    assert [type(x) for x in fused] == [type(x) for x in plain]
    fused.load_state_dict(plain.state_dict())
    x = inputs("linear", torch.float16)
    for twin in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        assert type(twin) is FusedSequential and torch.equal(twin(x), fused(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_to_one_graph(backend: str) -> None:
    _, fused = pair("linear", "relu", torch.float32)
    x = inputs("linear", torch.float32)
    assert torch.equal(torch.compile(fused, fullgraph=True, backend=backend)(x), fused(x))


def test_a_hook_or_an_adapter_makes_two_modules_of_a_pair() -> None:
    _, fused = pair("linear", "relu", torch.float32)
    x, seen = inputs("linear", torch.float32), []
    want = fused(x)
    handle = fused[0].register_forward_hook(lambda module, args, out: seen.append(out))
    assert torch.equal(fused(x), want) and (seen[0] < 0).any()
    handle.remove()
    handle = fused[1].register_forward_pre_hook(lambda module, args: (args[0] - 1,))
    assert not torch.equal(fused(x), want)
    handle.remove()

    class Adapter(nn.Linear):
        """As peft's: it calls the layer and adds to what comes out, before the activation."""

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return self.base(input) + 1

    adapter = Adapter(80, 144)
    adapter.base, fused[0] = fused[0], adapter
    assert torch.equal(fused(x)[:0], want[:0])
    hidden = torch.relu(adapter.base(x) + 1)
    assert torch.equal(fused(x), fused[4](torch.relu(fused[2](hidden))))


@pytest.mark.parametrize(
    ("after", "options"),
    [
        ([nn.Tanh()], {}),
        ([nn.LayerNorm(64), nn.ReLU()], {}),
        ([nn.ReLU()], {"skip": ["0"]}),
        ([nn.ReLU()], {"scheme": "w8a8"}),
    ],
)
def test_what_cannot_fuse_stays_two_modules(after: list[nn.Module], options: Any) -> None:
    model = nn.Sequential(nn.Linear(64, 64), *after)
    options = {"scheme": "w8a16", **options}
    report = mixed_gemm.quantize_(model, fuse_activations=True, progress=False, **options)
    assert report.fused == {} and type(model) is nn.Sequential


def test_the_report_says_so() -> None:
    model = layers("linear", nn.ReLU)
    report = mixed_gemm.quantize_(model, "w8a16", fuse_activations=True, progress=False)
    assert report.fused == {"0": "relu", "2": "relu"}
    assert "2 layers with their activation in the same kernel" in str(report)
