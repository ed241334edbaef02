"""Writing into a quantized weight by the ways in which pruning, initialisation, averaging and
surgery write into a dense one: through slices and views, lists, ``out=``, by index."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.weight_kinds import MODULES, module, same_parts
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mixed_gemm import Linear, QuantizedTensor
from mixed_gemm.weights.writing import rounded_like

Way = Callable[[Any], Any]


def item(index: Any, value: float = 0.0) -> Way:
    return lambda w: w.__setitem__(index, value)


def ones(w: Any) -> Tensor:
    return torch.full(tuple(w.shape), 0.05)


def mask(w: Any) -> Tensor:
    return torch.arange(w.numel()).view(w.shape) % 3 == 0


WAYS: dict[str, Way] = {
    # by index
    "w[3] = 0": item(3),
    "w[0, 0] = 1": item((0, 0), 1.0),
    "w[:, 32:] = 0": item((slice(None), slice(8, None))),
    "w[[1, 2]] = 0": item([1, 2]),
    "w[mask] = 0": lambda w: w.__setitem__(mask(w), 0.0),
    "w[::2] = 0": item(slice(None, None, 2)),
    "w[...] = 0.05": item(..., 0.05),
    "w[3:9] *= 2": lambda w: w[3:9].mul_(2),
    # through views
    "w[3].zero_()": lambda w: w[3].zero_(),
    "w[3][2].fill_": lambda w: w[3][2].fill_(1.0),
    "w[0:2].copy_": lambda w: w[0:2].copy_(ones(w)[:2]),
    "w[0:8][3:5].zero_": lambda w: w[0:8][3:5].zero_(),
    "w[3:9] zero_": lambda w: w[3:9].zero_(),
    "w[:, 5].zero_()": lambda w: w[:, 5].zero_(),
    "narrow(1).copy_": lambda w: w.narrow(1, 0, 8).copy_(0.05 * ones(w)[:, :8]),
    "view(-1).zero_()": lambda w: w.view(-1).zero_(),
    "view(-1)[5] = 1": lambda w: w.view(-1).__setitem__(5, 1.0),
    "view(2, ...).mul_": lambda w: w.view(2, -1, w.shape[1]).mul_(2),
    "unsqueeze(0).mul_": lambda w: w.unsqueeze(0).mul_(2),
    "flatten(1).t().zero_()": lambda w: w.flatten(1).t().zero_(),
    "transpose(0, 1)[2].zero_": lambda w: w.transpose(0, 1)[2].zero_(),
    "permute": lambda w: w.permute(*reversed(range(w.dim())))[0].zero_(),
    "diagonal().zero_": lambda w: w.flatten(1).diagonal().zero_(),
    "as_strided": lambda w: w.as_strided((3, 2), (7, 2), 5).zero_(),
    "select(1, 2).add_": lambda w: w.select(1, 2).add_(0.05),
    "unbind()[1].zero_": lambda w: w.unbind()[1].zero_(),
    "detach()[3].zero_": lambda w: w.detach()[3].zero_(),
    "w[3].data.zero_()": lambda w: w[3].data.zero_(),
    "expand": lambda w: w.expand(1, *w.shape).mul_(2),
    # of all of it
    "zero_": lambda w: w.zero_(),
    "fill_": lambda w: w.fill_(0.05),
    "clamp_": lambda w: w.clamp_(-0.01, 0.01),
    "masked_fill_": lambda w: w.masked_fill_(mask(w), 0.0),
    "index_fill_": lambda w: w.index_fill_(0, torch.tensor([1, 2]), 0.0),
    "index_copy_": lambda w: w.index_copy_(0, torch.tensor([4]), ones(w)[:1]),
    "scatter_": lambda w: w.flatten(1).scatter_(1, torch.zeros(2, 1).long(), 1.0),
    "addcmul_": lambda w: w.addcmul_(ones(w), ones(w)),
    "lerp_": lambda w: w.lerp_(ones(w), 0.5),
    "copy_ of integers": lambda w: w.copy_(torch.ones(w.shape).long()),
    "copy_ of one row": lambda w: w.copy_(ones(w)[:1]),
    "relu_": lambda w: nn.functional.relu_(w),
    "dropout": lambda w: nn.functional.dropout(w, 0.5, training=True, inplace=True),
    "bernoulli_": lambda w: w.bernoulli_(0.5),
    # lists, keywords
    "_foreach_mul_": lambda w: torch._foreach_mul_([w], 2.0),
    "_foreach_lerp_": lambda w: torch._foreach_lerp_([w], [ones(w)], 0.5),
    "_foreach_copy_": lambda w: torch._foreach_copy_([w], [ones(w)]),
    "_foreach_add_ of dense, too": lambda w: torch._foreach_add_([ones(w), w], 0.05),
    "_foreach_zero_ of rows": lambda w: torch._foreach_zero_([w[1], w[4]]),
    "add(out=)": lambda w: torch.add(w, 0.05, out=w),
    "mul(out=) of a row": lambda w: torch.mul(w[1], 2, out=w[0]),
    "frexp(out=)": lambda w: torch.frexp(
        w.detach() * 1, out=(w, torch.zeros(w.shape, dtype=torch.int32))
    ),
    # initialisation
    "init.zeros_": nn.init.zeros_,
    "init.constant_": lambda w: nn.init.constant_(w, 0.05),
    "init.normal_": lambda w: nn.init.normal_(w, std=0.02),
    "init.uniform_": nn.init.uniform_,
    "init.xavier_uniform_": nn.init.xavier_uniform_,
    "init.kaiming_normal_": nn.init.kaiming_normal_,
    "init.orthogonal_": nn.init.orthogonal_,
    "init.eye_": lambda w: nn.init.eye_(w.flatten(1)) if w.dim() == 4 else nn.init.eye_(w),
    "init.sparse_": lambda w: nn.init.sparse_(w, 0.5) if w.dim() == 2 else w.zero_(),
    # optimizers, as they write into whatever has a gradient
    "SGD": lambda w: stepped(torch.optim.SGD([w], 0.01), w),
    "AdamW": lambda w: stepped(torch.optim.AdamW([w], 0.01), w),
    "AdamW foreach": lambda w: stepped(torch.optim.AdamW([w], 0.01, foreach=True), w),
    "vector_to_parameters": lambda w: nn.utils.vector_to_parameters(ones(w).flatten(), [w]),
}


def stepped(optimizer: Any, w: Any) -> None:
    w.grad = torch.ones(w.shape)
    optimizer.step()


@torch.no_grad()
def test_truncated_normal() -> None:
    """Older torch (2.11) draws it by four ops in place. The weight is rounded after each, and
    the slope of erfinv has no bound: a dense weight is near in its distribution, not by element."""
    weight = module("int8").weight
    nn.init.trunc_normal_(weight, std=0.02, a=-0.04, b=0.04)
    dense = weight.dequantize()
    assert bool((dense.abs() <= 0.0402).all())
    assert 0.014 < dense.std() < 0.02  # of a normal distribution cut at two deviations: 0.0176


@pytest.mark.parametrize("kind", MODULES)
@torch.no_grad()
def test_what_is_written_is_there(kind: str) -> None:
    """To the bit what rounding the dense result gives, but where steps are several."""
    for name, way in WAYS.items():
        weight, before = module(kind).weight, module(kind).weight
        dense = nn.Parameter(before.dequantize().contiguous(), requires_grad=False)
        for target in (dense, weight):
            torch.manual_seed(1)
            way(target)
        wanted = rounded_like(before, dense.data)
        assert not same_parts(wanted, before), name
        found, value = weight.dequantize(), wanted.dequantize()
        steps = name.startswith(("init.", "SGD", "AdamW", "w[3:9] *=", "_foreach_zero_"))
        if steps or kind == "int4 act-order":  # rounded between them; or stored times a pre_scale
            each = 16 if "4" in kind or "fp8" in kind or "conv offsets" in kind else 128
            step = (value.abs().amax() + dense.abs().amax()) / each
            assert bool(((found - value).abs() <= 2 * step).all()), (
                name,
                (found - value).abs().max(),
            )
        else:
            assert same_parts(weight, wanted), name


@pytest.mark.parametrize("kind", MODULES)
@torch.no_grad()
def test_views_made_before_see_what_is_written_later(kind: str) -> None:
    weight = module(kind).weight
    row, turned, flat = weight[3], weight.flatten(1).t(), weight.view(-1)
    rows, again = weight[2:5], weight.detach()
    for write in (lambda: weight.mul_(2), lambda: again[3].zero_(), lambda: row.fill_(0.05)):
        write()
        dense = weight.dequantize().contiguous()
        assert torch.equal(row + 0, dense[3]) and torch.equal(rows + 0, dense[2:5])
        assert torch.equal(turned + 0, dense.flatten(1).t()) and torch.equal(
            flat + 0, dense.view(-1)
        )
        assert torch.equal(again.dequantize(), dense)
        if isinstance(rows, QuantizedTensor):
            assert torch.equal(rows.dequantize(), dense[2:5])


@torch.no_grad()
def test_views_see_a_state_dict_that_is_loaded() -> None:
    layer, other = module("int8"), module("int8")
    other.weight.mul_(2)
    row, rows = layer.weight[3], layer.weight[2:5]
    layer.load_state_dict(other.state_dict())
    assert torch.equal(row + 0, other.dequantize()[3])
    assert torch.equal(rows.dequantize(), other.dequantize()[2:5])


@torch.no_grad()
def test_splits_are_written_through_too() -> None:
    for dim in (0, 1):
        weight, before = module("int8").weight, module("int8").weight
        dense = before.dequantize()
        pieces, dense_pieces = weight.split(24, dim), dense.split(24, dim)
        assert all(isinstance(piece, QuantizedTensor) for piece in pieces)
        for target in (pieces, dense_pieces):
            target[1].zero_()
        assert same_parts(weight, rounded_like(before, dense))
        assert torch.equal(pieces[1].dequantize(), weight.dequantize().split(24, dim)[1])
    columns = module("int4 act-order").weight.split(32, 1)
    with pytest.raises(NotImplementedError, match=r"act-order cannot be written apart\. Hint"):
        columns[0].zero_()


@torch.no_grad()
def test_rows_that_are_not_written_stay_what_calibration_made_them() -> None:
    torch.manual_seed(0)
    q = torch.randint(-5, 6, (64, 32), dtype=torch.int8)
    layer = Linear.from_quantized(q, torch.full((1, 64), 0.1), bits=4)
    layer.weight[7].zero_()
    others = torch.arange(64) != 7
    assert torch.equal(layer.to_quantized_weight().q[others], q[others])
    assert not layer.dequantize()[7].any()


@pytest.mark.parametrize("kind", MODULES)
@torch.no_grad()
def test_an_average_of_models(kind: str) -> None:
    averages = []
    for quantized in (True, False):
        layer = module(kind)
        if not quantized:
            layer.weight = nn.Parameter(layer.weight.dequantize(), requires_grad=False)
        average = AveragedModel(nn.Sequential(layer), multi_avg_fn=get_ema_multi_avg_fn(0.5))
        other = nn.Sequential(copy.deepcopy(layer))
        average.update_parameters(other)
        other[0].weight.data = -3 * other[0].weight.data
        average.update_parameters(other)
        averages.append(average.module[0].weight)
    found, wanted = averages[0].dequantize(), averages[1]
    each = 8 if "4" in kind else 8 if "fp8" in kind else 120
    assert bool(((found - wanted).abs() <= wanted.abs().amax() / each).all())


@torch.no_grad()
def test_a_view_is_a_tensor_like_others() -> None:
    weight = module("int8").weight
    row, dense = weight[3], weight.dequantize()[3]
    assert torch.equal(torch.from_numpy(row.numpy().copy()), dense)
    assert row.tolist() == dense.tolist() and row.sum() == dense.sum()
    assert torch.equal(copy.deepcopy(row), dense) and type(copy.deepcopy(row)) is Tensor
    assert row.stride() == (1,) and row.storage_offset() == 3 * 96
    with pytest.raises(RuntimeError, match="no memory that holds the elements"):
        row.untyped_storage()


COMPILED: dict[str, Way] = {
    "a row": lambda w: w[3].zero_(),
    "by index": lambda w: w.__setitem__(3, 0.0),
    "turned": lambda w: w.t()[3].zero_(),
    "rows": lambda w: w[2:5].zero_(),
    "all": lambda w: w.zero_(),
    "times": lambda w: w.mul_(2),
    "a list": lambda w: torch._foreach_mul_([w], 2.0),
}


@pytest.mark.parametrize("way", COMPILED)
@torch.no_grad()
def test_a_compiled_function_writes_too(way: str) -> None:
    """Its graph breaks, since whether a weight is finite is looked at."""

    def write(w: Any) -> Any:
        COMPILED[way](w)
        return w + 1

    torch._dynamo.reset()
    weight, eager = module("int8").weight, module("int8").weight
    wanted = write(eager)
    found = torch.compile(write, backend="aot_eager")(weight)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(weight.dequantize(), eager.dequantize())
    assert not same_parts(weight, module("int8").weight)


def test_collectives_are_refused_or_right() -> None:
    from torch import distributed as dist

    if not dist.is_available():
        pytest.skip("this torch has no torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        weight, before = module("int8").weight, module("int8").weight
        hint = r"a collective does not write into a quantized weight.*Hint: dense ="
        for call in (
            lambda: dist.all_reduce(weight),
            lambda: dist.all_reduce(weight[3]),
            lambda: dist.all_gather_into_tensor(weight, torch.ones(weight.shape)),
            lambda: dist.reduce(weight, 0),
            lambda: dist.reduce_scatter_tensor(weight, torch.ones(weight.shape)),
            lambda: dist.all_to_all_single(weight, torch.ones(weight.shape)),
            lambda: dist.scatter(weight, [torch.ones(weight.shape)]),
        ):
            with pytest.raises(NotImplementedError, match=hint):
                call()
            assert same_parts(weight, before)
        for gather in (dist.all_gather, lambda into, x: dist.gather(x, into)):
            other = module("int8").weight
            gather([other], torch.ones(other.shape))  # the backend copies what it gets, with copy_
            assert torch.equal(other.dequantize(), torch.ones(other.shape))
        dist.broadcast(weight, 0)
        assert same_parts(weight, before)
        received = [torch.zeros(weight.shape)]
        dist.all_gather(received, weight)
        assert torch.equal(received[0], before.dequantize())
        other = module("int8").weight
        other.mul_(0)
        dist.scatter(other, [weight.detach()])
        assert same_parts(other, before)
    finally:
        dist.destroy_process_group()
