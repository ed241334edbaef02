"""Models of transformers whose vocabulary grows or shrinks after they were quantized, and what
transformers says they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.random_llama import random_llama
from support.weight_kinds import MODULES, module, same_parts
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import Embedding, Linear, QuantizedTensor, Scheme

pytest.importorskip("transformers", reason="optional: hf extra")
IDS = torch.tensor([[1, 5, 7, 9], [2, 4, 8, 16]])
SCHEMES: dict[str, dict[str, Any]] = {
    "int4": {"bits": 4, "group_size": 32},
    "int4 zero points": {"bits": 4, "group_size": 32, "symmetric": False},
    "int8": {"scheme": "w8a16"},
    "w8a8": {"scheme": "w8a8"},
    "w8a8 static": {"scheme": "w8a8", "activations": "static_azp",
                    "calibration": [{"input_ids": IDS}]},
    "w8a8_block": {"scheme": "w8a8_block", "group_size": 32},
    "fp8": {"scheme": "fp8"},
    "fp8 blocks": {"scheme": Scheme.fp8(strategy="block", block=(16, 32))},
}  # fmt: skip


def quantized(scheme: str, **options: Any) -> Any:
    model = random_llama(**options)
    mixed_gemm.quantize_(model, skip=(), embeddings=True, progress=False, **SCHEMES[scheme])
    return model


@torch.no_grad()
def hidden(model: Any) -> Tensor:
    found: Tensor = model.model(IDS).last_hidden_state
    return found


def dense_twin(model: Any, **options: Any) -> Any:
    """A dense model with the values of the embedding and the head."""
    twin = random_llama(**options)
    for mine, other in ((twin.model.embed_tokens, model.model.embed_tokens),
                        (twin.lm_head, model.lm_head)):  # fmt: skip
        value = other.weight
        dense = value.dequantize() if isinstance(value, QuantizedTensor) else value
        mine.weight.data.copy_(dense)
    return twin


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("count", [100, 91, 131])
def test_the_vocabulary_changes(scheme: str, count: int, mean: bool, tmp_path: Path) -> None:
    """Old rows stay to the bit; new ones are those that transformers draws for a dense model, in
    the embedding rounded to int8."""
    model = quantized(scheme)
    twin, before, wanted = dense_twin(model), model.model.embed_tokens.weight, hidden(model)
    codes = before.weight_int8.clone()
    for each in (model, twin):
        torch.manual_seed(5)
        each.resize_token_embeddings(count, mean_resizing=mean)
    embedding, head, kept = model.model.embed_tokens, model.lm_head, min(count, 100)
    assert type(embedding) is Embedding and embedding.weight.shape == (count, 64)
    assert (embedding.num_embeddings, head.out_features) == (count, count)
    assert embedding.weight is model.get_input_embeddings().weight
    assert torch.equal(embedding.weight.weight_int8[:kept], codes[:kept])
    assert torch.equal(hidden(model), wanted)
    drawn = twin.model.embed_tokens.weight.detach()
    rounded = (
        Embedding.from_float(nn.Embedding.from_pretrained(drawn[kept:])) if count > 100 else None
    )
    if rounded is not None:
        assert torch.equal(embedding.dequantize()[kept:], rounded.dequantize())
    dense_head = head.dequantize() if isinstance(head, Linear) else head.weight
    assert torch.equal(dense_head, twin.lm_head.weight)
    assert model.num_parameters() == twin.num_parameters()
    model.save_pretrained(tmp_path)
    again = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(again(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("pad", [None, 64])
def test_tied_embeddings_stay_tied(pad: int | None) -> None:
    model = quantized("int4", tie_word_embeddings=True)
    wanted = hidden(model)
    model.resize_token_embeddings(108, pad_to_multiple_of=pad)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.lm_head.weight.shape[0] == (128 if pad else 108)
    assert torch.equal(hidden(model), wanted)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("count", [40, 64, 72, 80, 144])
def test_data_of_more_or_fewer_rows(kind: str, count: int) -> None:
    """Rows that are there already keep their codes and scales, whatever chose them, where rows do
    not share scales; the others are rounded as the weight is stored."""
    layer = module(kind)
    weight = layer.weight
    count = count if weight.shape[0] == 72 else count * 40 // 72
    dense = weight.dequantize()
    more = torch.cat([dense, 0.05 * torch.randn_like(dense)])[:count]
    kept = min(count, weight.shape[0])
    weight.data = more
    assert weight.shape == more.shape and type(weight.data) is type(module(kind).weight)
    found = weight.dequantize()
    shared = {"fp8 one scale": 0, "fp8 blocks": kept // 16 * 16}.get(kind, kept)
    assert torch.equal(found[:shared], dense[:shared])
    nearest = weight.requantized(more).dequantize()
    assert torch.equal(found[kept:], nearest[kept:])
    if isinstance(layer, Linear | Embedding):  # what follows from the codes fits them
        stored = type(weight.data).store(weight.unpacked(), weight.dtype)
        assert same_parts(stored, weight.data)


def test_rows_that_calibration_chose_are_not_rounded_again() -> None:
    """Their scales are not those that rounding to nearest would find."""
    torch.manual_seed(0)
    q = torch.randint(-5, 6, (64, 32), dtype=torch.int8)
    layer = Linear.from_quantized(q, torch.full((1, 64), 0.1), bits=4)
    before = layer.weight.dequantize()
    changed = before.clone()
    changed[7] = 1.0
    layer.weight.data = changed
    codes, scales = layer.to_quantized_weight().q, layer.to_quantized_weight().scales
    others = torch.arange(64) != 7
    assert torch.equal(codes[others], q[others]) and bool((scales[0, others] == 0.1).all())
    assert torch.equal(layer.weight.dequantize()[7], torch.ones(32))


def test_columns_are_refused() -> None:
    weight = module("int8").weight
    with pytest.raises(ValueError, match=r"have the shape \(72, 96\), or another number of rows"):
        weight.data = torch.zeros(72, 95)


def test_the_footprint_is_what_is_stored() -> None:
    model = quantized("int4")
    stored = sum(p.nbytes for p in model.parameters())
    assert model.get_memory_footprint(return_buffers=False) == stored
    assert type(model.get_memory_footprint()) is int
    assert stored < 0.25 * random_llama().get_memory_footprint(return_buffers=False)
    assert model.num_parameters() == random_llama().num_parameters()


def test_embeddings_are_taken_out_and_put_back() -> None:
    model = quantized("int8")
    with torch.no_grad():
        wanted = model(IDS).logits
        model.set_input_embeddings(model.get_input_embeddings())
        model.set_output_embeddings(model.get_output_embeddings())
        model.tie_weights()
        assert torch.equal(model(IDS).logits, wanted)


def test_pruning_masks_the_dense_value_and_rounds_once_when_it_is_made_permanent() -> None:
    from torch.nn.utils import prune

    layer, x = module("int8"), torch.randn(3, 96)
    dense = nn.Linear(96, 72)
    dense.load_state_dict({"weight": layer.dequantize(), "bias": layer.bias})
    for each in (layer, dense):
        prune.l1_unstructured(each, "weight", 0.5)
    torch.testing.assert_close(layer(x), dense(x))
    for each in (layer, dense):
        prune.remove(each, "weight")
    assert torch.equal(layer.weight.dequantize() == 0, dense.weight == 0)
    torch.testing.assert_close(layer.weight.dequantize(), dense.weight.detach(), rtol=0, atol=1e-3)
