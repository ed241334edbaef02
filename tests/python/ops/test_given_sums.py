"""``b_sums`` and ``weight_sums``: sums of a weight that are computed once change no bit, they are
what the op adds, and the functions that make them do."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from problems import block, conv_int8, registry
from problems.block import BlockCase, sums_of
from problems.conv_int8 import ConvInt8Case
from problems.placing import odd_places
from torch import Tensor

import mixed_gemm
from mixed_gemm.ops.problem import MAX_INT8_K

OPS = ("block_quant_gemm", "qconv2d_int8")
NAME = {"block_quant_gemm": "b_sums", "qconv2d_int8": "weight_sums"}
EMPTY: tuple[Any, ...] = (
    BlockCase(m=0, sums=True),
    BlockCase(n=0, sums=True),
    BlockCase(k=0, block_size=-1, sums=True),
    BlockCase(k=1, block_size=-1, sums=True),
    BlockCase(m=1030, n=33, k=50, block_size=48, sums=True),  # more than one pass of rows
    ConvInt8Case(images=0, sums=True),
)


def same_bits(found: Tensor, want: Tensor) -> bool:
    equal = (found == want) | (found.isnan() & want.isnan())
    return found.dtype == want.dtype and found.shape == want.shape and bool(equal.all())


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("seed", range(40))
def test_with_sums_and_without_are_the_same_bits(op: str, seed: int) -> None:
    case = registry.OPS[op].draw(random.Random(seed), 1 << 20, sums=(True,))
    problem = registry.make(case)
    with_sums = problem.run()
    assert same_bits(with_sums, problem.run(**{NAME[op]: None}))


@pytest.mark.parametrize("case", EMPTY, ids=repr)
def test_nothing_and_little_to_do(case: Any) -> None:
    problem: Any = registry.make(case)
    name = "b_sums" if isinstance(case, BlockCase) else "weight_sums"
    assert same_bits(problem.run(), problem.run(**{name: None}))


def test_sums_are_read_wherever_they_are() -> None:
    p = block.make(BlockCase(m=6, n=40, k=200, block_size=48, sums=True))
    want = p.run()
    for place, sums in odd_places(p.sums()).items():
        assert torch.equal(p.run(b_sums=sums), want), place
    q = conv_int8.make(ConvInt8Case(input_zero_point=17, sums=True))
    for place, sums in odd_places(q.sums()).items():
        assert torch.equal(q.run(weight_sums=sums), q.exact()), place


def test_what_is_given_is_what_is_added() -> None:
    p = block.make(BlockCase(m=5, n=40, k=192, dtype=torch.float32, bias=False))
    more = torch.arange(3 * 40, dtype=torch.int32).view(3, 40)
    _, _, offset = mixed_gemm.reference.conv.block_quantize(p.a, 64)
    wrong = p.run(b_sums=p.sums() + more) - p.run()
    torch.testing.assert_close(wrong, offset @ (p.scale_b * more), rtol=1e-3, atol=1e-3)
    q = conv_int8.make(ConvInt8Case(input_zero_point=-3, clamp=(-128, 127)))
    shifted = q.run(weight_sums=q.sums() + 10_000_000)
    positive = (q.weight_scale > 0).view(-1, 1, 1).expand_as(shifted)
    assert torch.equal(shifted, torch.where(positive, 127, -128).to(torch.int8))


@pytest.mark.parametrize("block_size", [-1, 16, 48, 64, 208])
def test_block_sums(block_size: int) -> None:
    weight = torch.randint(-128, 128, (37, 208), dtype=torch.int8)
    want = sums_of(weight, block_size)
    for name, view in odd_places(weight).items():
        found = mixed_gemm.ops.block_sums(view.t(), block_size)
        assert found.dtype == torch.int32 and torch.equal(found, want), name
    on_meta = mixed_gemm.ops.block_sums(weight.t().to("meta"), block_size)
    assert on_meta.shape == want.shape and on_meta.dtype == torch.int32
    least = torch.full((2, MAX_INT8_K), -128, dtype=torch.int8)
    assert (mixed_gemm.ops.block_sums(least.t(), -1) == -128 * MAX_INT8_K).all()
    assert mixed_gemm.ops.block_sums(weight[:, :0].t(), -1).shape == (0, 37)


def test_weight_sums() -> None:
    weight = torch.randint(-128, 128, (7, 5, 3, 2), dtype=torch.int8)
    want = weight.double().sum((1, 2, 3)).int()
    for view in (weight, weight.contiguous(memory_format=torch.channels_last)):
        found = mixed_gemm.ops.weight_sums(view)
        assert found.dtype == torch.int32 and torch.equal(found, want)
    assert mixed_gemm.ops.weight_sums(weight.to("meta")).shape == (7,)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"b": torch.zeros(64, 8)}, TypeError, r"b must be int8 \[K, N\], got float32"),
        ({"b": torch.zeros(64, dtype=torch.int8)}, ValueError, r"b must be int8 \[K, N\]"),
        ({"block_size": 24}, ValueError, "block_size must be -1 .* multiple of 16"),
        ({"block_size": 128}, ValueError, "block_size must not be larger than K"),
        ({"block_size": True}, ValueError, "block_size must be an int"),
        (
            {"b": torch.zeros(131072, 1, dtype=torch.int8), "block_size": -1},
            ValueError,
            "a block must have at most 131071 elements",
        ),
    ],
)
def test_block_sums_refuses(change: dict[str, Any], error: type[Exception], text: str) -> None:
    given = {"b": torch.zeros(64, 8, dtype=torch.int8), "block_size": 32, **change}
    with pytest.raises(error, match=text):
        mixed_gemm.ops.block_sums(**given)


def test_weight_sums_refuses() -> None:
    with pytest.raises(TypeError, match=r"weight must be int8 .*, got float32"):
        mixed_gemm.ops.weight_sums(torch.zeros(2, 3, 1, 1))
    with pytest.raises(ValueError, match=r"weight must be int8 \(Co, Ci, Kh, Kw\), got .*2, 3"):
        mixed_gemm.ops.weight_sums(torch.zeros(2, 3, dtype=torch.int8))


def test_vmap_and_gradients_take_them_along() -> None:
    p = block.make(BlockCase(m=4, dtype=torch.float32, activation="silu", sums=True))
    without = replace(p, b_sums=None)
    a = torch.randn(3, 4, 160)
    assert torch.equal(torch.vmap(p.run)(a), torch.vmap(without.run)(a))
    grads = []
    for problem in (p, without):
        x = a.clone().requires_grad_()
        problem.run(x).square().sum().backward()
        grads.append(x.grad)
    assert torch.equal(grads[0], grads[1])
    tangents = [torch.func.jvp(f.run, (a[0],), (a[1],))[1] for f in (p, without)]
    assert torch.equal(tangents[0], tangents[1])
    q = conv_int8.make(ConvInt8Case(input_zero_point=9, sums=True))
    images = torch.stack([q.input, q.input.flip(0)])
    found = torch.vmap(lambda x: q.run(input=x))(images)
    assert torch.equal(found, torch.stack([q.run(input=x, weight_sums=None) for x in images]))
