"""The kind of weight that block_quant_gemm multiplies: against the oracle of the op, in modules, in
files, on plans."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from problems.block import sums_of
from torch import nn

import mixed_gemm
from mixed_gemm import Linear, Scheme
from mixed_gemm.formats import QuantizedWeight, open_checkpoint, save_checkpoint
from mixed_gemm.nn import FusedSequential
from mixed_gemm.reference import conv as reference
from mixed_gemm.weights import W8A8BlockWeight, W8A8Weight

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def layer(seed: int, symmetric: bool | None = None) -> tuple[Linear, nn.Linear, random.Random]:
    """A quantized layer of drawn shape, block and dtype, and what it was made of."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    k, n = draw.randint(16, 300), draw.randint(1, 130)
    size = draw.choice([-1, *range(16, k + 1, 16)])
    dense = nn.Linear(k, n, bias=draw.random() < 0.7).to(draw.choice(DTYPES))
    symmetric = draw.random() < 0.5 if symmetric is None else symmetric
    return Linear.from_float(dense, Scheme.w8a8_block(size, symmetric)), dense, draw


@pytest.mark.parametrize("seed", range(12))
def test_product_is_that_of_the_op_within_its_bound(seed: int) -> None:
    module, dense, draw = layer(seed)
    weight: Any = module.weight
    assert type(weight) is W8A8BlockWeight and weight.dtype == dense.weight.dtype
    x = (3 * torch.randn(draw.randint(1, 9), dense.in_features)).to(weight.dtype)
    offsets = torch.zeros_like(weight.scales) if weight.offsets is None else weight.offsets
    exact, bound = reference.block_oracle(
        x, weight.weight_int8.t(), weight.scales, offsets, module.bias,
        block_size=module.group_size,
    )  # fmt: skip
    assert bool(((module(x).double() - exact).abs() <= bound).all())
    step = 2.0 * weight.scales.float().abs().max() + 2.0**-7 * dense.weight.float().abs().max()
    assert (weight.dequantize(torch.float32) - dense.weight.float()).abs().max() <= step


def has_its_sums(weight: W8A8BlockWeight) -> bool:
    return torch.equal(weight.b_sums, sums_of(weight.weight_int8, weight.scheme.group_size))


def joined(weight: W8A8BlockWeight) -> W8A8BlockWeight:
    half = max(weight.shape[0] // 2, 1)
    ends = ((0, half), (half, weight.shape[0])) if half < weight.shape[0] else ((0, half),)
    return W8A8BlockWeight.join([weight.cut(0, *end) for end in ends])


def first_columns(weight: W8A8BlockWeight) -> W8A8BlockWeight:
    size = weight.scheme.group_size
    return weight.cut(1, 0, weight.shape[1] if size == -1 else size)


def last_columns(weight: W8A8BlockWeight) -> W8A8BlockWeight:
    """The last block, ragged or not."""
    k, size = weight.shape[1], weight.scheme.group_size
    return weight.cut(1, 0 if size == -1 else (k - 1) // size * size, k)


def written(weight: W8A8BlockWeight) -> W8A8BlockWeight:
    weight.copy_(torch.randn(weight.shape))
    return weight.mul_(1.5).add_(torch.randn(weight.shape))  # type: ignore[return-value]


def assigned(weight: W8A8BlockWeight) -> W8A8BlockWeight:
    weight.data = torch.randn(weight.shape)
    return weight


DERIVED: dict[str, Callable[[W8A8BlockWeight], Any]] = {
    "itself": lambda w: w,
    "rows": lambda w: w.cut(0, w.shape[0] // 2, w.shape[0]),
    "a slice": lambda w: w[: max(w.shape[0] // 2, 1)],
    "first columns": first_columns,
    "last columns": last_columns,
    "joined": joined,
    "requantized": lambda w: w.requantized(torch.randn(w.shape)),
    "cast": lambda w: w.to(torch.float32).to(torch.bfloat16),
    "cloned": torch.clone,
    "copied": copy.deepcopy,
    "pickled": lambda w: pickle.loads(pickle.dumps(w)),
    "written": written,
    "assigned": assigned,
    "empty": lambda w: type(w).empty(tuple(w.shape), w.scheme),
    "stored": lambda w: type(w).store(w.unpacked("x"), w.dtype),
    "zeros of another number of rows": lambda w: w.new_zeros(3, w.shape[1]),
}


@pytest.mark.parametrize("made", DERIVED)
@pytest.mark.parametrize("seed", range(6))
def test_sums_belong_to_the_weight(made: str, seed: int) -> None:
    weight: Any = layer(seed)[0].weight.data
    found = DERIVED[made](weight)
    assert type(found) is W8A8BlockWeight and has_its_sums(found) and has_its_sums(weight)
    assert found.b_sums.dtype == torch.int32 and found.b_sums.is_contiguous()


def test_a_product_takes_the_sums_of_its_weight() -> None:
    module, _, _ = layer(3)
    x = torch.rand(4, module.in_features).to(module.weight.dtype)
    before = module(x)
    module.weight.b_sums.add_(1000)
    assert not torch.equal(module(x), before)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("offsets", [False, True])
def test_a_state_has_no_sums_and_loading_makes_them(offsets: bool, assign: bool) -> None:
    torch.manual_seed(8)
    scheme = Scheme.w8a8_block(32, not offsets)
    module, other = (Linear.from_float(nn.Linear(80, 24), scheme) for _ in range(2))
    state = module.state_dict()
    # What was written before there were sums loads: the names are the same.
    parts = {"weight_int8", "scales", "bias", "_extra_state"}
    assert set(state) == (parts | {"offsets"} if offsets else parts)
    x = torch.randn(5, 80)
    assert not torch.equal(other(x), module(x))
    other.load_state_dict(copy.deepcopy(state), assign=assign)
    assert has_its_sums(other.weight) and torch.equal(other(x), module(x))
    fresh = Linear(80, 24, scheme=scheme, device="meta")
    fresh.load_state_dict(state, assign=True)
    assert has_its_sums(fresh.weight) and torch.equal(fresh(x), module(x))
    fresh = Linear(80, 24, scheme=scheme, device="meta").to_empty(device="cpu")
    fresh.load_state_dict(state)
    assert has_its_sums(fresh.weight) and torch.equal(fresh(x), module(x))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        other.load_state_dict({**state, "b_sums": module.weight.b_sums})


def test_a_weight_from_before_there_were_sums_works(tmp_path: Path) -> None:
    module, _, _ = layer(4)
    x = torch.randn(4, module.in_features).to(module.weight.dtype)
    want = module(x)
    del module.weight.b_sums
    torch.save(module, tmp_path / "old.pt")
    old = torch.load(tmp_path / "old.pt", weights_only=False)
    assert torch.equal(old(x), want)
    old.load_state_dict(old.state_dict())
    assert old.weight.b_sums is None and torch.equal(old(x), want)
    for made in (old.weight.cut(0, 0, 1), joined(old.weight), old.weight.data):
        assert has_its_sums(made)


@pytest.mark.parametrize("seed", range(12))
def test_files_give_the_same_bits_back(seed: int, tmp_path: Path) -> None:
    module, _, draw = layer(seed)
    if draw.random() < 0.5:
        module.weight.pre_scale = 0.5 + torch.rand(module.in_features).to(module.weight.dtype)
    save_checkpoint(nn.Sequential(module), tmp_path)
    again = open_checkpoint(tmp_path).layer("0").to_linear(module.weight.dtype)
    assert again.weight.scheme == module.weight.scheme
    mine, other = module.weight.tensors(), again.weight.tensors()
    assert mine.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in mine.items())


def test_weights_with_offsets_keep_ranges_that_do_not_hold_zero() -> None:
    torch.manual_seed(0)
    dense = nn.Linear(64, 32)
    with torch.no_grad():
        dense.weight.add_(4)
    errors = [
        (Linear.from_float(dense, Scheme.w8a8_block(32, x)).dequantize() - dense.weight).norm()
        for x in (True, False)
    ]
    assert errors[1] < errors[0] / 4


def test_an_outlier_costs_its_block_and_no_other() -> None:
    torch.manual_seed(1)
    dense, x = nn.Linear(256, 64, bias=False), torch.randn(8, 256)
    x[:, 5] = 300
    with torch.no_grad():
        dense.weight[:, :64] = 0  # so that what is off is in the other blocks
        by_row, by_block = (
            (Linear.from_float(dense, scheme)(x) - dense(x)).norm()
            for scheme in (Scheme.w8a8("dynamic_azp"), Scheme.w8a8_block(64))
        )
    assert by_block < by_row / 20


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6()])
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_run_in_the_kernel(activation: nn.Module, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(96, 80), activation, nn.Linear(80, 8)).to(dtype)
    options = {"group_size": 16, "fuse_activations": True, "progress": False}
    report = mixed_gemm.quantize_(model, "w8a8_block", **options)
    assert type(model) is FusedSequential and set(report.fused) == {"0"}
    x = 5 * torch.randn(7, 96).to(dtype)
    assert torch.equal(model(x), model[2](activation(model[0](x))))


def test_plans_are_those_of_its_op() -> None:
    module = Linear.from_float(nn.Linear(512, 256), "w8a8_block")
    found = mixed_gemm.plan(module, 16, device="cuda:sm=90,sms=132,smem=232448")
    assert found.family == "block" and "block_quant_gemm" in str(found)
    assert mixed_gemm.plan(module, 16, device="cpu").family == "cpu"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"group_size": 40}, "group_size must be -1"),
        ({"group_size": 256}, "block_size must not be larger than K"),
        ({"bits": 4}, "bits must not be given"),
        ({"activations": "static"}, "activations must not be given"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        mixed_gemm.quantize_(nn.Sequential(nn.Linear(128, 8)), "w8a8_block", **change)


def test_a_wrong_part_is_refused() -> None:
    q, scales = torch.zeros(8, 64, dtype=torch.int8), torch.ones(2, 8)
    made = W8A8BlockWeight.from_quantized(q, scales, block_size=32)
    assert made.shape == (8, 64)
    for change, error in (
        ({"scales": scales[:1]}, ValueError),
        ({"offsets": scales.half()}, ValueError),
        ({"scales": scales / 0}, ValueError),
        ({"weight": q.float()}, TypeError),
    ):
        with pytest.raises(error):
            arguments = {"weight": q, "scales": scales, "block_size": 32, **change}
            W8A8BlockWeight.from_quantized(**arguments)


def test_one_block_is_no_w8a8_and_the_other_way_round() -> None:
    whole = Scheme.w8a8_block(-1)
    assert type(Linear.from_float(nn.Linear(64, 8), whole).weight) is W8A8BlockWeight
    rows = Linear.from_float(nn.Linear(64, 8), "w8a8", activations="dynamic_azp")
    assert type(rows.weight) is W8A8Weight


def test_smoothed(tmp_path: Path) -> None:
    torch.manual_seed(3)
    x = torch.randn(32, 64)
    x[:, 3] *= 40
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 32), nn.Identity())
    want = model(x)
    plain = mixed_gemm.quantize_(
        model, "w8a8_block", group_size=32, calibration=[x], smooth=0.5, progress=False
    )
    assert "folded into 0" in plain.smoothed["1"]
    assert (model(x) - want).norm() / want.norm() < 0.02


def test_dynamic_groups_that_are_not_of_the_weight_leave_activations_alone() -> None:
    weight = Linear.from_float(nn.Linear(64, 8), "w8a8_block", group_size=32).weight.unpacked("x")
    side = Scheme.w8a8_block(16).input_activations
    other = QuantizedWeight("x", weight.q, weight.scales, bits=8, group_size=32,
                            input_activations=side)  # fmt: skip
    assert other.to_linear().scheme == Scheme.weight_only(8, 32)
