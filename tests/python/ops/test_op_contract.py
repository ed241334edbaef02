"""What torch expects of an op, for every op of the library: opcheck, compile, export, vmap, fake
tensors, inference mode, and a clear error where a derivative is asked for that does not exist.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems import scaled
from problems.lattice import TORCH, Sample
from support.derivative_cases import SAMPLES, TRAINED, on_cpu, takes_tensors
from torch import Tensor, func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils import _pytree

from mixed_gemm.ops.registry import OPS as RECORDS

RULES = {op.name: op.derivatives.rule for op in RECORDS if op.derivatives.rule is not None}


def leaves(result: Any) -> list[Any]:
    return _pytree.tree_leaves(result)


def training(sample: Sample) -> Sample:
    """With arguments that ask for gradients."""
    for x in sample.primals():
        x.requires_grad_()
    return sample


def same(mine: Any, want: Any) -> None:
    for a, b in zip(leaves(mine), leaves(want), strict=True):
        assert torch.equal(a, b) if isinstance(b, Tensor) else a == b


@pytest.fixture(autouse=True)
def _forget_compiled_functions() -> None:
    torch._dynamo.reset()


# --- the table ---------------------------------------------------------------------------------


def test_every_op_that_takes_a_tensor_has_a_record_and_a_sample() -> None:
    assert takes_tensors() == sorted(SAMPLES) == sorted(op.name for op in RECORDS)
    assert on_cpu() == sorted(op.name for op in RECORDS if op.is_public)


def test_every_rule_has_a_case_with_all_that_trains() -> None:
    trained: dict[str, set[str]] = {}
    for make in TRAINED.values():
        sample = make()
        trained.setdefault(sample.op, set()).update(sample.trains)
    assert trained == {op: set(rule.trained) for op, rule in RULES.items()}


# --- derivatives that do not exist ---------------------------------------------------------------


def frozen() -> list[tuple[str, str]]:
    return [(op, name) for op, make in SAMPLES.items() for name in make().frozen()]


def backward(run: Callable[[Tensor], Any], x: Tensor) -> None:
    run(x.clone().requires_grad_())


def grad(run: Callable[[Tensor], Any], x: Tensor) -> None:
    func.grad(lambda t: sum(y.sum() for y in leaves(run(t)) if isinstance(y, Tensor)))(x)


def jvp(run: Callable[[Tensor], Any], x: Tensor) -> None:
    func.jvp(run, (x,), (torch.zeros_like(x),))


def no_grad_jvp(run: Callable[[Tensor], Any], x: Tensor) -> None:
    with torch.no_grad():
        jvp(run, x)


def dual(run: Callable[[Tensor], Any], x: Tensor) -> None:
    with forward_ad.dual_level():
        run(forward_ad.make_dual(x, torch.ones_like(x)))


@pytest.mark.parametrize("ask", [backward, grad, jvp, no_grad_jvp, dual])
@pytest.mark.parametrize(("op", "name"), frozen())
def test_a_derivative_that_does_not_exist_is_refused(
    op: str, name: str, ask: Callable[..., None]
) -> None:
    sample = SAMPLES[op]()
    what = "requires grad" if ask in (backward, grad) else "has a tangent"
    text = rf"^mixed_gemm::{op}: {name} {what}, but .*\. Hint: {name}\.detach\(\)"
    with pytest.raises(RuntimeError, match=text):
        ask(lambda x: sample.call(**{name: x}), sample.arguments[name])
    if op in on_cpu():
        sample.call()


@pytest.mark.parametrize("op", on_cpu())
def test_no_grad_takes_any_argument_that_requires_grad(op: str) -> None:
    sample = SAMPLES[op]()
    asking = {name: sample.arguments[name].clone().requires_grad_() for name in sample.frozen()}
    with torch.no_grad():
        same(sample.call(**asking), sample.call())


# --- opcheck, compile, export, fake tensors ------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("op", [op.name for op in RECORDS if op.opcheck is True])
def test_opcheck(op: str, grad: bool) -> None:
    sample = SAMPLES[op]()
    if grad and not sample.trains:
        pytest.skip("nothing trains")
    sample = training(sample) if grad else sample
    overload = getattr(TORCH, op).default
    given = dict(sample.arguments)
    positional = [
        given.pop(x.name)
        for x in overload._schema.arguments
        if x.name in given and not x.kwarg_only
    ]
    torch.library.opcheck(overload, positional, given)


@pytest.mark.parametrize("op", on_cpu())
def test_compiles_to_one_graph(op: str) -> None:
    sample = SAMPLES[op]()
    tensors = [name for name, x in sample.arguments.items() if isinstance(x, Tensor)]

    def run(*given: Tensor) -> Any:
        return sample.call(**dict(zip(tensors, given, strict=True)))

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    given = [sample.arguments[name] for name in tensors]
    same(compiled(*given), run(*given))
    with torch.no_grad():
        same(compiled(*given), run(*given))


@pytest.mark.parametrize("op", RULES)
def test_compiled_gradients_equal_those_of_eager(op: str) -> None:
    sample = training(SAMPLES[op]())
    compiled = torch.compile(
        lambda *x: sample.run(*x).square().sum(), fullgraph=True, backend="aot_eager"
    )
    x = sample.primals()
    same(
        torch.autograd.grad(compiled(*x), x), torch.autograd.grad(sample.run(*x).square().sum(), x)
    )


@pytest.mark.parametrize("transform", ["jvp", "grad", "vmap"])
@pytest.mark.parametrize("op", RULES)
def test_transforms_compile(op: str, transform: str) -> None:
    sample = SAMPLES[op]()
    x = sample.primals()

    def run(*x: Tensor) -> Any:
        if transform == "jvp":
            return func.jvp(sample.run, x, x)
        if transform == "grad":
            return func.grad(lambda *y: sample.run(*y).sum())(*x)
        batch = torch.stack((x[0], 2 * x[0]))
        return func.vmap(sample.run, (0, *[None] * (len(x) - 1)))(batch, *x[1:])

    same(torch.compile(run, fullgraph=True, backend="aot_eager")(*x), run(*x))


@pytest.mark.parametrize("op", on_cpu())
def test_exports(op: str) -> None:
    sample = SAMPLES[op]()
    tensors = {name: x for name, x in sample.arguments.items() if isinstance(x, Tensor)}

    class Module(torch.nn.Module):
        def forward(self, **given: Tensor) -> Any:
            return sample.call(**given)

    program = torch.export.export(Module(), (), tensors)
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert f"mixed_gemm.{op}.default" in called
    same(program.module()(**tensors), sample.call())


@pytest.mark.parametrize("op", on_cpu())
def test_fake_results_look_like_real_ones(op: str) -> None:
    sample = SAMPLES[op]()
    real = leaves(sample.call())
    with FakeTensorMode() as mode:
        fakes = {
            name: mode.from_tensor(x)
            for name, x in sample.arguments.items()
            if isinstance(x, Tensor)
        }
        fake = leaves(sample.call(**fakes))
    for a, b in zip(fake, real, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
            assert a.stride() == b.stride()


@pytest.mark.parametrize("op", on_cpu())
def test_inference_mode_equals_eager(op: str) -> None:
    sample = SAMPLES[op]()
    with torch.inference_mode():
        result = sample.call()
    assert all(x.is_inference() for x in leaves(result) if isinstance(x, Tensor))
    same(result, sample.call())


# --- vmap ----------------------------------------------------------------------------------------

VMAP_ROWS = {op.name: op.vmap for op in RECORDS if not isinstance(op.vmap, str)}
BATCHED = [
    (op, names)
    for op, row in VMAP_ROWS.items()
    for names in itertools.chain.from_iterable(
        itertools.combinations(row.over, r) for r in (1, 2, 3)
    )
    if all(isinstance(SAMPLES[op]().arguments.get(name), Tensor) for name in names)
]


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize(("op", "names"), BATCHED)
def test_vmap_equals_a_loop(op: str, names: tuple[str, ...], dim: int) -> None:
    sample = SAMPLES[op]()
    stacks = [torch.stack((x, x.flip(0) if x.dim() else x + 1), dim) for x in
              (sample.arguments[name] for name in names)]  # fmt: skip

    def run(*given: Tensor) -> tuple[Any, ...]:
        results = leaves(sample.call(**dict(zip(names, given, strict=True))))
        return tuple(x for x in results if x is not None)  # vmap lets no function return None

    got = leaves(func.vmap(run, in_dims=dim)(*stacks))
    loop = [run(*(x.select(dim, i) for x in stacks)) for i in range(2)]
    none = leaves(func.vmap(run, in_dims=dim)(*(x.narrow(dim, 0, 0) for x in stacks)))
    assert [x.shape for x in none] == [(0, *x.shape) for x in loop[0]]
    same(got, [torch.stack(x) for x in zip(*loop, strict=True)])


@pytest.mark.parametrize("op", VMAP_ROWS)
def test_vmap_over_a_weight_is_refused(op: str) -> None:
    sample, row = SAMPLES[op](), VMAP_ROWS[op]
    for name, x in sample.arguments.items():
        if isinstance(x, Tensor) and name not in row.over:
            text = (
                f"mixed_gemm::{op}: vmap runs over {' and '.join(row.over)} only, got a batch of "
            )
            with pytest.raises(NotImplementedError, match=re.escape(text + name)):
                func.vmap(lambda t, name=name: sample.call(**{name: t}))(torch.stack((x, x)))


@pytest.mark.parametrize("make", [scaled.sample, scaled.sample_azp])
@pytest.mark.parametrize("shape", [(16,), (0, 16), (2, 3, 16)])
@pytest.mark.parametrize("per_row", [False, True])
def test_vmap_of_scaled_mm_takes_every_form_of_its_rows(
    make: Callable[[], Sample], shape: tuple[int, ...], per_row: bool
) -> None:
    sample = make()
    rows = shape[:-1]
    a = torch.randint(-4, 5, (2, *shape), dtype=torch.int8)
    scale = torch.rand(2, *rows, 1) if per_row else torch.rand(2, 1)
    azp = torch.randint(-4, 5, (*rows, 1), dtype=torch.int32)
    more = (
        {"azp": azp, "azp_adj": torch.arange(4, dtype=torch.int32)}
        if "azp" in sample.arguments
        else {}
    )

    def run(a: Tensor, scale: Tensor) -> Tensor:
        out: Tensor = sample.call(a=a, scale_a=scale, **more)
        return out

    for dims in ((0, 0), (0, None), (None, 0)):
        given = [x if d == 0 else x[0] for x, d in zip((a, scale), dims, strict=True)]
        loop = [
            run(*(x[i] if d == 0 else x for x, d in zip(given, dims, strict=True)))
            for i in range(2)
        ]
        assert torch.equal(func.vmap(run, dims)(*given), torch.stack(loop))
