"""``mixed-gemm eval``: the refusal without transformers, and with it the numbers of the library on
a Llama of one layer and a tokenizer of 64 words."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny_llama

import mixed_gemm

pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
from typer.testing import CliRunner

from mixed_gemm.cli.app import app
from mixed_gemm.integrations.transformers import registration

AWQ = Path(__file__).parents[2] / "data" / "awq_gemm"
WORDS = [f"w{i}" for i in range(tiny_llama.VOCABULARY)]
IDS = (tiny_llama.scatter("text", 150) % tiny_llama.VOCABULARY).tolist()


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["eval", *(str(x) for x in arguments)])
    assert result.exit_code == status, f"{result.exit_code}: {result.output}{result.exception!r}"
    return result.stdout if status == 0 else result.stderr


def found_of(folder: Path, text: Path, *options: object) -> dict[str, Any]:
    """What --json says of the model and of its only text."""
    found = json.loads(run(folder, text, *options, "--json"))
    return {**found, **found["texts"][str(text)]}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(" ".join(WORDS[i] for i in IDS))
    return file


def test_without_transformers_the_error_says_what_to_install(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_installed", lambda: None)
    message = run(AWQ, text, status=1)
    assert message.startswith("error: mixed_gemm needs transformers >= 5.17")
    assert "pip install 'mixed-gemm[hf]'" in message


def test_a_text_that_is_not_there_and_a_window_of_one_are_usage_errors(text: Path) -> None:
    assert "does not exist" in run(AWQ, text.with_name("nothing.txt"), status=2)
    assert "--window" in run(AWQ, text, "--window", 1, status=2)
    assert "give a TEXT, or --tasks" in run(AWQ, status=2)


# --- with transformers -------------------------------------------------------------------------


@pytest.fixture
def transformers() -> Any:
    module = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    module.utils.logging.disable_progress_bar()
    return module


def add_tokenizer(transformers: Any, folder: Path, words: list[str] = WORDS) -> Path:
    tokenizers = pytest.importorskip("tokenizers", reason="transformers brings it")
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=words[0]
    ).save_pretrained(folder)
    return folder


def test_perplexity_of_a_quantized_checkpoint_is_the_librarys(
    transformers: Any, tmp_path: Path, text: Path
) -> None:
    folder = add_tokenizer(transformers, shutil.copytree(AWQ, tmp_path / "model"))
    options = ("--device", "cpu", "--dtype", "float32")
    found = found_of(folder, text, *options)
    model = mixed_gemm.from_pretrained(AWQ, dtype=torch.float32)
    wanted = mixed_gemm.quantization.perplexity(model, torch.tensor(IDS), window=64, progress=False)
    assert {x: found[x] for x in vars(wanted)} == vars(wanted)  # 64: max_position_embeddings
    assert (found["quantized_layers"], found["dtype"]) == (7, "float32")
    shorter = ("--window", 16, "--stride", 15, "--max-tokens", 99)
    wanted = mixed_gemm.quantization.perplexity(
        model, torch.tensor(IDS[:99]), window=16, stride=15, progress=False
    )
    assert run(folder, text, *options, *shorter).strip() == str(wanted)


def test_fused_layers_give_the_same_perplexity(
    transformers: Any, tmp_path: Path, text: Path
) -> None:
    folder = add_tokenizer(transformers, shutil.copytree(AWQ, tmp_path / "model"))
    options = (folder, text, "--device", "cpu", "--dtype", "float32")
    apart, fused = found_of(*options), found_of(*options, "--fuse")
    assert (fused["fused_layers"], fused["products"]) == (5, 2)
    assert fused["nll"] == apart["nll"] and "products" not in apart
    assert "inference_mode" not in run(*options, "--fuse")


def test_perplexity_of_a_dense_model_and_what_rounding_costs(
    transformers: Any, tmp_path: Path, text: Path
) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "dtype": "float32"})
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "dense")
    folder = add_tokenizer(transformers, tmp_path / "dense")
    options = (folder, text, "--device", "cpu")
    dense = found_of(*options)
    exact = mixed_gemm.quantization.perplexity(model, torch.tensor(IDS), window=64, progress=False)
    assert dense["quantized_layers"] == 0
    assert dense["nll"] == pytest.approx(exact.nll, rel=1e-6)
    errors = []
    for bits in (8, 4):
        rounded = found_of(*options, "--bits", bits, "--group-size", 32)
        assert rounded["quantized_layers"] == 7
        errors.append(abs(rounded["nll"] - dense["nll"]))
    assert 0 < errors[0] < errors[1] < 0.01, errors


def test_perplexity_takes_the_groups_that_quantize_takes(
    transformers: Any, tmp_path: Path, text: Path
) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "dtype": "float32"})
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "dense")
    folder = add_tokenizer(transformers, tmp_path / "dense")
    for size in (48, 128):  # K is 64 and 128
        out = tmp_path / str(size)
        rounded = ["quantize", str(folder), str(out), "--bits", "4", "--group-size", str(size)]
        assert CliRunner().invoke(app, rounded).exit_code == 0
        wanted = found_of(out, text, "--device", "cpu")
        asked = (folder, text, "--device", "cpu", "--bits", 4, "--group-size", size)
        assert found_of(*asked)["nll"] == wanted["nll"]
    result = CliRunner().invoke(app, ["eval", *map(str, asked)])
    assert "6 layers have groups of 64, since 128 does not divide their K" in result.output


def test_perplexity_refuses_a_dense_model_with_missing_weights(
    transformers: Any, tmp_path: Path, text: Path
) -> None:
    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "dtype": "float32"})
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    tensors = {name: x.clone() for name, x in load_file(tmp_path / "model.safetensors").items()}
    del tensors["model.norm.weight"]
    (tmp_path / "model.safetensors").unlink()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    folder = add_tokenizer(transformers, tmp_path)
    message = run(folder, text, "--device", "cpu", status=1)
    assert "does not fill LlamaForCausalLM: 1 missing keys, model.norm.weight" in message


def test_perplexity_of_an_adapter_is_that_of_its_model_with_it(
    transformers: Any, tmp_path: Path, text: Path
) -> None:
    peft = pytest.importorskip("peft", reason="optional: hf extra")
    base = add_tokenizer(transformers, shutil.copytree(AWQ, tmp_path / "base"))
    options = ("--device", "cpu", "--dtype", "float32")
    model = mixed_gemm.from_pretrained(base, dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"]))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.5)
    model.peft_config["default"].base_model_name_or_path = str(base)
    model.save_pretrained(tmp_path / "adapter")
    wanted = mixed_gemm.quantization.perplexity(
        lambda ids: model.eval()(input_ids=ids), torch.tensor(IDS), window=64, progress=False
    )
    assert wanted.nll != found_of(base, text, *options)["nll"]
    assert found_of(tmp_path / "adapter", text, *options)["nll"] == wanted.nll


def test_perplexity_refuses_a_tokenizer_of_another_model(
    transformers: Any, tmp_path: Path, text: Path
) -> None:
    folder = shutil.copytree(AWQ, tmp_path / "model")
    add_tokenizer(transformers, folder, ["w0", *(f"x{i}" for i in range(99)), *WORDS[1:]])
    assert "and the model has 64 embeddings" in run(folder, text, "--device", "cpu", status=1)


def test_several_texts_are_told_by_name(transformers: Any, tmp_path: Path, text: Path) -> None:
    folder = add_tokenizer(transformers, shutil.copytree(AWQ, tmp_path / "model"))
    other = tmp_path / "other.txt"
    other.write_text(" ".join(WORDS[i] for i in IDS[:80]))
    options = ("--device", "cpu", "--dtype", "float32")
    told = run(folder, text, other, *options)
    found = json.loads(run(folder, text, other, *options, "--json"))["texts"]
    for file in (text, other):
        assert f"{file}: perplexity {found[str(file)]['perplexity']:.4f}" in told
    assert found[str(other)]["tokens"] == 79


def test_tasks_without_lm_eval_say_what_to_install(
    transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = add_tokenizer(transformers, shutil.copytree(AWQ, tmp_path / "model"))
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    message = run(folder, "--tasks", "piqa", "--device", "cpu", status=1)
    assert "--tasks needs lm-eval" in message and "pip install lm-eval" in message


TASK = """
task: own_words
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""


def test_tasks_are_those_of_lm_eval(transformers: Any, tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="optional: --tasks")
    folder = add_tokenizer(transformers, shutil.copytree(AWQ, tmp_path / "model"))
    model = mixed_gemm.from_pretrained(AWQ, dtype=torch.float32)
    rows, right = [], 0
    for start in range(0, 60, 6):
        question, choices = IDS[start : start + 4], [IDS[start + 4], IDS[start + 5]]
        with torch.no_grad():
            logits = model(torch.tensor([question])).logits[0, -1]
        rows.append(
            {
                "question": " ".join(WORDS[i] for i in question),
                "choices": [WORDS[i] for i in choices],
                "answer": 0,
            }
        )
        right += bool(logits[choices[0]] > logits[choices[1]]) or choices[0] == choices[1]
    data = tmp_path / "rows.json"
    data.write_text("\n".join(map(json.dumps, rows)))
    task = tmp_path / "own_words.yaml"
    task.write_text(TASK.replace("FILE", str(data)))
    options = ("--device", "cpu", "--dtype", "float32", "--json")
    found = json.loads(run(folder, "--tasks", task, *options))
    assert found["tasks"]["own_words"]["acc,none"] == right / len(rows)
