"""benchmarks/decode: the step that transformers runs and torch compiles is the decoder of the plain
loop, and nothing is timed that computes something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mixed_gemm
from benchmarks.decode import __main__ as command
from benchmarks.decode import checks, compiled, loops
from benchmarks.decode.model import DENSE, Decoder, Glue
from benchmarks.decode.shape import SHAPES

pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")

TINY, CPU, CONTEXT = SHAPES["tiny"], torch.device("cpu"), 20
IDS = torch.tensor([[3], [250]])


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield


def decoder(weights: str = DENSE, dtype: torch.dtype = torch.float32, **words: str) -> Any:
    torch.manual_seed(0)
    return compiled.decoder(TINY, weights, CPU, dtype, **words)


def logits(model: Any, cache: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    compiled.rewind(cache, CONTEXT)
    return compiled.run(model, ids, **{compiled.word_of(model): cache})


def eager(model: Any, cache: Any) -> checks.Step:
    word = compiled.word_of(model)

    def step(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = compiled.run(model, ids, **{word: cache})
        return out.argmax(-1, keepdim=True), out

    return step


@pytest.mark.parametrize("weights", (DENSE, "w4a16"))
def test_a_step_is_that_of_the_plain_loop_behind_the_same_cache(weights: str) -> None:
    model = decoder(weights)
    cache = compiled.filled_cache(model, 2, CONTEXT)
    plain = Decoder(TINY, DENSE, CPU, torch.float32, Glue())
    plain.allocate(2, CONTEXT + 1)
    plain.embedding, plain.head = model.model.embed_tokens.weight, model.lm_head
    for block, layer, kept in zip(plain.blocks, model.model.layers, cache.layers, strict=True):
        for name in block.linears:
            part = layer.self_attn if name in "qkvo" else layer.mlp
            block.linears[name] = getattr(part, f"{name}_proj")
        block.keys[:, :, :CONTEXT] = kept.keys[:, :, :CONTEXT]
        block.values[:, :, :CONTEXT] = kept.values[:, :, :CONTEXT]
    torch.testing.assert_close(logits(model, cache), plain(IDS, CONTEXT), atol=2e-5, rtol=1e-5)
    assert model.lm_head.weight is not model.model.embed_tokens.weight


@pytest.mark.parametrize(
    ("words", "kinds"),
    (
        ({}, (torch.nn.Linear, torch.nn.Linear)),
        ({"head": "w8a16"}, (torch.nn.Linear, mixed_gemm.Linear)),
        ({"weights": "w4a16"}, (mixed_gemm.Linear, torch.nn.Linear)),
        ({"weights": "w4a16", "head": "w8a16"}, (mixed_gemm.Linear, mixed_gemm.Linear)),
    ),
)
def test_weights_are_those_that_were_asked_for(words: dict[str, str], kinds: Any) -> None:
    model = decoder(**words)
    assert (type(model.model.layers[0].mlp.up_proj), type(model.lm_head)) == kinds
    in_linears = sum(
        x.weight.stored_bytes if isinstance(x, mixed_gemm.Linear) else x.weight.nbytes
        for x in model.modules()
        if isinstance(x, torch.nn.Linear)
    )
    assert compiled.weight_bytes(model) == in_linears


def test_joint_products_are_fused_and_give_the_same() -> None:
    apart, joint = decoder("w4a16"), decoder("w4a16", products="joint")
    caches = [compiled.filled_cache(x, 2, CONTEXT) for x in (apart, joint)]
    for model, is_joint in ((apart, False), (joint, True)):
        attention = model.model.layers[0].self_attn
        parts = [getattr(attention, f"{x}_proj").weight.tensors()["scales"] for x in "qk"]
        one, other = (x.untyped_storage().data_ptr() for x in parts)
        assert (one == other) == is_joint
    found = [logits(*x) for x in zip((apart, joint), caches, strict=True)]
    assert checks.apart(found[1], found[0]) <= checks.limit(apart)


@pytest.mark.parametrize(
    ("weights", "products"),
    (pytest.param(DENSE, "apart", marks=pytest.mark.slow), ("w4a16", "joint")),
)
def test_a_compiled_step_passes_its_checks(weights: str, products: str) -> None:
    model = decoder(weights, torch.bfloat16, products=products)
    found = loops.row(model, TINY, 2, CONTEXT, 2)
    assert found["differs_by"] <= found["limit"] < 0.1 and found["us_min"] <= found["us"]
    length = CONTEXT + 1 + compiled.ROOM
    assert found["cache_bytes"] == 2 * TINY.layers * 2 * TINY.kv_heads * length * TINY.head * 2
    loops.give_back(CPU)


def test_what_computes_something_else_is_not_timed() -> None:
    model = decoder("w4a16")
    cache = compiled.filled_cache(model, 2, CONTEXT)
    right = eager(model, cache)
    assert checks.check(model, cache, right, IDS, CONTEXT)["differs_by"] == 0

    def of_another_token(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return right(ids + 1)

    def of_another_place(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        compiled.rewind(cache, CONTEXT - 5)
        return right(ids)

    def nothing(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ids, torch.full((2, TINY.vocabulary), torch.nan)

    def beyond(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = right(ids)[1]
        return ids, out + 1e-6 * cache.layers[0].values[:, :1, CONTEXT + 3, :1].flatten(1)

    for wrong in (of_another_token, of_another_place, nothing):
        with pytest.raises(RuntimeError, match="the compiled step differs from the eager model"):
            checks.check(model, cache, wrong, IDS, CONTEXT)
    cache = compiled.filled_cache(model, 2, CONTEXT)
    right = eager(model, cache)
    with pytest.raises(RuntimeError, match="reads places of the cache that nobody wrote"):
        checks.check(model, cache, beyond, IDS, CONTEXT)


def test_the_limit_follows_the_dtype_the_layers_and_the_activations() -> None:
    half, single = decoder("w4a16", torch.bfloat16), decoder("w4a16")
    assert checks.limit(half) == 2**16 * checks.limit(single)
    assert checks.limit(decoder("w8a8", torch.float16)) == checks.limit(half)


def test_the_command_writes_rows_of_both_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.ceilings, "measured", lambda device: {"read_gb_per_s": 1.0})
    monkeypatch.setattr(compiled, "compiled", eager)  # compiled ones are tried above
    out = tmp_path / "decode.json"
    command.main(
        ["--shape", "tiny", "--loop", "plain", "transformers", "--weights", "dense", "w4a16",
         "--head", "dense", "w8a16", "--products", "apart", "joint", "--batch", "1", "3",
         "--context", "5", "--prefill", "--device", "cpu", "--dtype", "float32", "--rounds", "2",
         "--out", str(out)],
    )  # fmt: skip
    found = json.loads(out.read_text())
    assert found["meta"]["transformers"]
    rows = [x for x in found["rows"] if x["loop"] == "transformers"]
    names = ("weights", "head_weights", "products", "batch", "repeat")
    models = [
        (weights, head, products)
        for weights in ("dense", "w4a16")
        for head in ("dense", "w8a16")
        for products in ("apart", "joint")
        if (weights, products) != ("dense", "joint")
    ]
    assert [tuple(x[name] for name in names) for x in rows] == [
        *((*model, batch, False) for model in models for batch in (1, 3)),
        *((*models[0], batch, True) for batch in (1, 3)),
    ]
    assert len(found["rows"]) - len(rows) == 16 and "linears" in found["rows"][0]
