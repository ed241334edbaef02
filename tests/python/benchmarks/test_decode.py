"""benchmarks/decode: the decoder that is timed computes a decoder, and a step is its parts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import mixed_gemm
from benchmarks.decode import __main__ as command
from benchmarks.decode.model import DENSE, Decoder, Glue, rotated
from benchmarks.decode.parts import calls
from benchmarks.decode.shape import JOINT, SHAPES, Shape

TINY = Shape(2, 128, 256, 4, 2, 32, 50)
CPU = torch.device("cpu")
TOKENS = 7


def decoder(weights: str = DENSE, glue: Glue | None = None, products: str = "apart") -> Decoder:
    torch.manual_seed(0)
    model = Decoder(TINY, weights, CPU, torch.float32, glue or Glue(), products=products)
    model.allocate(2, TOKENS)
    return model


def ids() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randint(TINY.vocabulary, (2, TOKENS))


def test_the_shapes_have_as_many_weights_as_their_names_say() -> None:
    for name, billions in (("llama_8b", 8.03), ("llama_70b", 70.6)):
        shape = SHAPES[name]
        of_a_block = sum(k * n for k, n in shape.linears().values())
        elements = shape.layers * of_a_block + 2 * shape.vocabulary * shape.hidden
        assert elements / 1e9 == pytest.approx(billions, rel=0.005)


def test_token_by_token_is_all_at_once() -> None:
    model, text = decoder(), ids()
    at_once = model(text, 0)
    again = decoder()
    for i in range(TOKENS):
        one = again(text[:, i : i + 1], i)
    torch.testing.assert_close(one, at_once, atol=2e-5, rtol=1e-5)


def test_it_is_the_decoder_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    model = decoder()
    config = transformers.LlamaConfig(
        hidden_size=TINY.hidden, intermediate_size=TINY.intermediate, vocab_size=TINY.vocabulary,
        num_hidden_layers=TINY.layers, num_attention_heads=TINY.heads, head_dim=TINY.head,
        num_key_value_heads=TINY.kv_heads, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )  # fmt: skip
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    state = {"model.embed_tokens.weight": model.embedding, "lm_head.weight": model.head.weight,
             "model.norm.weight": model.before_head}  # fmt: skip
    for i, block in enumerate(model.blocks):
        at = f"model.layers.{i}"
        for name, layer in block.linears.items():
            place = "self_attn" if name in "qkvo" else "mlp"
            state[f"{at}.{place}.{name}_proj.weight"] = layer.weight
        state[f"{at}.input_layernorm.weight"] = block.before_attention
        state[f"{at}.post_attention_layernorm.weight"] = block.before_mlp
    theirs.load_state_dict(state)
    with torch.no_grad():
        expected = theirs(ids()).logits[:, -1]
    torch.testing.assert_close(model(ids(), 0), expected, atol=2e-5, rtol=1e-5)


def test_a_rotation_keeps_lengths() -> None:
    model = decoder()
    x = torch.randn(2, 4, TOKENS, TINY.head)
    turned = rotated(x, *model.angles(0, TOKENS))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, :, 0], x[:, :, 0]) and not torch.equal(turned, x)


@pytest.mark.parametrize("weights", ["w8a16", "w8a8"])
def test_quantized_layers_are_near_the_dense_ones_and_smaller(weights: str) -> None:
    dense, quantized = decoder(), decoder(weights)
    layers = [x for block in quantized.blocks for x in block.linears.values()]
    assert all(isinstance(x, mixed_gemm.Linear) for x in layers)
    expected, found = dense(ids(), 0), quantized(ids(), 0)
    assert F.cosine_similarity(found, expected).min() > 0.99
    head = TINY.vocabulary * TINY.hidden * 4
    assert dense.weight_bytes() - head > 3 * (quantized.weight_bytes() - head)


def test_a_step_has_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts call the layers, the functions between them and attention as often as the step."""
    counts: dict[str, int] = {}

    def counted(name: str, function):
        def run(*args):
            counts[name] = counts.get(name, 0) + 1
            return function(*args)

        return run

    plain = Glue()
    fields = [x.name for x in dataclasses.fields(Glue)]
    model = decoder(glue=Glue(**{x: counted(x, getattr(plain, x)) for x in fields}))
    for block in model.blocks:
        for method in ("attention", "remember"):
            setattr(block, method, counted(method, getattr(block, method)))
        for name, layer in block.linears.items():
            layer.forward = counted(name, layer.forward)
    model.head.forward = counted("head", model.head.forward)
    timed = calls(model, 2, 1, TOKENS - 1)
    timed.pop("step")()
    of_step, _ = dict(counts), counts.clear()
    for part in timed.values():
        part()
    assert counts == of_step and counts["q"] == TINY.layers and counts["head"] == 1


def test_joint_products_are_those_of_the_layers() -> None:
    apart, joint = decoder(), decoder(products="joint")
    joint.embedding, joint.head = apart.embedding, apart.head
    for block, other in zip(joint.blocks, apart.blocks, strict=True):
        for name, of in JOINT.items():
            rows = torch.cat([other.linears[x].weight for x in of])
            block.linears[name].weight.copy_(rows)
        for name in ("o", "down"):
            block.linears[name] = other.linears[name]
    torch.testing.assert_close(joint(ids(), 0), apart(ids(), 0))
    for call in calls(joint, 2, 1, TOKENS - 1).values():
        call()


def test_several_tokens_behind_others_are_refused() -> None:
    with pytest.raises(ValueError, match="one token behind others"):
        calls(decoder(), 1, 2, 1)


def test_the_command_writes_a_row_for_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.ceilings, "measured", lambda device: {"read_gb_per_s": 1.0})
    out = tmp_path / "decode.json"
    command.main(
        ["--weights", "dense", "w4a16", "--head", "dense", "w8a16", "--batch", "1", "3",
         "--context", "5", "--prefill", "6", "--device", "cpu", "--dtype", "float32",
         "--rounds", "3", "--out", str(out)],
        {"llama_8b": TINY},
    )  # fmt: skip
    found = json.loads(out.read_text())
    assert found["meta"]["layers"] == TINY.layers and found["meta"]["shape"] == "llama_8b"
    rows = found["rows"]
    names = ("weights", "head_weights", "batch", "tokens", "context")
    assert [tuple(x[name] for name in names) for x in rows] == [
        (weights, head, *step)
        for weights in ("dense", "w4a16")
        for head in ("dense", "w8a16")
        for step in ((1, 1, 5), (3, 1, 5), (1, 6, 0))
    ]
    for row in rows:
        parts = sum(row[x] for x in ("linears", "attention", "between", "head", "rest"))
        assert row["us"] == pytest.approx(parts, abs=0.3) and row["us_min"] <= row["us"]
        length = row["context"] + row["tokens"]
        assert row["cache_bytes"] == 2 * TINY.layers * row["batch"] * length * 2 * 32 * 4


@pytest.mark.slow
def test_compiled_glue_computes_the_same() -> None:
    expected = decoder()(ids(), 0)
    found = decoder(glue=Glue.compiled())(ids(), 0)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
