"""AutoAWQ and GPTQ tensors: the product and the dequantizer against float64, repacking against
pack_weights, what is no permutation. The packers here are written from the formats, a code at a
time.
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


@pytest.mark.parametrize("split", [1, 2, 8, 32])
def test_awq_gemm_split_is_a_hint(split: int) -> None:
    w = awq(64, 96, 32)
    a = torch.randn(3, 96).half()
    out = mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros, split)
    assert torch.equal(out, mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros))


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


@pytest.mark.parametrize("index", [-1, 32, 4])
def test_gptq_repack_refuses_what_is_no_permutation(index: int) -> None:
    perm = torch.arange(32, dtype=torch.int32)
    perm[7] = index
    with pytest.raises(ValueError, match=r"perm must hold each of 0\.\.31 once"):
        mixed_gemm.ops.gptq_repack(torch.zeros(4, 8, dtype=torch.int32), perm, bits=4)
