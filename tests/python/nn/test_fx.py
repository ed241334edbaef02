"""torch.fx and what is built on it, over models with quantized layers: the nodes are those that the
dense model has, and what runs gives the bits of the model.

Annotations here are types: torch.fx writes them into the code of a graph, which a pickle runs.
"""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import optimization
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module

import mixed_gemm

IMAGES = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 32, bias=False)

    def forward(self, x: Tensor) -> Any:
        return self.b(torch.relu(self.a(x)) + x)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.b = nn.Conv2d(32, 16, 3, padding="same", padding_mode="reflect", bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Any:
        return self.drop(self.b(torch.relu(self.norm(self.a(x))))) + x


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 16))


def fused() -> nn.Module:
    head = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32), nn.ReLU())
    return nn.Sequential(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU()), head)


Case = tuple[Callable[[], nn.Module], Tensor, dict[str, Any]]
STATIC = {"scheme": "w8a8", "activations": "static", "calibration": [IMAGES]}
CASES: dict[str, Case] = {
    "w4a16": (Residual, torch.ones(3, 64), {"scheme": "w4a16", "group_size": 16}),
    "w8a8": (Residual, torch.ones(3, 64), {"scheme": "w8a8"}),
    "fp8": (Residual, torch.ones(3, 64), {"scheme": "fp8"}),
    "Conv2d": (Images, IMAGES, {"scheme": "w8a16"}),
    "Int8Conv2d": (Images, IMAGES, STATIC),
    "Embedding": (words, torch.arange(5), {"scheme": "w8a16", "embeddings": True}),
    "fused": (fused, torch.ones(3, 64), {"scheme": "w8a16", "fuse_activations": True}),
}
# A layer by itself is the root of its graph, which has its weight for a parameter.
ROOTS: dict[str, Case] = {
    "Linear": (lambda: nn.Linear(64, 32), torch.ones(3, 64), {"scheme": "w8a16"}),
    "Linear w8a8": (lambda: nn.Linear(64, 32), torch.ones(3, 64), {"scheme": "w8a8"}),
    "Conv2d": (lambda: nn.Conv2d(16, 8, 3, 2, 1), IMAGES, {"scheme": "w8a16"}),
    "Conv2d that pads itself": (
        lambda: nn.Conv2d(16, 8, 2, padding="same", padding_mode="circular"),
        IMAGES,
        {"scheme": "w4a16", "group_size": 16},
    ),
    "Int8Conv2d": (lambda: nn.Conv2d(16, 8, 3, 2, 1), IMAGES, STATIC),
    "Embedding": (
        lambda: nn.Embedding(64, 32),
        torch.arange(5),
        {"scheme": "w8a16", "embeddings": True},
    ),
}


def models(case: Case) -> tuple[Any, Any, Tensor]:
    """(quantized, dense, input)."""
    make, x, options = case
    torch.manual_seed(0)
    dense = nn.Sequential(make()).eval()
    quantized = copy.deepcopy(dense)
    mixed_gemm.quantize_(quantized, progress=False, **options)
    return quantized[0], dense[0], x


class LeavesOnly(OperatorSupportBase):
    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        return node.op in ("call_module", "call_function")


class Throughout(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.BatchNorm2d | nn.Dropout | nn.LayerNorm)


class Features(fx.Tracer):
    """As those of feature extraction, which remember from which module a node comes."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.origins = "", dict[str, fx.Node]()

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        before, self.inside = self.inside, self.path_of_module(m)
        try:
            if not self.is_leaf_module(m, self.inside):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", self.inside, args, kwargs)
        finally:
            self.inside = before

    def create_proxy(self, *args: Any, **kwargs: Any) -> Any:
        proxy = super().create_proxy(*args, **kwargs)
        self.origins[self.inside] = proxy.node
        return proxy


def traced_by(tracer: fx.Tracer, model: nn.Module) -> Any:
    graph = tracer.trace(model)
    graph.lint()
    return fx.GraphModule(model, graph)


def shaped(model: nn.Module, x: Tensor) -> Any:
    graph = fx.symbolic_trace(model)
    out = ShapeProp(graph).propagate(x)
    FakeTensorProp(graph, FakeTensorMode(allow_non_fake_inputs=True)).propagate(x)
    last = next(reversed([n for n in graph.graph.nodes if n.op != "output"]))
    assert last.meta["tensor_meta"].shape == last.meta["val"].shape == out.shape
    return out


def cut(model: nn.Module, x: Tensor) -> Any:
    graph, seen = fx.symbolic_trace(model), list[fx.Node]()

    def part(node: fx.Node) -> int:
        seen.append(node)
        return int(len(seen) > 2)

    return split_module(graph, model, part)(x)


def partitioned(model: nn.Module, x: Tensor) -> Any:
    found = CapabilityBasedPartitioner(
        fx.symbolic_trace(model), LeavesOnly(), allows_single_node_partition=True
    )
    return found.partition_and_fuse()(x)


def rewritten(model: nn.Module, x: Tensor) -> Any:
    graph = fx.symbolic_trace(model)
    fx.replace_pattern(graph, lambda y: torch.relu(y), lambda y: torch.clamp(y, min=0))
    graph.delete_all_unused_submodules()
    return graph(x)


def of_operators(mode: str) -> Callable[[nn.Module, Tensor], Any]:
    def run(model: nn.Module, x: Tensor) -> Any:
        with torch.no_grad():
            found = make_fx(model, tracing_mode=mode, _allow_non_fake_inputs=mode != "real")(x)
            return found(x)

    return run


WAYS: dict[str, Callable[[Any, Tensor], Any]] = {
    "symbolic_trace": lambda m, x: fx.symbolic_trace(m)(x),
    "traced again": lambda m, x: fx.symbolic_trace(fx.symbolic_trace(m))(x),
    "nothing is a leaf": lambda m, x: traced_by(Throughout(), m)(x),
    "feature extraction": lambda m, x: traced_by(Features(), m)(x),
    "Interpreter": lambda m, x: fx.Interpreter(fx.symbolic_trace(m)).run(x),
    "Transformer": lambda m, x: fx.Transformer(fx.symbolic_trace(m)).transform()(x),
    "ShapeProp": shaped,
    "split_module": cut,
    "partitioner": partitioned,
    "replace_pattern": rewritten,
    "remove_dropout": lambda m, x: optimization.remove_dropout(m)(x),
    "pickle": lambda m, x: pickle.loads(pickle.dumps(fx.symbolic_trace(m)))(x),
    "deepcopy": lambda m, x: copy.deepcopy(fx.symbolic_trace(m))(x),
    "make_fx": of_operators("real"),
    "make_fx of fake tensors": of_operators("fake"),
    "make_fx of symbols": of_operators("symbolic"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_the_bits_of_the_model(case: str, way: str) -> None:
    model, _, x = models(CASES[case])
    wanted = model(x)
    assert torch.equal(WAYS[way](model, x), wanted)
    assert torch.equal(model(x), wanted)  # which was left as it was


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("root", ROOTS)
def test_a_layer_by_itself_gives_its_bits(root: str, way: str) -> None:
    layer, _, x = models(ROOTS[root])
    assert torch.equal(WAYS[way](layer, x), layer(x))


@pytest.mark.parametrize("case", [name for name in CASES if name != "fused"])
def test_the_nodes_are_those_of_the_dense_model(case: str) -> None:
    model, dense, _ = models(CASES[case])
    found, wanted = fx.symbolic_trace(model).graph, fx.symbolic_trace(dense).graph
    assert [(n.op, n.target) for n in found.nodes] == [(n.op, n.target) for n in wanted.nodes]


def test_a_fused_pair_is_one_node_until_something_comes_between() -> None:
    model, _, x = models(CASES["fused"])
    graph = fx.symbolic_trace(model)
    called = [getattr(n.target, "__name__", n.target) for n in graph.graph.nodes
              if n.op.startswith("call")]  # fmt: skip
    assert called == ["0.0", "fused_pair", "fused_pair", "fused_pair"]
    halved = copy.deepcopy(graph)
    halved.get_submodule("1.0").register_forward_hook(lambda module, args, out: out * 0.5)
    hooked = copy.deepcopy(model)
    hooked[1][0].register_forward_hook(lambda module, args, out: out * 0.5)
    assert torch.equal(halved(x), hooked(x)) and not torch.equal(halved(x), graph(x))


def test_features_come_from_the_modules_that_make_them() -> None:
    model, _, x = models(CASES["w4a16"])
    tracer = Features()
    graph = fx.GraphModule(model, tracer.trace(model))
    seen: dict[fx.Node, Tensor] = {}

    class Watching(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            seen[n] = super().run_node(n)
            return seen[n]

    Watching(graph).run(x)
    assert torch.equal(seen[tracer.origins["a"]], model.a(x))


@pytest.mark.parametrize("case", ["w4a16", "Conv2d", "Embedding"])
def test_hooks_of_a_layer_run_once(case: str) -> None:
    model, _, x = models(CASES[case])
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
            module.register_forward_hook(lambda module, args, out: out * 0.5)
    assert torch.equal(fx.symbolic_trace(model)(x), model(x))


@pytest.mark.parametrize("case", ["w4a16", "w8a8", "Conv2d", "Int8Conv2d"])
def test_gradients_through_a_graph(case: str) -> None:
    model, _, x = models(CASES[case])
    found, wanted = (x.clone().requires_grad_() for _ in range(2))
    fx.symbolic_trace(model)(found).square().sum().backward()
    mine = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model(wanted).square().sum().backward()
    assert torch.equal(found.grad, wanted.grad)  # type: ignore[arg-type]
    grads = dict(model.named_parameters())
    assert mine and all(torch.equal(x, grads[name].grad) for name, x in mine.items())


def test_conv_and_batch_norm_are_left_apart() -> None:
    """torch's fusion goes by exact types, and folds into dense filters only."""
    model, _, x = models(CASES["Conv2d"])
    assert torch.equal(optimization.fuse(model)(x), model(x))


def test_a_class_keeps_its_module() -> None:
    layer, _, _ = models(ROOTS["Linear"])
    assert layer.__module__ == "torch.nn" and type(layer).__module__ == "mixed_gemm.nn.linear"
    assert type(pickle.loads(pickle.dumps(layer))) is mixed_gemm.Linear
