"""``MixedGemmConfig(embeddings=..., heads=...)``: embeddings and output heads of dense files that
are quantized while transformers reads them, to the bit as ``quantize_`` does in memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.generation import worst_ratio
from support.language_models import IDS, is_one, logits

import mixed_gemm
from mixed_gemm import MixedGemmConfig, Scheme
from mixed_gemm.formats import open_checkpoint, save_checkpoint
from mixed_gemm.quantization import Options

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

GROUPED = Scheme.named("w4a16", group_size=32)
TABLE = "model.embed_tokens"
SIZES: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
    "num_attention_heads": 4, "pad_token_id": 0,
}  # fmt: skip
WORDS: dict[str, dict[str, Any]] = {
    "head": {"heads": "w8a16"},
    "embedding": {"embeddings": "w8a16"},
    "rows": {"embeddings": True},
    "both": {"embeddings": GROUPED, "heads": GROUPED},
    "both, floats": {"embeddings": "nf4", "heads": True},
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def write(is_tied: bool) -> Path:
        torch.manual_seed(4)
        config = transformers.LlamaConfig(**SIZES, tie_word_embeddings=is_tied)
        transformers.LlamaForCausalLM(config).eval().save_pretrained(tmp_path / "dense")
        return tmp_path / "dense"

    return write


def loaded(path: Path, dtype: torch.dtype = torch.float32, **words: Any) -> Any:
    given = ("device_map", "tie_word_embeddings", "model_class")
    options = {x: words.pop(x) for x in given if x in words}
    config = MixedGemmConfig(GROUPED, **words)
    found, info = mixed_gemm.from_pretrained(
        path, quantization_config=config, dtype=dtype, output_loading_info=True, **options
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    return found


def in_memory(
    path: Path, dtype: torch.dtype = torch.float32, kind: Any = None, **words: Any
) -> Any:
    kind = transformers.AutoModelForCausalLM if kind is None else kind
    model = kind.from_pretrained(path, dtype=dtype)
    mixed_gemm.quantize_(model, GROUPED, options=Options(**words, progress=False))
    return model


def assert_same(found: Any, want: Any) -> None:
    assert torch.equal(logits(found), logits(want))
    mine, others = found.state_dict(), want.state_dict()
    assert mine.keys() == others.keys()
    for name, value in others.items():
        assert torch.equal(mine[name], value), name
    assert is_one(found) == is_one(want)


@pytest.mark.filterwarnings("ignore:MixedGemmConfig. embeddings stay dense")
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("is_tied", (True, False))
def test_it_is_quantize_while_loading(
    folder: Any, tmp_path: Path, is_tied: bool, words: str, dtype: torch.dtype
) -> None:
    path, asked = folder(is_tied), WORDS[words]
    if is_tied and words == "head":
        with pytest.raises(ValueError, match="heads must be False where lm_head has the weight of"):
            loaded(path, **asked)
        return
    found, want = loaded(path, dtype, **asked), in_memory(path, dtype, **asked)
    assert_same(found, want)
    if "nf4" not in asked.values():
        assert worst_ratio(found, logits) <= 1.0
    found.save_pretrained(tmp_path / "a")
    save_checkpoint(found, tmp_path / "b")
    save_checkpoint(open_checkpoint(tmp_path / "a"), tmp_path / "c")
    for name in "abc":
        for load in (mixed_gemm.from_pretrained, transformers.AutoModelForCausalLM.from_pretrained):
            again = load(tmp_path / name, dtype=dtype)
            assert torch.equal(logits(again), logits(want)) and is_one(again) == is_one(want)


@pytest.mark.parametrize("words", WORDS)
def test_the_configuration_is_read_as_it_was_written(words: str, tmp_path: Path) -> None:
    config = MixedGemmConfig("w4a16", group_size=32, **WORDS[words])
    model = transformers.LlamaConfig(**SIZES, quantization_config=config)
    model.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    again = MixedGemmConfig.from_dict(said)
    assert again.to_dict() == config.to_dict()
    for name in ("rows_scheme", "heads_scheme"):
        assert getattr(again, name) == getattr(config, name)
    options = Options(**WORDS[words])
    assert again.rows_scheme == options.rows_scheme and again.heads_scheme == options.heads_scheme


def test_what_it_cannot_be_is_refused() -> None:
    for words, text in (
        ({"embeddings": "w8a8"}, "MixedGemmConfig: embeddings must be True, False or a scheme"),
        ({"embeddings": "w9"}, "MixedGemmConfig: scheme must be one of"),
        ({"heads": Scheme.named("w8a8", activations="static")}, "activations must be dynamic"),
    ):
        with pytest.raises(ValueError, match=text):
            MixedGemmConfig(**words)


def changed(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], bin: bool) -> Path:
    file = path / "model.safetensors"
    tensors = change({name: x.clone() for name, x in load_file(file).items()})
    file.unlink()
    if bin:
        torch.save(tensors, path / "pytorch_model.bin")
    else:
        save_file(tensors, file, {"format": "pt"})
    return path


@pytest.mark.parametrize("bin", (True, False))
def test_files_that_have_a_tied_tensor_twice(folder: Any, bin: bool) -> None:
    path, key = folder(is_tied=True), f"{TABLE}.weight"
    want = in_memory(path, embeddings="w8a16")
    changed(path, lambda x: {**x, "lm_head.weight": x[key].clone()}, bin)
    assert_same(loaded(path, embeddings="w8a16"), want)


def test_files_whose_head_is_another_one_are_refused_unless_it_is_untied(folder: Any) -> None:
    path = changed(folder(True), lambda x: {**x, "lm_head.weight": x[f"{TABLE}.weight"] + 1}, False)
    with pytest.raises(
        ValueError, match=r"lm_head is tied to .* has another tensor for it.*=False"
    ):
        loaded(path, embeddings="w8a16")
    found = loaded(path, embeddings="w8a16", heads="w8a16", tie_word_embeddings=False)
    assert not is_one(found) and isinstance(found.lm_head, mixed_gemm.Linear)
    dense = load_file(path / "model.safetensors")["lm_head.weight"]
    assert (found.lm_head.dequantize() - dense).abs().max() <= dense.abs().max() / 127


def test_tensors_that_cannot_be_looked_at_are_refused(folder: Any) -> None:
    path = folder(is_tied=True)
    dense = transformers.AutoModelForCausalLM.from_pretrained(path)
    config = MixedGemmConfig(GROUPED, embeddings="w8a16")
    with pytest.raises(ValueError, match="packed from files, not from a state_dict"):
        mixed_gemm.from_pretrained(
            None, quantization_config=config, config=dense.config, state_dict=dense.state_dict()
        )
    changed(path, lambda x: {"lm_head.weight": x.pop(f"{TABLE}.weight"), **x}, False)
    with pytest.raises(ValueError, match=f"lm_head is tied to {TABLE}, of which"):
        loaded(path, embeddings="w8a16")


def test_names_of_older_files_and_places(folder: Any) -> None:
    path = folder(is_tied=True)
    want = in_memory(path, embeddings="w8a16")
    changed(path, lambda x: {key.removeprefix("model."): y for key, y in x.items()}, False)
    pytest.importorskip("accelerate", reason="optional: hf extra")
    for place in (None, "cpu", "auto", {"model": "cpu", "lm_head": "cpu"}):
        assert_same(loaded(path, embeddings="w8a16", device_map=place), want)


def other_model(kind: str) -> tuple[Any, dict[str, Any]]:
    """(a model, what it is called with beside tokens)."""
    torch.manual_seed(2)
    small = {"vocab_size": 99, "n_embd": 64, "n_layer": 1, "n_head": 4, "n_positions": 32}
    narrow = {
        "vocab_size": 99,
        "d_model": 64,
        "d_ff": 96,
        "num_layers": 1,
        "num_heads": 4,
        "d_kv": 16,
    }
    falcon = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    made = {
        "GPT2LMHeadModel": lambda x: x(transformers.GPT2Config(**small)),
        "BertForMaskedLM": lambda x: x(transformers.BertConfig(**SIZES)),
        "GPTNeoXForCausalLM": lambda x: x(transformers.GPTNeoXConfig(**SIZES)),
        "FalconForCausalLM": lambda x: x(transformers.FalconConfig(**falcon)),
        "T5ForConditionalGeneration": lambda x: x(
            transformers.T5Config(**narrow, pad_token_id=0, decoder_start_token_id=0)
        ),
        "LlamaForSequenceClassification": lambda x: x(
            transformers.LlamaConfig(**SIZES, num_labels=3)
        ),
    }[kind](getattr(transformers, kind))
    return made.eval(), {"decoder_input_ids": IDS} if kind.startswith("T5") else {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", ("embedding", "both"))
@pytest.mark.parametrize(
    ("kind", "quantized"),
    (
        ("GPT2LMHeadModel", {"transformer.wte", "transformer.wpe", "lm_head"}),
        ("BertForMaskedLM", {"bert.embeddings.position_embeddings"}),  # its head has a bias
        ("GPTNeoXForCausalLM", {"gpt_neox.embed_in"}),
        ("FalconForCausalLM", {"transformer.word_embeddings", "lm_head"}),
        ("T5ForConditionalGeneration", set()),  # encoder and decoder share it
        ("LlamaForSequenceClassification", {TABLE}),
    ),
)
def test_models_of_other_kinds(tmp_path: Path, kind: str, quantized: set[str], words: str) -> None:
    model, more = other_model(kind)
    model.save_pretrained(tmp_path / "dense")
    asked = WORDS[words]
    try:
        want = in_memory(tmp_path / "dense", kind=type(model), **asked)
    except ValueError as error:
        assert words == "both" and kind.startswith(("Bert", "T5"))
        with pytest.raises(ValueError) as raised:
            loaded(tmp_path / "dense", model_class=type(model), **asked)
        assert str(raised.value) == str(error).replace("quantize_", "MixedGemmConfig")
        return
    found = loaded(tmp_path / "dense", model_class=type(model), **asked)
    assert torch.equal(logits(found, **more), logits(want, **more))
    kinds = (mixed_gemm.Embedding, mixed_gemm.Linear)
    for name in quantized:
        assert isinstance(found.get_submodule(name), kinds), name
    names = [{x for x, y in z.named_modules() if isinstance(y, kinds)} for z in (found, want)]
    assert names[0] == names[1] >= quantized
    found.save_pretrained(tmp_path / "saved")
    again = mixed_gemm.from_pretrained(
        tmp_path / "saved", model_class=type(model), dtype=torch.float32
    )
    assert torch.equal(logits(again, **more), logits(want, **more))


def test_embeddings_that_stay_dense_are_warned_of_but_for_those_that_were_named(
    folder: Any, recwarn: pytest.WarningsRecorder
) -> None:
    path = folder(is_tied=True)
    with pytest.warns(UserWarning, match=f"embeddings stay dense: {TABLE}: its weight is tied"):
        loaded(path, embeddings=True)
    recwarn.clear()
    found = loaded(path, embeddings="w8a16", modules_to_not_convert=["embed_tokens"])
    assert type(found.model.embed_tokens) is torch.nn.Embedding
    assert not [x for x in recwarn if "stay dense" in str(x.message)]


def test_what_users_do_with_such_a_model(folder: Any) -> None:
    path = folder(is_tied=True)
    model = loaded(path, embeddings="w8a16", fuse=True)
    want = logits(model)
    assert torch.equal(want, logits(in_memory(path, embeddings="w8a16")))
    torch._dynamo.reset()
    torch.testing.assert_close(logits(torch.compile(model, fullgraph=True)), want)
    model.resize_token_embeddings(110)
    assert is_one(model) and torch.equal(logits(model)[..., :99], want)
    dense = loaded(path, embeddings="w8a16").dequantize()
    assert is_one(dense) and type(dense.lm_head) is torch.nn.Linear
    eps = torch.finfo(torch.float32).eps
    assert (logits(dense) - want).norm() <= 8 * eps * want.norm()


@pytest.mark.parametrize("is_tied", (True, False))
def test_adapters_on_the_head_and_on_the_embedding(folder: Any, is_tied: bool) -> None:
    peft = pytest.importorskip("peft", reason="optional: hf extra")
    words = {"embeddings": "w8a16", "heads": True}
    for targets in (["lm_head"], ["embed_tokens"], ["q_proj", "lm_head", "embed_tokens"]):
        model = loaded(folder(is_tied), **words)
        before = logits(model)
        config = peft.LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM")
        adapted = peft.get_peft_model(model, config)
        assert torch.equal(logits(adapted), before)
        adapted.train()(input_ids=IDS, labels=IDS).loss.backward()
        grads = {x: y.grad for x, y in adapted.named_parameters() if y.requires_grad}
        assert grads and all(x is not None for x in grads.values())
        assert all(any(x in name for name in grads) for x in targets)


def test_the_command_writes_what_loading_makes(folder: Any, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from mixed_gemm.cli.app import app

    path = folder(is_tied=False)
    for i, words in enumerate(({"heads": "w8a16"}, {"heads": "w8a16", "embeddings": "w8a16"})):
        more = [y for name, scheme in words.items() for y in (f"--{name}", scheme)]
        out = str(tmp_path / str(i))
        answer = CliRunner().invoke(app, ["quantize", str(path), out, "--group-size", "32", *more])
        assert answer.exit_code == 0, answer.output
        found = mixed_gemm.from_pretrained(out, dtype=torch.float32)
        assert torch.equal(logits(found), logits(loaded(path, **words)))
    shutil.rmtree(path)
    answer = CliRunner().invoke(
        app, ["quantize", str(folder(is_tied=True)), str(tmp_path / "x"), "--heads", "w8a16"]
    )
    assert answer.exit_code == 1
    assert "a head that is tied to an embedding is packed by" in " ".join(answer.output.split())
