"""``QuantizedTensor`` as torch sees it: shape, operators, writing, casts, files, compilers."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Linear, QuantizedTensor, Scheme

N, K = 72, 96
SCHEMES: dict[str, dict[str, Any]] = {
    "int4 groups": {"bits": 4, "group_size": 32, "symmetric": False},
    "int4 ragged": {"bits": 4, "group_size": 64, "symmetric": False, "zero_mode": "add"},
    "int8 channel": {"scheme": "w8a16"},
    "w8a8": {"scheme": "w8a8", "activations": "dynamic_azp"},
    "w8a8 block": {"scheme": "w8a8_block", "group_size": 64, "symmetric": False},
    "fp8": {"scheme": "fp8"},
    "fp8 blocks": {"scheme": Scheme.fp8(strategy="block", block=(8, 24))},
}


@pytest.fixture(params=SCHEMES)
def layer(request: pytest.FixtureRequest) -> Linear:
    torch.manual_seed(0)
    return Linear.from_float(nn.Linear(K, N), **SCHEMES[request.param])


def parts_equal(a: QuantizedTensor, b: QuantizedTensor) -> bool:
    mine, other = a.tensors(), b.tensors()
    return mine.keys() == other.keys() and all(torch.equal(t, other[x]) for x, t in mine.items())


# --- what it looks like --------------------------------------------------------------------------


def test_it_is_a_frozen_parameter_with_the_dense_shape(layer: Linear) -> None:
    weight = layer.weight
    assert isinstance(weight, QuantizedTensor) and isinstance(weight, nn.Parameter)
    assert (weight.shape, weight.dtype, weight.device.type) == ((N, K), torch.float32, "cpu")
    assert weight.stride() == (K, 1) and weight.is_contiguous() and not weight.requires_grad
    assert weight.numel() == N * K and weight.stored_bytes < 4 * N * K
    assert dict(layer.named_parameters()).keys() == {"weight", "bias"}
    assert "(72, 96)" in repr(weight)


# --- operators see the dense value ---------------------------------------------------------------


READS: dict[str, Callable[[Tensor], Any]] = {
    "+": lambda w: w + 1,
    "*": lambda w: 2 * w,
    "float": lambda w: w.to(torch.float64),
    "abs max": lambda w: w.abs().amax(1),
    "norm": lambda w: w.norm(),
    "index": lambda w: w[3],
    "columns": lambda w: w[:, 5:9],
    "select": lambda w: w.select(1, 2),
    "mask": lambda w: w[w > 0],
    "t": lambda w: w.t() + 0,
    "T": lambda w: w.T.contiguous(),
    "flat": lambda w: w.view(-1) * 1,
    "reshape": lambda w: w.reshape(K, N),
    "cat": lambda w: torch.cat([w, w]),
    "where": lambda w: torch.where(w > 0, w, 0),
    "einsum": lambda w: torch.einsum("nk,mk->nm", w, torch.ones(2, K)),
    "svd": lambda w: torch.linalg.svdvals(w),
    "w @ x": lambda w: w @ torch.ones(K, 2),
    "numpy": lambda w: (
        torch.from_numpy(w.detach().to(torch.float32).clone().dequantize().numpy())
        if isinstance(w, QuantizedTensor)
        else w
    ),
}


@pytest.mark.parametrize("name", READS)
def test_operators_see_the_dense_value(layer: Linear, name: str) -> None:
    with torch.no_grad():
        found, wanted = READS[name](layer.weight), READS[name](layer.weight.dequantize())
    assert not isinstance(found, QuantizedTensor)
    torch.testing.assert_close(found + 0, wanted)


@pytest.mark.parametrize("x", [torch.randn(K), torch.randn(5, K), torch.randn(2, 3, K)])
def test_products_run_on_the_packed_weight(layer: Linear, x: Tensor) -> None:
    weight, bias = layer.weight, layer.bias.detach()
    with torch.no_grad():
        wanted = layer(x) - 0
        assert torch.equal(nn.functional.linear(x, weight, bias), wanted)
        plain = weight.product(x)
        assert torch.equal(nn.functional.linear(x, weight), plain)
        if x.dim() == 2:
            assert torch.equal(torch.mm(x, weight.t()), plain)
            assert torch.equal(torch.addmm(bias, x, weight.t()), wanted)
        assert torch.equal(x @ weight.t(), plain)


CALLS: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "linear": nn.functional.linear,
    "matmul": lambda x, w, b: x @ w.t() + (0 if b is None else b),
    "addmm": lambda x, w, b: x.mm(w.t()) if b is None else torch.addmm(b, x, w.t()),
    "functional_call": lambda x, w, b: torch.func.functional_call(
        Linear(K, N, bias=b is not None, scheme=w.scheme),  # type: ignore[attr-defined]
        {"weight": w} if b is None else {"weight": w, "bias": b},
        (x,),
    ),
}


@pytest.mark.parametrize("product", CALLS)
@pytest.mark.parametrize("biased", ["no bias", "a bias", "a slice for a bias"])
def test_gradients_pass_through_products_that_torch_is_asked_for(
    layer: Linear, product: str, biased: str
) -> None:
    """Both transposes of a backward pass end at the weight itself, which torch has a view of."""
    weight, x = layer.weight, torch.randn(5, K).requires_grad_()
    flat = torch.randn(weight.shape[0] + 8).requires_grad_()
    bias = None if biased == "no bias" else flat[8:] if "slice" in biased else flat.detach()[8:]
    out = CALLS[product](x, weight, bias)
    torch.manual_seed(1)
    grad = torch.randn_like(out)
    out.backward(grad)
    torch.testing.assert_close(x.grad, grad @ weight.dequantize())
    if "slice" in biased:
        rows = grad.reshape(-1, grad.shape[-1]).sum(0)
        torch.testing.assert_close(flat.grad, torch.cat([torch.zeros(8), rows]))


def test_a_transpose_of_a_transpose_is_written_through(layer: Linear) -> None:
    weight = layer.weight
    for again in (weight.t().t(), weight.transpose(0, 1).transpose(1, 0), weight.mT.mT):
        assert torch.equal(again.dequantize(), weight.dequantize())
        with torch.no_grad():
            again.mul_(2)
        assert torch.equal(again.dequantize(), weight.dequantize())


def test_rows_and_halves_stay_quantized(layer: Linear) -> None:
    weight, dense = layer.weight.detach(), layer.weight.dequantize()
    for piece, want in ((weight[8:40], dense[8:40]), (weight.split(24)[1], dense.split(24)[1])):
        assert isinstance(piece, QuantizedTensor)
        assert torch.equal(piece.dequantize(), want)


# --- writing -------------------------------------------------------------------------------------


def test_data_rounds_to_the_scheme_and_is_never_lost(layer: Linear) -> None:
    wanted = torch.randn(N, K)
    rounded = layer.weight.requantized(wanted)
    layer.weight.data = wanted
    assert parts_equal(layer.weight, rounded)
    layer.weight.data = layer.weight.detach().clone()
    assert parts_equal(layer.weight, rounded)
    with pytest.raises(ValueError, match=r"have the shape \(72, 96\).*, got \(96, 72\)"):
        layer.weight.data = wanted.t()
    with pytest.raises(TypeError, match="float16, bfloat16 or float32, got int64"):
        layer.weight.data = torch.ones(N, K, dtype=torch.int64)
    assert parts_equal(layer.weight, rounded)


WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "copy_": lambda w, x: w.copy_(x),
    "add_": lambda w, x: w.add_(x),
    "+=": lambda w, x: w.__iadd__(x),
    "alpha": lambda w, x: w.add_(x, alpha=0.5),
    "sub_": lambda w, x: w.sub_(x),
    "mul_": lambda w, x: w.mul_(1.5),
    "div_": lambda w, x: w.div_(3),
}


@pytest.mark.parametrize("name", WRITES)
def test_writing_rounds_the_result(layer: Linear, name: str) -> None:
    x, weight = 0.1 * torch.randn(N, K), layer.weight
    dense = weight.dequantize()
    with torch.no_grad():
        WRITES[name](dense, x)
        wanted = weight.requantized(dense)
        assert WRITES[name](weight, x) is weight
    assert parts_equal(weight, wanted)


@pytest.mark.parametrize(
    "write", [lambda w: w.t_(), lambda w: w.unsqueeze_(0), lambda w: w.set_(torch.ones(3))]
)
def test_what_cannot_be_written_says_so(layer: Linear, write: Callable[[Tensor], Any]) -> None:
    before = layer.weight.detach().clone()
    with pytest.raises(NotImplementedError, match=r"cannot be written so.*Hint: weight\.data ="):
        write(layer.weight)
    assert parts_equal(layer.weight, before)


def test_nan_is_not_written(layer: Linear) -> None:
    before = layer.weight.detach().clone()
    with torch.no_grad(), pytest.raises(ValueError, match="must be finite, got nan"):
        layer.weight[2, 5] = float("nan")
    assert parts_equal(layer.weight, before)


def test_it_never_asks_for_a_gradient(layer: Linear) -> None:
    with pytest.raises(RuntimeError, match=r"do not train\. Hint: train an adapter"):
        layer.weight.requires_grad_()
    with pytest.raises(RuntimeError, match=r"do not train\. Hint: train an adapter"):
        layer.requires_grad_(True)
    layer.requires_grad_(False)
    with pytest.raises(RuntimeError, match="do not train"):
        layer.weight.requires_grad = True


# --- copies, casts, files ------------------------------------------------------------------------


def through_torch_save(layer: Linear) -> Linear:
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    found: Linear = torch.load(buffer, weights_only=False)
    return found


COPIES: dict[str, Callable[[Linear], Linear]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "torch.save": through_torch_save,
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_are_equal_and_apart(layer: Linear, way: str) -> None:
    found, x = COPIES[way](layer), torch.randn(3, K)
    assert type(found.weight) is type(layer.weight) and isinstance(found.weight, nn.Parameter)
    assert parts_equal(found.weight, layer.weight) and found.scheme == layer.scheme
    assert torch.equal(found(x), layer(x))
    found.weight.data = torch.zeros(N, K)
    assert layer.weight.dequantize().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_casts_take_the_floats_along(layer: Linear, dtype: torch.dtype) -> None:
    wide = layer.weight.dequantize()
    cast = layer.to(dtype)
    assert (cast.weight.dtype, cast.bias.dtype) == (dtype, dtype)
    for part in cast.weight.parts:
        tensor = getattr(cast.weight, part.name)
        assert tensor is None or not part.follows or tensor.dtype == dtype
    torch.testing.assert_close(cast.weight.dequantize().float(), wide, rtol=2e-2, atol=2e-2)
    assert cast(torch.randn(2, K, dtype=dtype)).dtype == dtype
    assert cast.float().weight.dtype == torch.float32
    with pytest.raises(TypeError, match="float64"):
        cast.double()


def test_meta_and_back(layer: Linear) -> None:
    state, x = layer.state_dict(), torch.randn(2, K)
    empty = copy.deepcopy(layer).to("meta")
    assert empty.weight.is_meta and all(t.is_meta for t in empty.weight.tensors().values())
    empty.load_state_dict(state, assign=True)
    assert torch.equal(empty(x), layer(x))
    again = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    again.load_state_dict(state)
    assert torch.equal(again(x), layer(x))


def test_state_dict_holds_plain_tensors(layer: Linear, tmp_path: Path) -> None:
    state = layer.state_dict()
    assert "weight" not in state
    assert all(type(t) is Tensor for t in state.values())
    torch.save(state, tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    other = Linear(K, N, scheme=layer.scheme)
    other.load_state_dict(loaded)
    assert parts_equal(other.weight, layer.weight)


# --- compilers -----------------------------------------------------------------------------------


def test_compile_and_export(layer: Linear) -> None:
    x = torch.randn(4, K)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    with torch.no_grad():
        exported = torch.export.export(layer, (x,))
        torch.testing.assert_close(exported.module()(x), layer(x))


def test_a_model_of_them_is_one_graph_and_trains(layer: Linear) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(N, 3))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, K, requires_grad=True)
    compiled(x).square().sum().backward()
    compiled_grad, x.grad = x.grad, None
    model(x).square().sum().backward()
    torch.testing.assert_close(compiled_grad, x.grad)


def test_convolutions_have_one_too() -> None:
    conv = mixed_gemm.Conv2d.from_float(nn.Conv2d(24, 40, 3), bits=8)
    dense = conv.weight.dequantize()
    assert dense.shape == conv.weight.shape == (40, 24, 3, 3)
    with torch.no_grad():
        assert torch.equal(conv.weight * 2, dense * 2)
        x = torch.randn(1, 24, 8, 8)
        out = nn.functional.conv2d(x, conv.weight, conv.bias)
        torch.testing.assert_close(out, conv(x))
    conv.weight.data = dense
    assert torch.equal(conv.weight.dequantize(), dense)
    assert torch.equal(copy.deepcopy(conv)(x), conv(x))
    with pytest.raises(NotImplementedError, match="are not sharded"):
        conv.weight.split(8)
