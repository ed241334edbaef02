"""The ops around the experts of a mixture, as a model calls them: a whole way to the experts and
back, what torch and transformers take and give, and what a CPU refuses by its values."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.reference import moe as reference

TOKENS, HIDDEN, EXPERTS, TOP_K = 11, 24, 5, 3


def routed() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, distinct experts for each, and weights that add up to 1."""
    torch.manual_seed(0)
    weights, ids = torch.randn(TOKENS, EXPERTS).softmax(-1).topk(TOP_K)
    return torch.randn(TOKENS, HIDDEN), ids, weights / weights.sum(-1, keepdim=True)


def test_the_way_back_is_that_of_every_expert_by_itself() -> None:
    x, ids, weights = routed()
    down = torch.randn(EXPERTS, HIDDEN, HIDDEN)
    rows, offs, positions = mixed_gemm.moe_permute(x, ids, EXPERTS)
    begin = 0
    for expert, end in enumerate(offs.tolist()):
        rows[begin:end] = rows[begin:end] @ down[expert].t()
        begin = end
    out = mixed_gemm.moe_combine(rows, positions, weights)
    want = torch.einsum("tk,tkoh,th->to", weights, down[ids], x)
    torch.testing.assert_close(out, want)


def test_the_rows_of_an_expert_are_tokens_in_order() -> None:
    x, ids, _ = routed()
    rows, offs, positions = mixed_gemm.moe_permute(x, ids.int(), EXPERTS)
    begins = [0, *offs.tolist()]
    for expert in range(EXPERTS):
        tokens = (ids == expert).any(1).nonzero().flatten()
        assert torch.equal(rows[begins[expert] : begins[expert + 1]], x[tokens])
    assert torch.equal(rows[positions.long()], x[:, None].expand(-1, TOP_K, -1))


def test_no_tokens_have_gradients_of_no_elements() -> None:
    x, weights = torch.zeros(0, 4, requires_grad=True), torch.zeros(0, 2, requires_grad=True)
    rows, _, positions = mixed_gemm.moe_permute(x, torch.zeros(0, 2, dtype=torch.int64), 3)
    mixed_gemm.moe_combine(rows, positions, weights).sum().backward()
    assert x.grad is not None and weights.grad is not None
    assert x.grad.shape == (0, 4) and weights.grad.shape == (0, 2)


def test_offsets_are_those_of_a_grouped_product() -> None:
    x, ids, _ = routed()
    rows, offs, _ = mixed_gemm.moe_permute(x.bfloat16(), ids, EXPERTS)
    w = torch.randn(EXPERTS, HIDDEN, 16, dtype=torch.bfloat16)
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this torch has no _grouped_mm")
    out = torch._grouped_mm(rows, w, offs=offs)
    expert = torch.repeat_interleave(torch.arange(EXPERTS), offs.diff(prepend=offs.new_zeros(1)))
    want = torch.bmm(rows[:, None].float(), w[expert].float())[:, 0]
    torch.testing.assert_close(out.float(), want, rtol=0.02, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_both_sentinels_are_no_expert(dtype: torch.dtype) -> None:
    x = torch.arange(1.0, 4).reshape(3, 1)
    ids = torch.tensor([[-1, 1], [2, 0], [0, -1]], dtype=dtype)
    rows, offs, positions = mixed_gemm.moe_permute(x, ids, 2)
    assert offs.tolist() == [2, 3]
    assert positions.tolist() == [[-1, 2], [-1, 0], [1, -1]]
    assert rows.flatten().tolist() == [2, 3, 1, 0, 0, 0]
    nan = torch.where(rows == 0, torch.nan, rows)
    weights = torch.tensor([[torch.nan, 2.0], [torch.inf, 3.0], [0.5, torch.nan]])
    assert mixed_gemm.moe_combine(nan, positions, weights).flatten().tolist() == [2, 6, 1.5]


@pytest.mark.parametrize("wrong", [-2, 6, 2**40])
def test_an_id_that_nobody_gives_is_refused(wrong: int) -> None:
    x, ids, _ = routed()
    ids[2, 1] = wrong
    text = rf"moe_permute: topk_ids must be in -1..5 for num_experts=5, got {wrong} at index \(2, 1"
    with pytest.raises(ValueError, match=text):
        mixed_gemm.moe_permute(x, ids, EXPERTS)


@pytest.mark.parametrize("wrong", [-2, 4])
def test_a_position_that_is_no_row_is_refused(wrong: int) -> None:
    positions = torch.tensor([[0, 3], [-1, wrong]], dtype=torch.int32)
    text = f"moe_combine: positions must be in -1..3 for 4 rows, got {wrong} at index (1, 1)"
    with pytest.raises(ValueError, match=re.escape(text)):
        mixed_gemm.moe_combine(torch.zeros(4, 2), positions, torch.ones(2, 2))


def test_a_sum_is_fused_and_rounds_once() -> None:
    """Rows whose products cancel: a product that rounds by itself gives another sum."""
    torch.manual_seed(0)
    rows, weights = torch.randn(2000, 7), torch.randn(1000, 2)
    rows[1::2] = -rows[::2] * (weights[:, :1] / weights[:, 1:])
    positions = torch.arange(2000, dtype=torch.int32).view(1000, 2)
    out = mixed_gemm.moe_combine(rows, positions, weights)
    assert torch.equal(out, reference.moe_combine(rows, positions, weights))
    apart = rows[::2] * weights[:, :1] + rows[1::2] * weights[:, 1:]
    assert not torch.equal(out, apart)


def test_gates_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    found = transformers.models.gpt_oss.modeling_gpt_oss.GptOssExperts
    own = type("Own", (), {"alpha": 1.702, "limit": 7.0})()
    halves = 4 * torch.randn(6, 2 * 40)
    turns = torch.stack(halves.chunk(2, -1), -1).flatten(-2)
    want = found._apply_gate(own, turns)
    out = mixed_gemm.gated_activation(halves, activation="swiglu_oai", limit=7.0, alpha=1.702)
    torch.testing.assert_close(out, want)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu", "swiglu_oai"])
def test_a_gate_keeps_nan_and_cuts_infinity(activation: str) -> None:
    big, nan = torch.inf, torch.nan
    pairs = torch.tensor([[nan, 1.0], [1.0, nan], [big, 1.0], [1.0, -big], [1e30, 1e30]])
    out = mixed_gemm.gated_activation(pairs, activation=activation, limit=2.0).flatten()
    cut = torch.tensor([[2.0, 1.0], [1.0, -2.0], [2.0, 2.0]])
    assert out[:2].isnan().all()
    assert torch.equal(out[2:], mixed_gemm.gated_activation(cut, activation=activation).flatten())
