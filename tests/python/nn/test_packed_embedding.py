"""Embeddings of packed weights: rows to the bit, and what torch does with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mixed_gemm
from mixed_gemm import Embedding, Scheme
from mixed_gemm.weights import IntegerWeight

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SCHEMES = {
    "w4a16": Scheme.named("w4a16", group_size=32),
    "w4a16_asym": Scheme.named("w4a16_asym", group_size=32),
    "zeros added": Scheme.weight_only(4, 64, "add"),
    "w8a16": Scheme.named("w8a16"),
    "w8a16 in groups": Scheme.named("w8a16", group_size=48),
    "mxfp4": Scheme.named("mxfp4"),
    "nvfp4": Scheme.named("nvfp4"),
    "nf4": Scheme.named("nf4", group_size=48),
    "fp4": Scheme.named("fp4"),
}
SHAPES = ((61, 192), (64, 64), (1, 96), (1000, 80))


def made(scheme: str = "w4a16", v: int = 61, d: int = 192, dtype: torch.dtype = torch.float32):
    torch.manual_seed(1)
    return Embedding.from_float(nn.Embedding(v, d).to(dtype), SCHEMES[scheme])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_are_those_of_the_dense_weight_to_the_bit(scheme: str, dtype: torch.dtype) -> None:
    for v, d in SHAPES:
        if SCHEMES[scheme].group_size > d:
            continue
        module = made(scheme, v, d, dtype)
        whole = module.dequantize()
        for shape in ((), (1,), (3, 70), (0, 4)):
            for ids in (torch.randint(0, v, shape), torch.randint(0, v, shape).int()):
                found = module(ids)
                assert torch.equal(found, nn.functional.embedding(ids, whole))
                assert found.shape == (*shape, d) and found.dtype == dtype
        assert torch.equal(nn.functional.embedding(ids, module.weight), module(ids))  # by dispatch
        for wrong in (-1, v):
            with pytest.raises(IndexError):
                module(torch.tensor([0, wrong]))


def test_rows_of_a_weight_with_factors_and_an_order_of_columns() -> None:
    torch.manual_seed(2)
    weight = IntegerWeight.from_quantized(
        torch.randint(-8, 8, (61, 96), dtype=torch.int8),
        torch.rand(3, 61) + 0.5,
        torch.randint(-8, 8, (3, 61)).float(),
        torch.rand(96) + 0.5,
        torch.randperm(96),
        bits=4,
        group_size=32,
    )
    ids = torch.randint(0, 61, (7,))
    assert torch.equal(weight.rows(ids), weight.dequantize()[ids])
    assert torch.equal(weight.plain().rows(ids), weight.dequantize()[ids])


@pytest.mark.parametrize("scheme", ("w4a16_asym", "w8a16", "nvfp4", "nf4"))
def test_state_graphs_and_the_way_back(scheme: str) -> None:
    module, ids = made(scheme), torch.randint(0, 61, (2, 5))
    fresh = Embedding(61, 192, scheme=module.scheme)
    assert not fresh(ids).any()
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(fresh(ids), module(ids))
    torch._dynamo.reset()  # which counts what it compiles of a class
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    for some in (ids, ids[:1, :3]):
        assert torch.equal(compiled(some), module(some))
    torch._dynamo.reset()
    program = torch.export.export(module, (ids,), strict=False)
    assert torch.equal(program.module()(ids), module(ids))
    again = module.to_quantized_weight("words")
    assert again.is_embedding
    assert torch.equal(again.to_module(torch.float32).dequantize(), module.dequantize())
    assert type(module.to_float()) is nn.Embedding


def test_what_embeddings_have_no_form_of_is_refused() -> None:
    dense = nn.Embedding(61, 96)
    for scheme in ("w8a8", "fp8", "w8a16_fp8"):
        with pytest.raises(ValueError, match="scheme must be of packed codes whose activations"):
            Embedding.from_float(dense, scheme)
        with pytest.raises(ValueError, match="embeddings must be True, False or a scheme"):
            mixed_gemm.quantize_(nn.Sequential(dense), embeddings=scheme, progress=False)
    with pytest.raises(ValueError, match="group_size"):
        Embedding.from_float(dense, Scheme.named("w4a16"))
    with pytest.raises(ValueError, match="group_size"):
        mixed_gemm.quantize_(nn.Sequential(dense), embeddings="w4a16", progress=False)


class Words(nn.Module):
    """Two tables; a head is tied to the first."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(61, 64), nn.Embedding(16, 64)
        self.head = nn.Linear(64, 61, bias=bias)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.words(ids) + self.places(torch.arange(ids.shape[-1])))
        return out


def test_a_head_that_is_tied_multiplies_by_the_same_weight() -> None:
    torch.manual_seed(3)
    model, ids = Words(), torch.randint(0, 61, (2, 9))
    report = mixed_gemm.quantize_(model, "w8a8", embeddings="w8a16", progress=False)
    assert report.quantized == ("words", "places", "head")
    assert model.head.weight is model.words.weight and type(model.words.weight) is IntegerWeight
    assert report.layers["head"].note == "shares the weight of words"
    assert report.bytes_before == (61 + 16) * 64 * 4
    assert report.bytes_after == sum(x.weight.stored_bytes for x in (model.words, model.places))
    dense = Words()
    dense.words.weight = dense.head.weight = nn.Parameter(model.words.dequantize())
    dense.places.weight = nn.Parameter(model.places.dequantize())
    torch.testing.assert_close(model(ids), dense(ids))


def test_others_that_are_tied_stay_dense_and_are_named() -> None:
    for model in (Words(bias=True), Words()):
        if model.head.bias is None:
            model.more = nn.Embedding(61, 64)
            model.more.weight = model.words.weight  # as an encoder and a decoder share theirs
        report = mixed_gemm.quantize_(model, "w8a16", embeddings="w8a16", progress=False)
        assert report.quantized == ("places",)
        assert report.skipped["words"] == report.skipped["head"]
        assert report.skipped["head"] == "its weight is tied to another module"
    report = mixed_gemm.quantize_(
        Words(), "w8a16", embeddings="w8a16", skip="words", progress=False
    )
    assert report.quantized == ("places",) and "skip='words'" in report.skipped["words"]
