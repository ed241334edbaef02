"""``GatedMLP``: three ops where everything is as it was found, the layers one by one wherever it is
not, and the same numbers both ways."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import mixed_gemm
from benchmarks.counting import counting
from mixed_gemm.nn.gated_mlp import GatedMLP, unmake_gated
from mixed_gemm.nn.plain_mlp import ACTIVATIONS, PlainMLP
from mixed_gemm.reference.moe import gated_error_bound

K, INNER = 64, 128
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def layer(rows: int, columns: int, dtype: torch.dtype, bias: bool = False) -> mixed_gemm.Linear:
    return mixed_gemm.Linear.from_float(nn.Linear(columns, rows, bias).to(dtype), group_size=32)


def pair(
    dtype: torch.dtype = torch.float32, activation: str = "silu", down: nn.Module | None = None
) -> tuple[Any, Any]:
    """(gated, its layers one by one)."""
    torch.manual_seed(0)
    layers = [layer(INNER, K, dtype, bias=True), layer(INNER, K, dtype)]
    last = layer(K, INNER, dtype) if down is None else down
    apart = PlainMLP(*layers, last, activation).eval()
    mine = copy.deepcopy(apart)
    parts = mine.gate_proj, mine.up_proj, mine.down_proj
    return GatedMLP.from_modules(*parts, activation=activation), apart


def calls(model: Any, x: Tensor) -> int:
    """How many ops of ours a call runs."""
    with torch.no_grad(), counting() as count:
        model(x)
    return count.calls


def numbers(dtype: torch.dtype = torch.float32, *shape: int) -> Tensor:
    return torch.randn(*(shape or (5, K)), generator=torch.Generator().manual_seed(1)).to(dtype)


def assert_one_by_one(model: Any, apart: Any, x: Tensor | None = None) -> None:
    x = numbers() if x is None else x
    assert torch.equal(model(x), apart(x))


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_between_the_products(activation: str, dtype: torch.dtype) -> None:
    """Within the bound of the op, and the one rounding that layers one by one make more; to the
    bit with relu, which rounds nothing."""
    model, apart = pair(dtype, activation, nn.Identity())
    x = 4 * numbers(dtype, 7, K)
    with torch.no_grad():
        found, wanted = model(x), apart(x)
        gate_up = torch.cat((apart.gate_proj(x), apart.up_proj(x)), -1)
    assert found.dtype == dtype and found.is_contiguous()
    bound = gated_error_bound(gate_up, activation=activation)
    apart_rounds = torch.finfo(dtype).eps * wanted.double().abs() + bound
    assert ((found.double() - wanted.double()).abs() <= bound + apart_rounds).all()
    if activation == "relu":
        assert torch.equal(found, wanted)
    elif dtype != torch.float32:
        assert not torch.equal(found, wanted)  # else the page says too much


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", ((K,), (1, 1, K), (2, 3, K), (0, K)))
def test_shapes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    model, apart = pair(dtype, "relu")
    x = numbers(dtype, *shape)
    with torch.no_grad():
        assert torch.equal(model(x), apart(x))
        assert is_gated(model, x)
    assert calls(model, x) == calls(apart, x) == 3


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_are_those_of_the_layers(dtype: torch.dtype) -> None:
    model, apart = pair(dtype)
    grads = []
    for each in (model, apart):
        x = numbers(dtype).requires_grad_()
        each(x).float().square().sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


# --- calls that are not what was found -----------------------------------------------------------

# Within each of these the layers run one by one.
MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "gradients": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a tangent": torch.autograd.forward_ad.dual_level,
}


class Heard(TorchDispatchMode):
    """Tells whether the op of a gate runs."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.gate |= "gated_activation" in str(func)
        return func(*args, **(kwargs or {}))


def is_gated(model: Any, x: Tensor | None = None) -> bool:
    """Whether a call runs in three ops."""
    with Heard() as heard:
        model(numbers() if x is None else x)
    return heard.gate


@pytest.mark.parametrize("mode", MODES)
def test_modes_in_which_layers_run_one_by_one(mode: str) -> None:
    model, apart = pair()
    with torch.no_grad(), MODES[mode]():
        assert not is_gated(model)
        assert_one_by_one(model, apart)
    with torch.inference_mode():
        assert is_gated(model)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "train mode": lambda model: model.train(),
    "a hook on gate": lambda model: model.gate_proj.register_forward_hook(lambda *_: None),
    "a hook on up": lambda model: model.up_proj.register_forward_pre_hook(lambda *_: None),
    "another forward of up": lambda model: setattr(model.up_proj, "forward", model.up_proj.forward),
    "a dense gate": lambda model: setattr(model, "gate_proj", nn.Linear(K, INNER)),
    "another weight": lambda model: setattr(model, "up_proj", layer(INNER, K, torch.float32)),
    "another bias": lambda model: setattr(
        model.gate_proj, "bias", nn.Parameter(torch.ones(INNER))
    ),
    "the layers swapped": lambda model: model._modules.update(
        gate_proj=model.up_proj, up_proj=model.gate_proj
    ),
    "another activation": lambda model: setattr(model, "activation", "relu"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changes_after_which_layers_run_one_by_one(change: str) -> None:
    model, apart = pair()
    assert calls(model, numbers()) == 3
    for each in (model, apart):
        torch.manual_seed(2)
        CHANGES[change](each)
    with torch.no_grad():
        assert not is_gated(model)
        assert_one_by_one(model, apart)


def test_other_dtypes_and_calls_run_one_by_one() -> None:
    model, apart = pair(torch.bfloat16)
    with torch.no_grad():
        assert not is_gated(model, numbers(torch.float32))
        assert_one_by_one(model, apart, numbers(torch.float32))
        assert torch.equal(model(x=numbers(torch.bfloat16)), apart(x=numbers(torch.bfloat16)))
        with pytest.raises(TypeError, match="forward"):
            model(numbers(torch.bfloat16), 1)


def test_vmap_runs_one_by_one() -> None:
    model, apart = pair()
    x = numbers(torch.float32, 3, 5, K)
    with torch.no_grad():
        assert torch.equal(torch.func.vmap(model)(x), torch.func.vmap(apart)(x))


def test_hooks_are_heard_and_taken_away() -> None:
    model, _ = pair()
    heard: list[str] = []
    handles = [
        getattr(model, name).register_forward_hook(lambda *_, name=name: heard.append(name))
        for name in ("gate_proj", "up_proj", "down_proj")
    ]
    with torch.no_grad():
        model(numbers())
        assert heard == ["gate_proj", "up_proj", "down_proj"]
        for handle in handles[:2]:
            handle.remove()
        assert is_gated(model) and heard[3:] == ["down_proj"]


def test_down_may_be_anything() -> None:
    """It is called as a module, whatever it has become."""
    model, apart = pair()
    for each in (model, apart):
        torch.manual_seed(3)
        each.down_proj = nn.Sequential(nn.Linear(INNER, K), nn.Tanh())
    with torch.no_grad():
        assert is_gated(model)
        assert torch.allclose(model(numbers()), apart(numbers()), atol=1e-5)


def test_what_is_written_into_weights_counts() -> None:
    model, apart = pair(activation="relu")
    with torch.no_grad():
        for each in (model, apart):
            each.up_proj.weight.copy_(torch.ones(INNER, K))
            each.gate_proj.bias.mul_(-3)
        assert is_gated(model)
        assert_one_by_one(model, apart)


# --- copies, files, graphs -----------------------------------------------------------------------


@pytest.mark.parametrize("copied", (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))))
def test_copies_run_in_three_ops(copied: Callable[[Any], Any]) -> None:
    model, _ = pair()
    again = copied(model)
    assert type(again) is type(model) and isinstance(again, PlainMLP)
    with torch.no_grad():
        assert is_gated(again) and torch.equal(again(numbers()), model(numbers()))


def test_other_dtypes_after_a_conversion() -> None:
    model, apart = (x.to(torch.bfloat16) for x in pair(activation="relu"))
    with torch.no_grad():
        assert is_gated(model, numbers(torch.bfloat16))
        assert_one_by_one(model, apart, numbers(torch.bfloat16))


def test_state_dicts_are_those_of_the_layers() -> None:
    model, apart = pair()
    found, wanted = model.state_dict(), apart.state_dict()
    assert list(found) == list(wanted) and all(torch.equal(found[x], wanted[x]) for x in wanted)
    torch.manual_seed(9)
    other = PlainMLP(*(layer(*x.weight.shape, torch.float32, bias=x.bias is not None)
                       for x in apart.children()), "silu").eval()  # fmt: skip
    model.load_state_dict(other.state_dict())
    with torch.no_grad():
        assert is_gated(model)
        assert torch.allclose(model(numbers()), other(numbers()), atol=1e-5)


def test_it_is_taken_back() -> None:
    model, apart = pair()
    unmake_gated(model)
    assert type(model) is PlainMLP and list(vars(model)) == list(vars(apart))
    with torch.no_grad():
        assert_one_by_one(model, apart)


@pytest.mark.parametrize("mode", (torch.no_grad, torch.inference_mode))
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_compiled_graph_has_three_ops(dtype: torch.dtype, mode: Any) -> None:
    inductor: Any = pytest.importorskip("torch._inductor.utils")
    model, _ = pair(dtype)
    torch._dynamo.reset()
    with mode():
        found, code = inductor.run_and_get_code(
            torch.compile(model, fullgraph=True), numbers(dtype)
        )
        assert torch.equal(found, model(numbers(dtype)))
    text = "\n".join(code)
    assert text.count("mixed_gemm.fpA_intB_gemm.default(") == 2
    assert text.count("mixed_gemm.gated_activation.default(") == 1


def test_a_compiled_graph_follows_what_is_replaced() -> None:
    model, apart = pair()
    torch._dynamo.reset()
    run = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = numbers()
    with torch.no_grad():
        assert torch.equal(run(x), model(x))
        for each in (model, apart):
            torch.manual_seed(2)
            each.gate_proj = layer(INNER, K, torch.float32)
        assert torch.equal(run(x), apart(x))
    assert torch.equal(run(x), apart(x))  # with gradients


@pytest.mark.parametrize("strict", (False, True))
def test_exported_programs_have_the_layers(strict: bool) -> None:
    model, apart = pair()
    with torch.no_grad():
        found = torch.export.export(model, (numbers(),), strict=strict)
        assert not any("gated" in str(node.target) for node in found.graph.nodes)
        assert torch.equal(found.module()(numbers()), apart(numbers()))


def test_torch_fx_sees_the_layers() -> None:
    model, apart = pair()
    graph = torch.fx.symbolic_trace(model)
    with torch.no_grad():
        assert torch.equal(graph(numbers()), apart(numbers()))


# --- refusals ------------------------------------------------------------------------------------


def _made(gate: Any, up: Any, **options: Any) -> GatedMLP:
    return GatedMLP.from_modules(gate, up, nn.Identity(), **options)


REFUSALS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "activation": (
        lambda: _made(layer(64, K, torch.float32), layer(64, K, torch.float32), activation="mish"),
        ValueError, "activation must be one of silu, gelu, gelu_tanh, relu, got 'mish'",
    ),
    "dense": (
        lambda: _made(nn.Linear(K, 64), layer(64, K, torch.float32)),
        TypeError, "gate must be a mixed_gemm.Linear, got Linear. Hint: mixed_gemm.Linear.from_fl",
    ),
    "rows": (
        lambda: _made(layer(64, K, torch.float32), layer(128, K, torch.float32)),
        ValueError, "but they have 64 and 128 output channels",
    ),
    "padding": (
        lambda: _made(layer(72, K, torch.float32), layer(72, K, torch.float32)),
        ValueError, "but their 72 output channels are no multiple of 64",
    ),
    "scheme": (
        lambda: _made(
            layer(64, K, torch.float32), mixed_gemm.Linear.from_float(nn.Linear(K, 64), "w8a16")
        ),
        ValueError, "but of up, its scheme is int8",
    ),
    "nothing": (lambda: GatedMLP()(torch.ones(2)), NotImplementedError, "Hint: GatedMLP.from_mod"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    run, kind, text = REFUSALS[case]
    with pytest.raises(kind, match=text):
        run()
