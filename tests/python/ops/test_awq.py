"""AutoAWQ and GPTQ tensors: the product and the dequantizer against float64, repacking against
pack_weights, and every refusal. The packers here are written from the formats, a code at a time.
"""

from __future__ import annotations

import pytest
import torch
from problems.awq import gptq_words
from support.awq import awq
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import mixed_gemm
from mixed_gemm import reference

ops = torch.ops.mixed_gemm


@pytest.mark.parametrize("m", [1, 40])
def test_awq_gemm_one_hot_rows_read_the_weight(m: int) -> None:
    w = awq(136, 96, 32)
    rows = torch.arange(m) * 7 % 96
    a = torch.nn.functional.one_hot(rows, 96).half()
    assert torch.equal(
        mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros), w.dense()[rows].half()
    )


def test_awq_gemm_equals_the_repacked_weight() -> None:
    w = awq(200, 256, 64, torch.bfloat16)
    a = torch.randn(5, 256).bfloat16()
    native = mixed_gemm.fpA_intB_gemm(
        a, mixed_gemm.ops.awq_repack(w.qweight), w.scales, w.zeros, bits=4, group_size=64
    )
    torch.testing.assert_close(mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros), native)


def test_awq_gemm_takes_views_and_leading_dimensions() -> None:
    w = awq(72, 96, 32)
    a = torch.randn(2, 3, 200).half()[:, :, 50:146]
    out = mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros)
    flat = mixed_gemm.awq_gemm(a.reshape(6, 96).contiguous(), w.qweight, w.scales, w.qzeros)
    assert torch.equal(out, flat.view(2, 3, 72))
    strided = [torch.stack([t, t], -1)[..., 0] for t in (w.qweight, w.scales, w.qzeros)]
    assert torch.equal(mixed_gemm.awq_gemm(a, *strided), out)
    assert torch.equal(mixed_gemm.awq_gemm(a[0, 0], w.qweight, w.scales, w.qzeros), out[0, 0])


@pytest.mark.parametrize("shape", [(0, 96), (2, 0, 96)])
def test_awq_gemm_no_rows_give_no_rows(shape: tuple[int, ...]) -> None:
    w = awq(72, 96, 32)
    out = mixed_gemm.awq_gemm(torch.empty(shape).half(), w.qweight, w.scales, w.qzeros)
    assert out.shape == (*shape[:-1], 72)


def test_awq_gemm_no_columns_give_none() -> None:
    empty = torch.empty(96, 0, dtype=torch.int32)
    out = mixed_gemm.awq_gemm(torch.ones(3, 96), empty, torch.ones(3, 0), empty[:3])
    assert out.shape == (3, 0)


@pytest.mark.parametrize("split", [1, 2, 8, 32])
def test_awq_gemm_split_is_a_hint(split: int) -> None:
    w = awq(64, 96, 32)
    a = torch.randn(3, 96).half()
    out = mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros, split)
    assert torch.equal(out, mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("n", "k", "group_size"), [(8, 16, 16), (136, 96, 48), (72, 30, -1)])
def test_awq_dequantize_rounds_once(n: int, k: int, group_size: int, dtype: torch.dtype) -> None:
    w = awq(n, k, group_size, dtype)
    out = mixed_gemm.awq_dequantize(w.qweight, w.scales, w.qzeros)
    assert torch.equal(out, w.dense().to(dtype))


@pytest.mark.parametrize(("n", "k"), [(8, 1), (72, 80), (264, 130)])
def test_awq_repack_equals_packing_the_integers(n: int, k: int) -> None:
    w = awq(n, k, -1)
    assert torch.equal(mixed_gemm.ops.awq_repack(w.qweight), mixed_gemm.pack_weights(w.q, 4))


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 32), (65, 96), (130, 224)])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq_repack_equals_packing_the_integers(bits: int, n: int, k: int, order: bool) -> None:
    codes = torch.randint(0, 2**bits, (k, n))
    perm = torch.randperm(k) if order else torch.arange(k)
    q = (codes - 2 ** (bits - 1))[perm].t().to(torch.int8)
    packed = mixed_gemm.ops.gptq_repack(
        gptq_words(codes, bits), perm.to(torch.int32) if order else None, bits=bits
    )
    assert torch.equal(packed, mixed_gemm.pack_weights(q, 8 if bits == 8 else 4))


def test_gptq_act_order_product_equals_the_unordered_one() -> None:
    k, n, group_size = 128, 72, 32
    codes = torch.randint(0, 16, (k, n))
    g_idx = torch.randperm(k) // group_size
    scales = (torch.rand(k // group_size, n) + 0.5).to(torch.float32) / 16
    a = torch.randn(3, k)
    perm = torch.argsort(g_idx, stable=True)
    packed = mixed_gemm.ops.gptq_repack(gptq_words(codes, 4), perm.to(torch.int32), bits=4)
    out = mixed_gemm.fpA_intB_gemm(a[:, perm], packed, scales, bits=4, group_size=group_size)
    exact = a.double() @ ((codes - 8).double() * scales.double()[g_idx])
    q = (codes - 8)[perm].t().to(torch.int8)
    bound = reference.error_bound(a[:, perm], q, scales, group_size=group_size)
    assert reference.error_ratio(out, exact, bound) <= 1


# --- torch around the ops ----------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(grad: bool) -> None:
    w = awq(72, 96, 32, torch.float32)
    a = torch.randn(3, 96, requires_grad=grad)
    torch.library.opcheck(ops.awq_gemm.default, (a, w.qweight, w.scales, w.qzeros, 8))
    torch.library.opcheck(ops.awq_dequantize.default, (w.qweight, w.scales, w.qzeros))
    torch.library.opcheck(ops.awq_repack.default, (w.qweight,))
    perm = torch.randperm(96).to(torch.int32)
    words = gptq_words(torch.randint(0, 8, (96, 40)), 3)
    torch.library.opcheck(ops.gptq_repack.default, (words, perm), {"bits": 3})


def test_awq_gemm_gradient_is_the_product_with_the_weight() -> None:
    w = awq(72, 96, 32, torch.float32)
    a = torch.randn(2, 3, 96, requires_grad=True)
    grad = torch.randn(2, 3, 72)
    mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros).backward(grad)
    assert a.grad is not None
    torch.testing.assert_close(a.grad.double(), grad.double() @ w.dense().t(), rtol=1e-5, atol=1e-5)


def test_awq_gemm_refuses_to_train_the_weight() -> None:
    w = awq(72, 96, 32, torch.float32)
    w.scales.requires_grad_()
    with pytest.raises(RuntimeError, match=r"scales requires grad, but quantized weights"):
        mixed_gemm.awq_gemm(torch.ones(1, 96), w.qweight, w.scales, w.qzeros)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_awq_gemm_autocast(dtype: torch.dtype) -> None:
    w = awq(72, 96, 32, torch.float16)
    with torch.autocast("cpu", dtype=dtype):
        out = mixed_gemm.awq_gemm(torch.ones(2, 96), w.qweight, w.scales, w.qzeros)
    assert out.dtype == dtype


def test_awq_gemm_compiles_and_counts_flops() -> None:
    w = awq(72, 96, 32)
    a = torch.randn(3, 96).half()

    def call(x: Tensor) -> Tensor:
        return mixed_gemm.awq_gemm(x, w.qweight, w.scales, w.qzeros)

    with FlopCounterMode(display=False) as counter:
        eager = call(a)
    assert counter.get_total_flops() == 2 * 3 * 72 * 96
    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(a), eager)


# --- refusals ----------------------------------------------------------------------------------

W = awq(72, 96, 32)
A = torch.ones(2, 96).half()
REFUSED = {
    "K": ((A[:, :80], W.qweight, W.scales, W.qzeros, 1), r"input must be .* = \(\.\.\., 96\)"),
    "scales as Triton's zeros": (
        (A, W.qweight, W.qzeros, W.scales, 1),
        "Hint: scales come before qzeros",
    ),
    "dtype": ((A.bfloat16(), W.qweight, W.scales, W.qzeros, 1), r"scales\.to\(input\.dtype\)"),
    "integer input": (
        (A.int(), W.qweight, W.scales, W.qzeros, 1),
        "input must be float16, bfloat16 or float32, got int32",
    ),
    "qweight": (
        (A, W.qweight.float(), W.scales, W.qzeros, 1),
        "qweight must be int32 .*got float32",
    ),
    "groups": ((A, W.qweight, W.scales[:2], W.qzeros, 1), r"scales must be .* = \(3, 72\)"),
    "ragged groups": (
        (A, W.qweight, W.scales.repeat(2, 1)[:5], W.qzeros.repeat(2, 1)[:5], 1),
        "a divisor of 96",
    ),
    "odd groups": (
        (A, W.qweight, W.scales.repeat(4, 1), W.qzeros.repeat(4, 1), 1),
        "multiple of 16",
    ),
    "split 0": ((A, W.qweight, W.scales, W.qzeros, 0), r"power of two in 1\.\.32, got 0"),
    "split 3": ((A, W.qweight, W.scales, W.qzeros, 3), r"power of two in 1\.\.32, got 3"),
    "split 64": ((A, W.qweight, W.scales, W.qzeros, 64), r"power of two in 1\.\.32, got 64"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_awq_gemm_refuses(name: str, device: str) -> None:
    arguments, message = REFUSED[name]
    placed = [x.to(device) if isinstance(x, Tensor) else x for x in arguments]
    with pytest.raises(RuntimeError, match=message):
        ops.awq_gemm(*placed)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("bits", "rows", "perm", "message"),
    [
        (5, 5, None, "bits must be 2, 3, 4 or 8, got 5"),
        (3, 4, None, "a multiple of 3"),
        (4, 4, torch.zeros(31, dtype=torch.int32), r"perm must be .*\(32,\)"),
        (4, 4, torch.zeros(32, dtype=torch.int64), "perm must be int32, got int64"),
        (4, 0, None, "qweight must have"),
    ],
)
def test_gptq_repack_refuses(
    device: str, bits: int, rows: int, perm: Tensor | None, message: str
) -> None:
    words = torch.zeros(rows, 8, dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match=message):
        ops.gptq_repack(words, None if perm is None else perm.to(device), bits=bits)


@pytest.mark.parametrize("index", [-1, 32, 4])
def test_gptq_repack_refuses_what_is_no_permutation(index: int) -> None:
    perm = torch.arange(32, dtype=torch.int32)
    perm[7] = index
    with pytest.raises(ValueError, match=r"perm must hold each of 0\.\.31 once"):
        mixed_gemm.ops.gptq_repack(torch.zeros(4, 8, dtype=torch.int32), perm, bits=4)
