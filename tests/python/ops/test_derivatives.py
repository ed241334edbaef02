"""Gradients, tangents and transforms of every op against those of the same function in float64."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems.lattice import Sample, integers
from support.derivative_cases import HALF, MODULES, TRAINED, ModuleSample
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.utils import _pytree

Function = Callable[..., Tensor]
Tensors = tuple[Tensor, ...]
Method = Callable[[Function, Tensors, Tensors, Tensor], Any]

# torch.func.linearize folds constants of its graph, and warns about its own.
pytestmark = pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")


def leaves(x: Tensors) -> Tensors:
    return tuple(t.detach().requires_grad_() for t in x)


def every(x: Tensors) -> tuple[int, ...]:
    return tuple(range(len(x)))


def batch(x: Tensor) -> Tensor:
    """Two of them, in the last dimension."""
    return torch.stack((x, 2 * x), -1)


def squares(f: Function, v: Tensor) -> Function:
    """A scalar with second derivatives."""
    return lambda *x: (f(*x) * f(*x) * v).sum()


def dual(f: Function, x: Tensors, dx: Tensors) -> Tensor:
    with forward_ad.dual_level():
        out = f(*map(forward_ad.make_dual, x, dx))
        tangent: Tensor = forward_ad.unpack_dual(out).tangent
        return tangent


def tangents_of_each(f: Function, x: Tensors, dx: Tensors) -> list[Tensor]:
    """With one argument at a time."""

    def along(i: int) -> Tensor:
        tangent: Tensor = func.jvp(lambda t: f(*x[:i], t, *x[i + 1 :]), (x[i],), (dx[i],))[1]
        return tangent

    return [along(i) for i in range(len(x))]


def backward_of_a_tangent(f: Function, x: Tensors, dx: Tensors, v: Tensor) -> Any:
    x = leaves(x)
    loss = dual(squares(f, v), x, dx)
    return torch.autograd.grad(loss, x, allow_unused=True, materialize_grads=True)


def double_backward(f: Function, x: Tensors, dx: Tensors, v: Tensor) -> Any:
    x = leaves(x)
    first = torch.autograd.grad(squares(f, v)(*x), x, create_graph=True)
    return first, torch.autograd.grad(sum((g * t).sum() for g, t in zip(first, dx, strict=True)), x)


def first_batched(f: Function, x: Tensors) -> Function:
    return func.vmap(f, (-1, *[None] * (len(x) - 1)))


# Linear in the results of the op, so exact in 16 bits too.
FIRST: dict[str, Method] = {
    "autograd.grad": lambda f, x, dx, v: torch.autograd.grad(f(*(y := leaves(x))), y, v),
    "grad": lambda f, x, dx, v: func.grad(lambda *y: (f(*y) * v).sum(), every(x))(*x),
    "vjp": lambda f, x, dx, v: func.vjp(f, *x)[1](v),
    "jvp": lambda f, x, dx, v: func.jvp(f, x, dx),
    "jvp of each": lambda f, x, dx, v: tangents_of_each(f, x, dx),
    "jvp, no_grad": lambda f, x, dx, v: func.jvp(torch.no_grad()(f), x, dx),
    "linearize": lambda f, x, dx, v: func.linearize(f, *x)[1](*dx),
    "dual": lambda f, x, dx, v: dual(f, x, dx),
    "dual, no_grad": lambda f, x, dx, v: dual(torch.no_grad()(f), x, dx),
    "dual of leaves": lambda f, x, dx, v: dual(f, leaves(x), dx),
    "jacrev": lambda f, x, dx, v: func.jacrev(f, every(x))(*x),
    "jacfwd": lambda f, x, dx, v: func.jacfwd(f, every(x))(*x),
    "vmap": lambda f, x, dx, v: func.vmap(f, -1)(*map(batch, x)),
    "vmap of the first": lambda f, x, dx, v: first_batched(f, x)(batch(x[0]), *x[1:]),
    "vmap of grad": lambda f, x, dx, v: first_batched(
        func.grad(lambda *y: (f(*y) * v).sum(), every(x)), x
    )(batch(x[0]), *x[1:]),
    "grad of vmap": lambda f, x, dx, v: func.grad(
        lambda *y: (first_batched(f, x)(*y) * v).sum(), every(x)
    )(batch(x[0]), *x[1:]),
    "jvp of vmap": lambda f, x, dx, v: func.jvp(
        first_batched(f, x), (batch(x[0]), *x[1:]), (batch(dx[0]), *dx[1:])
    ),
    "vmap of jvp": lambda f, x, dx, v: func.vmap(
        lambda y, dy: func.jvp(lambda t: f(t, *x[1:]), (y,), (dy,)), -1
    )(batch(x[0]), batch(dx[0])),
}
SECOND: dict[str, Method] = {
    "double backward": double_backward,
    "backward of a tangent": backward_of_a_tangent,
    "jvp of grad": lambda f, x, dx, v: func.jvp(func.grad(squares(f, v), every(x)), x, dx),
    "grad of jvp": lambda f, x, dx, v: func.grad(
        lambda *y: func.jvp(squares(f, v), y, dx)[1], every(x)
    )(*x),
    "jvp of jvp": lambda f, x, dx, v: func.jvp(lambda *y: func.jvp(squares(f, v), y, dx)[1], x, dx),
    "hessian": lambda f, x, dx, v: func.hessian(squares(f, v), every(x))(*x),
    "vmap of hessian": lambda f, x, dx, v: first_batched(func.hessian(squares(f, v)), x)(
        batch(x[0]), *x[1:]
    ),
}


def same(mine: Tensor, want: Tensor, smooth: bool) -> None:
    assert mine.shape == want.shape
    if smooth:
        # Products and sums are exact: what is rounded is the activation and its derivatives, in
        # float32, a few units each.
        error = (mine.double() - want).norm()
        assert error <= 2.0**-19 * want.norm()
    else:
        assert torch.equal(mine.double(), want), (mine.double() - want).abs().max()


def check(make: Callable[[], Sample | ModuleSample], method: Method) -> None:
    sample = make()
    assert sample.exact is not None
    x = sample.primals()
    dx = tuple(integers(*t.shape, low=-1, high=1, dtype=t.dtype) for t in x)
    exact = sample.exact(*(t.double() for t in x))
    v = integers(*exact.shape, low=-1, high=1, dtype=x[0].dtype)
    mine = _pytree.tree_leaves(method(sample.run, x, dx, v))
    doubles = [tuple(t.double() for t in y) for y in (x, dx)]
    want = _pytree.tree_leaves(method(sample.exact, *doubles, v.double()))
    assert len(mine) == len(want) > 0
    assert any(t.any() for t in want) or method in SECOND.values()
    for a, b in zip(mine, want, strict=True):
        assert a.dtype == x[0].dtype
        same(a, b, sample.is_smooth)


@pytest.mark.parametrize("method", [*FIRST, *SECOND])
@pytest.mark.parametrize("name", TRAINED)
def test_derivatives_equal_those_in_float64(name: str, method: str) -> None:
    torch.manual_seed(zlib.crc32(name.encode()))
    check(TRAINED[name], {**FIRST, **SECOND}[method])


@pytest.mark.parametrize("method", FIRST)
@pytest.mark.parametrize("name", HALF)
def test_derivatives_in_16_bits_equal_those_in_float64(name: str, method: str) -> None:
    torch.manual_seed(zlib.crc32(name.encode()))
    check(HALF[name], FIRST[method])


@pytest.mark.parametrize("method", [*FIRST, *SECOND])
@pytest.mark.parametrize("name", MODULES)
def test_derivatives_of_modules_equal_those_in_float64(name: str, method: str) -> None:
    torch.manual_seed(zlib.crc32(name.encode()))
    check(MODULES[name], {**FIRST, **SECOND}[method])
