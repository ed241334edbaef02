"""Models whose positions end before the window does, and models that are no language models: right,
or a sentence that says what they are and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import command_inputs, tiny_llama

import mixed_gemm
from mixed_gemm.quantization import CalibratedCheckpoint, perplexity, text_batches
from mixed_gemm.quantization.positions import longest_input

pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
from typer.testing import CliRunner

from mixed_gemm.cli import env
from mixed_gemm.cli.app import app
from mixed_gemm.cli.output import UNEXPECTED

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

LONGEST = 32
WORDS = tiny_llama.VOCABULARY
OPTIONS = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
HIDDEN = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
LEARNED: dict[str, tuple[str, dict[str, Any]]] = {  # name -> class, sizes
    "GPT-2": ("GPT2LMHeadModel", {
        "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": LONGEST}),
    "OPT": ("OPTForCausalLM", {
        "hidden_size": 64, "word_embed_proj_dim": 64, "num_hidden_layers": 2, "ffn_dim": 64,
        "num_attention_heads": 4, "max_position_embeddings": LONGEST}),
    "GPT-Neo": ("GPTNeoForCausalLM", {
        "hidden_size": 64, "num_layers": 2, "num_heads": 4, "window_size": 8,
        "attention_types": [[["global", "local"], 1]], "max_position_embeddings": LONGEST}),
    "MPT": ("MptForCausalLM", {
        "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": LONGEST}),
    "CTRL": ("CTRLLMHeadModel", {
        "n_embd": 64, "dff": 64, "n_layer": 2, "n_head": 4, "n_positions": LONGEST}),
}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "T5": ("T5ForConditionalGeneration", {
        "d_model": 64, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 16}),
    "Whisper": ("WhisperForConditionalGeneration", {
        "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "num_mel_bins": 16, "max_source_positions": 16, "max_target_positions": 16,
        "decoder_start_token_id": 1}),
    "CLIP": ("CLIPModel", {
        "text_config": {**HIDDEN, "max_position_embeddings": 16, "vocab_size": WORDS},
        "vision_config": {**HIDDEN, "image_size": 32, "patch_size": 8}}),
    "a classifier": ("LlamaForSequenceClassification", {
        **HIDDEN, "pad_token_id": None, "max_position_embeddings": LONGEST}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(" ".join(f"w{(7 * i + i // 9) % WORDS}" for i in range(300)))
    return file


def model_of(kind: str, sizes: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    cls = getattr(transformers, kind)
    return cls(cls.config_class(**{**OPTIONS, **sizes})).eval()


def saved(folder: Path, model: Any) -> Path:
    model.save_pretrained(folder)
    return command_inputs.add_tokenizer(folder)


def run(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    assert done.exit_code == status, f"{done.output}{done.exception!r}"
    assert UNEXPECTED not in done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.mark.parametrize("name", LEARNED)
def test_windows_end_where_positions_do(name: str, tmp_path: Path, text: Path) -> None:
    model = model_of(*LEARNED[name])
    assert longest_input(model.config) == LONGEST
    folder = saved(tmp_path / "dense", model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor(tokenizer(text.read_text()).input_ids)
    wanted = perplexity(model, ids, window=LONGEST, progress=False)
    assert perplexity(model, ids, progress=False) == wanted
    assert run("eval", folder, text, "--device", "cpu").strip() == str(wanted)
    told = run("eval", folder, text, "--device", "cpu", "--window", 200, status=1)
    assert f"{type(model).__name__} does not run on 200 tokens" in told
    assert f"made for {LONGEST}: --window {LONGEST}" in told
    report = mixed_gemm.quantize_(model, "w8a16", evaluate=ids, progress=False)
    assert report.before is not None and report.before.nll == wanted.nll
    if name == "GPT-2":  # whose Conv1D is no nn.Linear: a refusal of its own
        return
    gptq = ("--method", "gptq", "--group-size", 32)
    run("quantize", folder, tmp_path / "out", *gptq, "--calibration", text, "--tokens", 256)
    batches = text_batches(tokenizer, text, tokens=256, length=LONGEST)
    exact = CalibratedCheckpoint(
        folder, method="gptq", group_size=32, calibration=batches, work=tmp_path / "w",
        progress=False,
    )  # fmt: skip
    written = mixed_gemm.open_checkpoint(tmp_path / "out")
    for layer in exact.layers:
        assert torch.equal(written.layer(layer).q, exact.layer(layer).q)


@pytest.mark.parametrize("name", OTHERS)
def test_models_that_are_no_language_models(name: str, tmp_path: Path, text: Path) -> None:
    kind, sizes = OTHERS[name]
    folder = saved(tmp_path / "dense", model_of(kind, sizes))
    told = run("eval", folder, text, "--device", "cpu", status=1)
    assert f"error: {folder}: " in told and "Hint: " in told and "model_class=" in told
    with pytest.raises(mixed_gemm.CheckpointError, match="model_class="):
        mixed_gemm.from_pretrained(folder, quantization_config=mixed_gemm.MixedGemmConfig("w8a16"))
    out = (tmp_path / "out", "--method", "gptq", "--group-size", 32)
    told = run("quantize", folder, *out, "--calibration", text, "--tokens", 256, status=1)
    assert f"error: {folder}: {kind} does not run on token ids (" in told
    assert "Hint: load the model and call mixed_gemm.quantize_" in told
    assert not (tmp_path / "out").exists()
    run("quantize", folder, *out[:1], "--group-size", 32)  # rounding runs no model


def test_a_perplexity_of_a_model_that_sees_what_comes_is_none(tmp_path: Path, text: Path) -> None:
    sizes = {**HIDDEN, "max_position_embeddings": LONGEST}
    model = model_of("BertForMaskedLM", sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)  # as large as trained ones
    folder = saved(tmp_path / "bert", model)
    told = run("eval", folder, text, "--device", "cpu", status=1)
    assert "is no causal language model: its outputs depend on later tokens" in told
    decoder = model_of("BertLMHeadModel", {**sizes, "is_decoder": True})
    assert "perplexity" in run("eval", saved(tmp_path / "d", decoder), text, "--device", "cpu")


def test_what_nobody_foresaw_is_a_line_and_a_traceback_where_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mixed_gemm, "env", lambda: {}["nothing"])
    done = CliRunner().invoke(app, ["env"])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert done.stderr.startswith(f"error: KeyError: 'nothing'. {UNEXPECTED}")
    assert isinstance(CliRunner().invoke(app, ["--traceback", "env"]).exception, KeyError)
    assert env.command.__name__ == "command"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    dense = command_inputs.dense_folder(tmp_path / "dense")
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "else")
    for target in (file, file / "below", tmp_path / "link", "/proc/nobody", "/dev/null"):
        told = run("quantize", dense, target, "--group-size", 32, status=1)
        assert told.splitlines()[-1].startswith("error: ") and str(target) in told
    bench = ("bench", 64, 128, "--m", "1", "--device", "cpu", "--out")
    for out in (file, file / "below", tmp_path, "/dev/null"):
        assert str(out) in run(*bench, out, status=1)
    assert "is no folder" in run(*bench, tmp_path / "none" / "out.json", status=1)
    assert file.read_text() == "mine" and not (tmp_path / "nowhere").exists()
