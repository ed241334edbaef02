"""Layers whose products are one: each returns what its own product would be, whatever happens
between their calls, and keeps nothing."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from benchmarks.counting import counting
from mixed_gemm.nn.joint import Joint

K = 96
ROWS = (128, 64, 40)


class Attention(nn.Module):
    """Reads one tensor three times, and lets ``between`` happen before the others."""

    def __init__(self, bias: bool = False, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [
            mixed_gemm.Linear.from_float(nn.Linear(K, n, bias=bias).to(dtype), group_size=32)
            for n in ROWS
        ]
        self.q, self.k, self.v = layers
        self.between: Callable[[Tensor], Any] | None = None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = self.q(x)
        if self.between is not None:
            self.between(x)
        return q, self.k(x), self.v(x)


def pair(**options: Any) -> tuple[Attention, Attention]:
    """(joined, the same apart)."""
    apart = Attention(**options).eval()
    model = copy.deepcopy(apart)
    Joint([model.q, model.k, model.v])
    return model, apart


def layers_of(model: Attention) -> list[Any]:
    return [model.q, model.k, model.v]


def assert_same(model: Any, apart: Any, x: Tensor, calls: int) -> None:
    """The two return the same bits, the first with so many calls of the op."""
    with counting() as count:
        found = model(x.clone())
    assert count.calls == calls
    for a, b in zip(found, apart(x.clone()), strict=True):
        assert torch.equal(a, b)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("shape", ((K,), (1, 1, K), (2, 3, K), (0, K)))
def test_one_product_in_place_of_three(bias: bool, shape: tuple[int, ...]) -> None:
    model, apart = pair(bias=bias)
    assert_same(model, apart, torch.randn(shape), 1)


def test_weights_are_held_once() -> None:
    model, _ = pair(bias=True)
    for name in ("b_packed", "scales", "bias"):
        storages = {getattr(x, name).untyped_storage().data_ptr() for x in layers_of(model)}
        assert len(storages) == 1
    assert model.q.b_packed.untyped_storage().nbytes() == (128 + 64 + 64) * 128 // 2


def test_some_have_a_bias() -> None:
    apart = Attention(bias=True).eval()
    apart.k.register_parameter("bias", None)
    model = copy.deepcopy(apart)
    Joint(layers_of(model))
    assert_same(model, apart, torch.zeros(3, K), 1)
    assert not torch.signbit(apart.k(torch.zeros(1, K))).any()
    assert_same(model, apart, torch.randn(3, K), 1)


# --- what happens between two calls --------------------------------------------------------------


def _other_dtype(x: Tensor) -> Any:
    return torch.autocast("cpu", torch.bfloat16).__enter__()


CHANGES: dict[str, Callable[[Attention], Callable[[Tensor], Any]]] = {
    "the input": lambda model: lambda x: x.add_(1),
    "a part of the input": lambda model: lambda x: x[..., 3].mul_(2),
    "the input through a view": lambda model: lambda x: x.view(-1).neg_(),
    "a weight": lambda model: lambda x: model.k.weight.copy_(torch.ones(ROWS[1], K)),
    "a bias": lambda model: lambda x: model.v.bias.add_(1),
    "another bias": lambda model: lambda x: setattr(
        model.v, "bias", nn.Parameter(torch.ones(ROWS[2]))
    ),
    "memory of a bias": lambda model: lambda x: setattr(
        model.v.bias, "data", torch.ones(ROWS[2])
    ),
    "another weight": lambda model: lambda x: setattr(
        model, "k", mixed_gemm.Linear.from_weight(model.v.weight.detach())
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changes_between_two_calls_are_seen(change: str) -> None:
    model, apart = pair(bias=True)
    for each in (model, apart):
        each.between = CHANGES[change](each)
    for _ in range(2):
        x = torch.randn(4, K)
        for a, b in zip(model(x.clone()), apart(x.clone()), strict=True):
            assert torch.equal(a, b)


def test_the_dtype_of_autocast_between_two_calls() -> None:
    model, _ = pair()
    x = torch.randn(4, K)
    model.q(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.k(x).dtype == torch.bfloat16
        assert_same(model, copy.deepcopy(model), x, 1)


def test_another_object_is_another_tensor() -> None:
    """Equal numbers do not do: only who computed a tensor knows that it stays as it is."""
    model, apart = pair()
    x = torch.randn(4, K)
    model.q(x)
    with counting() as count:
        found = model.k(x.clone()), model.v(x[:])
    assert count.calls == 2
    assert all(map(torch.equal, found, apart(x)[1:]))


def test_each_is_returned_once() -> None:
    """A reader may write to what it gets; whoever asks again gets the product anew."""
    model, apart = pair()
    x = torch.randn(4, K)
    model.q(x).zero_()
    model.k(x).fill_(7)
    assert torch.equal(model.k(x), apart.k(x))
    v = model.v(x)
    assert torch.equal(v, apart.v(x)) and v._version == 0 and not v._is_view()
    assert torch.equal(model.q(x), apart.q(x))


@pytest.mark.parametrize("order", ("vkq", "kqv", "qvk"))
def test_any_order_of_calls(order: str) -> None:
    model, apart = pair()
    x = torch.randn(4, K)
    for name in order * 2:
        assert torch.equal(getattr(model, name)(x), getattr(apart, name)(x))


def test_threads() -> None:
    model, apart = pair(bias=True)
    inputs = [torch.randn(2, K) for _ in range(3)]
    wanted = [apart(x) for x in inputs]
    wrong: list[int] = []

    def run(first: int) -> None:
        with torch.no_grad():
            for i in range(200):
                which = (first + i) % 3
                found = model(inputs[which])  # several threads read one tensor, too
                if not all(map(torch.equal, found, wanted[which])):
                    wrong.append(which)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- nothing stays -------------------------------------------------------------------------------


def _kept(model: Attention) -> Any:
    pending = model.q.joint.product.pending
    return None if pending is None else pending.rest


def test_nothing_is_kept_after_the_last_call() -> None:
    model, _ = pair()
    model(torch.randn(4, K))
    assert _kept(model) is None and model.q.joint.product.traced is None


def test_an_exception_between_two_calls_keeps_nothing() -> None:
    model, apart = pair()

    def fail(x: Tensor) -> None:
        raise KeyError("between")

    model.between = fail
    with pytest.raises(KeyError):
        model(torch.randn(4, K))
    gc.collect()
    assert not _kept(model)
    model.between = None
    assert_same(model, apart, torch.randn(4, K), 1)


def test_results_that_nobody_takes_go_with_the_input() -> None:
    model, _ = pair()
    x = torch.randn(4, K)
    model.q(x)
    result = weakref.ref(_kept(model)[1][0])
    del x
    assert result() is None


def test_models_are_freed_without_the_collector() -> None:
    model, _ = pair(bias=True)
    model(torch.randn(4, K))
    gone = [weakref.ref(model.q), weakref.ref(model.q.joint)]
    gc.disable()
    try:
        del model
        assert [x() for x in gone] == [None, None]
    finally:
        gc.enable()


# --- where each runs by itself -------------------------------------------------------------------


@contextmanager
def _training(model: Attention) -> Iterator[None]:
    model.train()
    yield


APART: dict[str, Callable[[Attention], Any]] = {
    "gradients": lambda model: torch.enable_grad(),
    "train mode": _training,
}


@pytest.mark.parametrize("how", APART)
def test_apart(how: str) -> None:
    model, apart = pair(bias=True)
    with APART[how](model):
        assert_same(model, apart, torch.randn(4, K), 3)


def test_inference_mode_is_told() -> None:
    model, apart = pair()
    with torch.inference_mode(), pytest.warns(UserWarning, match="counts no writes"):
        assert_same(model, apart, torch.randn(4, K) * 1, 3)


def test_gradients_are_those_of_layers_apart() -> None:
    model, apart = pair(bias=True)
    with torch.enable_grad():
        grads = []
        for each in (model, apart):
            x = torch.linspace(-1, 1, 4 * K).view(4, K).requires_grad_()
            q, k, v = each(x)
            (q.sin().sum() + (k * 2).cos().sum() + v.exp().sum()).backward()
            grads.append([x.grad, *(layer.bias.grad for layer in layers_of(each))])
    assert all(map(torch.equal, *grads))


def test_an_optimizer_writes_into_the_whole() -> None:
    model, apart = pair(bias=True)
    for each in (model, apart):
        parameters = [layer.bias for layer in layers_of(each)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        torch.optim.SGD(parameters, lr=0.5).step()
    assert_same(model, apart, torch.randn(4, K), 1)


def test_vmap_and_functional_call() -> None:
    model, apart = pair(bias=True)
    x = torch.randn(5, 4, K)
    for a, b in zip(torch.func.vmap(model)(x), torch.func.vmap(apart)(x), strict=True):
        assert torch.equal(a, b)
    other = {"k.bias": torch.full((ROWS[1],), 3.0)}
    found, wanted = (torch.func.functional_call(each, other, (x,)) for each in (model, apart))
    assert all(map(torch.equal, found, wanted))
    assert_same(model, apart, x, 1)  # and the old one is back


# --- the same weights elsewhere ------------------------------------------------------------------


def _pickled(model: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(model))


def _saved(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"deepcopy": copy.deepcopy, "pickle": _pickled, "torch.save": _saved}


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("how", COPIES)
def test_copies_are_joined_by_themselves(how: str, bias: bool) -> None:
    model, apart = pair(bias=bias)
    made = COPIES[how](model)
    assert made.q.joint is not model.q.joint
    x = torch.randn(4, K)
    assert_same(made, apart, x, 1)
    made.k.weight.copy_(torch.zeros(ROWS[1], K))
    apart.k.weight.copy_(torch.zeros(ROWS[1], K))
    assert_same(made, apart, x, 1)
    assert not torch.equal(model(x)[1], made(x)[1])


def test_a_copy_of_one_layer_runs_by_itself() -> None:
    model, apart = pair(bias=True)
    x = torch.randn(4, K)
    for made in (copy.deepcopy(model.k), copy.copy(model.k)):
        assert torch.equal(made(x), apart.k(x))
    assert_same(model, apart, x, 1)


MOVES: dict[str, Callable[[nn.Module], Any]] = {
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "half": lambda model: model.half(),
    "nothing": lambda model: model.to("cpu"),
    "twice": lambda model: model.bfloat16().float(),
}


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("how", MOVES)
def test_converted_models_stay_joined(how: str, bias: bool) -> None:
    model, apart = (MOVES[how](x) for x in pair(bias=bias))
    assert_same(model, apart, torch.randn(4, K).to(model.q.weight.dtype), 1)
    storages = {x.b_packed.untyped_storage().data_ptr() for x in layers_of(model)}
    assert len(storages) == 1


def test_one_converted_layer_runs_by_itself() -> None:
    model, apart = pair()
    for each in (model, apart):
        each.k.bfloat16()
    assert_same(model, apart, torch.randn(4, K), 3 - 1)
    model.k.float()
    apart.k.float()
    assert_same(model, apart, torch.randn(4, K), 3 - 1)  # its scales were rounded: other memory
    model.float()


@pytest.mark.parametrize("assign", (False, True))
def test_state_dicts_are_those_of_layers_apart(assign: bool) -> None:
    model, apart = pair(bias=True)
    mine, other = model.state_dict(), apart.state_dict()
    assert list(mine) == list(other)
    assert all(torch.equal(mine[x], other[x]) and mine[x].is_contiguous() for x in mine)
    torch.manual_seed(5)
    new = {name: torch.rand_like(x) if x.is_floating_point() else x for name, x in other.items()}
    model.load_state_dict(copy.deepcopy(new), assign=assign)
    apart.load_state_dict(copy.deepcopy(new), assign=assign)
    assert_same(model, apart, torch.randn(4, K), 1)


def test_what_the_layers_share_may_be_loaded() -> None:
    """Layers of one pre_scale: another one for some of them ends the joint of these."""
    torch.manual_seed(0)
    made = [
        mixed_gemm.Linear(K, n, bias=False, group_size=32, bits=4, pre_scale=True) for n in (64, 64)
    ]
    for layer in made:
        layer.load_state_dict(
            {**layer.state_dict(), "scales": torch.rand(3, 64), "pre_scale": torch.full((K,), 2.0)}
        )
        layer.b_packed.random_(0, 255)
    model, apart = nn.ModuleList(made).eval(), copy.deepcopy(nn.ModuleList(made)).eval()
    Joint(list(model))
    x = torch.randn(4, K)

    def run(layers: nn.ModuleList) -> Callable[[Tensor], list[Tensor]]:
        return lambda x: [layer(x) for layer in layers]

    assert_same(run(model), run(apart), x, 1)
    for pre_scale, calls in ((3.0, 2), (2.0, 1)):
        for each in (model, apart):
            state = {**each[1].state_dict(), "pre_scale": torch.full((K,), pre_scale)}
            each[1].load_state_dict(state)
        assert_same(run(model), run(apart), x, calls)
    for each in (model, apart):
        each[0].pre_scale.mul_(2)
    assert_same(run(model), run(apart), x, 2)


def test_leaving_gives_storage_back() -> None:
    model, apart = pair(bias=True)
    for layer in layers_of(model):
        layer.leave()
        assert layer.joint is None and layer.piece is None
        for part in (*layer.weight.tensors().values(), layer.bias):
            assert part.untyped_storage().nbytes() == part.nbytes and part.is_contiguous()
    assert_same(model, apart, torch.randn(4, K), 3)


# --- torch.compile, export -----------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.attention(x * 2)
        return q[..., :40] * k[..., :40] + v


def _ops(graph: Any) -> int:
    return sum("mixed_gemm" in str(node.target) for node in graph.nodes)


def compiled(model: nn.Module, **options: Any) -> tuple[Any, list[int]]:
    """The model, compiled whole, and how many ops each of its graphs has."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    torch._dynamo.reset()
    counts: list[int] = []

    def compile_graph(graph: Any, inputs: Any) -> Any:
        counts.append(_ops(graph.graph))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=compile_graph)
    return torch.compile(model, fullgraph=True, backend=backend, **options), counts


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("mode", (nullcontext, torch.inference_mode))
def test_compiled_graphs_have_one_product(mode: Any, bias: bool) -> None:
    model, apart = (Block(x) for x in pair(bias=bias))
    with mode():
        run, counts = compiled(model)
        for _ in range(3):
            x = torch.randn(4, K)
            assert torch.equal(run(x), apart(x))
        assert counts == [1]  # and none of the calls compiled again
    assert model.attention.q.joint.product.traced is None


def test_compiled_with_gradients_each_runs_by_itself() -> None:
    model, apart = (Block(x) for x in pair(bias=True))
    with torch.enable_grad():
        run, counts = compiled(model)
        x = torch.randn(4, K)
        assert torch.equal(run(x), apart(x)) and counts == [3]


@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
def test_a_write_between_two_calls_is_refused_by_the_graph(backend: str) -> None:
    model, _ = pair()
    model.between = lambda x: x.add_(1)
    block = Block(model)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"written to between .* Hint: mixed_gemm.unfuse_"):
        torch.compile(block, fullgraph=True, backend=backend)(torch.randn(4, K))
    for layer in layers_of(model):
        layer.leave()
    x = torch.randn(4, K)
    torch._dynamo.reset()
    run = torch.compile(block, fullgraph=True, backend=backend)
    assert torch.equal(run(x), block(x))


def test_a_graph_that_breaks_between_two_calls() -> None:
    model, apart = pair(bias=True)
    for each in (model, apart):
        each.between = lambda x: torch._dynamo.graph_break()
    blocks = Block(model), Block(apart)
    torch._dynamo.reset()
    run = torch.compile(blocks[0], backend="aot_eager")
    for _ in range(3):
        x = torch.randn(4, K)
        assert torch.equal(run(x), blocks[1](x))


def test_a_compiled_graph_has_the_bias_of_now() -> None:
    model, apart = (Block(x) for x in pair(bias=True))
    run, _ = compiled(model)
    x = torch.randn(4, K)
    assert torch.equal(run(x), apart(x))
    for each in (model, apart):
        each.attention.k.bias.data = torch.full((ROWS[1],), 2.0)
    assert torch.equal(run(x), apart(x))


@pytest.mark.parametrize("strict", (False, True))
def test_exported_programs_have_the_layers_apart(strict: bool) -> None:
    model, apart = (Block(x) for x in pair(bias=True))
    x = torch.randn(4, K)
    found, wanted = (torch.export.export(each, (x,), strict=strict) for each in (model, apart))
    assert _ops(found.graph) == _ops(wanted.graph) == 3
    assert list(found.state_dict) == list(wanted.state_dict)
    assert torch.equal(found.module()(x), apart(x))
    assert_same(model.attention, apart.attention, x, 1)  # and the model is as it was
