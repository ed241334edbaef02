"""What torch expects of the ops of conv_ops: opcheck, gradients, autocast, compile, export, FLOP
counting, beyond what test_op_contract.py asks of every op. Values are the matter of test_conv.py
and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from problems import block as block_gemm
from problems import conv_int8
from problems.conv import ConvCase, ConvProblem, make
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import mixed_gemm
from mixed_gemm.reference import conv as reference_conv

OPS = torch.ops.mixed_gemm
EVERYTHING = ConvCase(
    2, 40, 24, (7, 8), (3, 2), (2, 1), (1, 2), (1, 3), torch.float32, 4, 16, True, True, "gelu"
)
SAMPLES = {
    "plain": ConvCase(in_c=16, out_c=8, size=(4, 4), bits=8, channels_last=False),
    "everything": EVERYTHING,
    "pointwise": ConvCase(kernel=(1, 1), padding=(0, 0), dtype=torch.bfloat16),
    "no images": ConvCase(images=0),
}


@pytest.fixture(autouse=True)
def own_graphs() -> Iterator[None]:
    """Graphs of one process count towards one limit."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def arguments(p: ConvProblem) -> tuple[tuple[Any, ...], dict[str, Any]]:
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in p.options().items()}
    tensors = (p.input, p.packed, *p.extras())
    return tensors, {"bits": p.case.bits, "kernel_size": list(p.case.kernel), **options}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("grad", [False, True])
def test_conv_opcheck(sample: str, grad: bool) -> None:
    p = make(SAMPLES[sample])
    p.input.requires_grad_(grad)
    if p.bias is not None:
        p.bias.requires_grad_(grad)
    tensors, options = arguments(p)
    torch.library.opcheck(OPS.qconv2d.default, tensors, options)


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_int8_opcheck(last: bool, sums: bool) -> None:
    layout = "channels_last" if last else "nchw"
    tensors, options = conv_int8.make(conv_int8.ConvInt8Case(layout=layout, sums=sums)).arguments()
    tensors = (*tensors, options.pop("weight_sums"))
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
    torch.library.opcheck(OPS.qconv2d_int8.default, tensors, options)


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_block_gemm_opcheck(grad: bool, sums: bool) -> None:
    case = block_gemm.BlockCase(dtype=torch.float32, activation="silu", sums=sums)
    p = block_gemm.make(case)
    assert p.bias is not None
    p.a.requires_grad_(grad)
    p.bias.requires_grad_(grad)
    options = p.options()
    tensors = (*p.arguments(), options.pop("b_sums"))
    torch.library.opcheck(OPS.block_quant_gemm.default, tensors, options)


# --- gradients ---------------------------------------------------------------------------------


def test_conv_bias_alone_trains() -> None:
    p = make(ConvCase(dtype=torch.float32, bias=True))
    assert p.bias is not None
    p.bias.requires_grad_()
    p.run().sum().backward()
    torch.testing.assert_close(p.bias.grad, torch.full((24,), 2.0 * 7 * 6))


def test_block_gemm_gradient_passes_straight_through_the_rounding() -> None:
    p = block_gemm.make(block_gemm.BlockCase(dtype=torch.float32, activation="silu"))
    assert p.bias is not None
    p.a.requires_grad_()
    p.bias.requires_grad_()
    grad = torch.randn(5, 40)
    got = torch.autograd.grad(p.run(), (p.a, p.bias), grad)
    wide = (x.double().repeat_interleave(64, dim=0)[:160] for x in (p.scale_b, p.offset_b))
    scales, offsets = wide
    w = p.weight.t().double() * scales + offsets
    # What the op computes, with the derivative of w at the rounded activations.
    pre = reference_conv.block_quant_gemm(
        p.a.detach(), p.weight.t(), p.scale_b, p.offset_b, p.bias.detach(), block_size=64
    ).requires_grad_()
    (through,) = torch.autograd.grad(nn.functional.silu(pre), pre, grad.double())
    torch.testing.assert_close(got[0].double(), through @ w.t(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got[1].double(), through.sum(0), rtol=1e-4, atol=1e-4)


# --- autocast, compile, export, vmap, FLOPs ----------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_conv_autocast_runs_in_the_dtype_of_the_user(dtype: torch.dtype) -> None:
    p = make(EVERYTHING)
    tensors, options = arguments(p)
    with torch.autocast("cpu", dtype=dtype):
        out = OPS.qconv2d(*tensors, **options)
    cast = [t.to(dtype) if t is not None and t.is_floating_point() else t for t in tensors]
    assert out.dtype == dtype
    assert torch.equal(out, OPS.qconv2d(*cast, **options))


def network() -> nn.Module:
    convs = (nn.Conv2d(3, 40, 3, 2, 1), nn.Conv2d(40, 24, 3, padding="same"))
    first, second = (mixed_gemm.Conv2d.from_float(conv, symmetric=False) for conv in convs)
    return nn.Sequential(first, nn.ReLU(), second, nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(
    ("backend", "dynamic", "last"),
    [
        ("aot_eager", False, True),
        ("aot_eager", True, False),
        ("inductor", False, False),
        ("inductor", True, True),
    ],
)
def test_conv_compiles_to_one_graph(backend: str, dynamic: bool, last: bool) -> None:
    model = network()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for n, size in ((2, 12), (3, 17)) if dynamic else ((2, 12),):
        x = torch.randn(n, 3, size, size + 1)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        x2 = x.clone().requires_grad_()
        x.requires_grad_()
        want, got = model(x), compiled(x2)
        torch.testing.assert_close(got, want)
        want.sum().backward()
        got.sum().backward()
        torch.testing.assert_close(x2.grad, x.grad)


def test_conv_exports_with_a_dynamic_batch() -> None:
    model = network().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(4, 3, 9, 9),), dynamic_shapes=({0: batch},))
    assert any("mixed_gemm.qconv2d" in str(node.target) for node in program.graph.nodes)
    x = torch.randn(7, 3, 9, 9)
    torch.testing.assert_close(program.module()(x), model(x))


def flops_of(run: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def test_flops_are_those_of_the_dense_ops() -> None:
    p = make(EVERYTHING)
    dense = torch.randn(24, 40, 3, 2)
    want = flops_of(lambda: nn.functional.conv2d(p.input, dense, **p.case.geometry()))
    assert flops_of(p.run) == want > 0
    int8 = conv_int8.make(conv_int8.ConvInt8Case())
    x, weight = int8.input.float(), int8.weight.float()
    want = flops_of(lambda: nn.functional.conv2d(x, weight, padding=1))
    assert flops_of(int8.run) == want > 0
    block = block_gemm.make(block_gemm.BlockCase())
    assert flops_of(block.run) == 2 * 5 * 40 * 160
