"""The command line: every command's text and --json, exit status, and errors a user can act on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny_llama

import mixed_gemm
from mixed_gemm import cli

pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
from typer.testing import CliRunner

from mixed_gemm.cli.app import app

H200 = "cuda:sm=90,sms=132,smem=232448"


def run(*arguments: object, status: int = 0) -> str:
    """stdout of a command that must end with ``status``; then stderr for a failure."""
    result = CliRunner().invoke(app, [str(x) for x in arguments])
    assert result.exit_code == status, f"{result.exit_code}: {result.output}{result.exception!r}"
    return result.stdout if status == 0 else result.stderr


def run_json(*arguments: object) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_help_lists_every_command_and_no_arguments_show_it() -> None:
    text = run("--help")
    for name in ("bench", "convert", "demo", "env", "eval", "inspect", "quantize", "tune"):
        assert name in text
        assert "--json" in run(name, "--help")


def test_version_is_the_package_version() -> None:
    assert run("--version").strip() == mixed_gemm.__version__


def test_unknown_command_and_option_are_usage_errors() -> None:
    assert "No such command" in run("benhc", status=2)
    assert "--gruop" in run("bench", "--gruop", 3, status=2)


def test_the_process_itself(repository: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{repository}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "mixed_gemm.cli", "env", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["torch"] == torch.__version__


@pytest.mark.parametrize("missing", cli.REQUIRED)
def test_without_the_extra_the_message_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = cli.importlib.util.find_spec
    monkeypatch.setattr(
        cli.importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    with pytest.raises(SystemExit, match=rf"needs {missing}.*pip install 'mixed-gemm\[cli\]'"):
        cli.main()


def test_env_names_versions_and_library() -> None:
    report = run_json("env")
    assert report["mixed_gemm"] == mixed_gemm.__version__
    assert report["library"] == mixed_gemm.env().library
    assert "layout version" in run("env")


def test_env_fails_when_the_library_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mixed_gemm.env().__class__(
        **{**vars(mixed_gemm.env()), "library": None, "error": "no library"}
    )
    monkeypatch.setattr(mixed_gemm, "env", lambda: broken)
    result = CliRunner().invoke(app, ["env"])
    assert result.exit_code == 1
    assert "no library" in result.stdout


def test_demo_checks_every_product() -> None:
    report = run_json("demo", "--n", 192, "--k", 256, "--device", "cpu")
    assert report["ok"] is True
    assert len(report["checks"]) == 6
    assert all(0 < row["error_ratio"] <= 1 and row["ok"] for row in report["checks"])
    assert "6 of 6 within the error bound" in run("demo", "--n", 64, "--k", 128, "--device", "cpu")


def test_demo_fails_on_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mixed_gemm.fpA_intB_gemm
    monkeypatch.setattr(mixed_gemm, "fpA_intB_gemm", lambda *a, **k: right(*a, **k) * 1.01)
    result = CliRunner().invoke(app, ["demo", "--n", "64", "--k", "128", "--device", "cpu"])
    assert result.exit_code == 1
    assert "WRONG" in result.stdout


def test_bench_rows_have_the_format_of_the_results_files(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    arguments = ("bench", 128, 256, "--m", "3,1,3", "--device", "cpu", "--dtype", "float32")
    report = run_json(*arguments, "--zero-mode", "sub", "--bits", 8, "--out", out)
    assert json.loads(out.read_text()) == report
    assert [(row["op"], row["M"]) for row in report["rows"]] == [
        ("fpA_intB_gemm", 1), ("F.linear", 1), ("fpA_intB_gemm", 3), ("F.linear", 3),
    ]  # fmt: skip
    fields = {"op", "kernel", "selected", "dtype", "bits", "group_size", "zero_mode", "N", "K", "M"}
    fields |= {"us", "us_min", "us_max", "roofline_us"}
    for row in report["rows"]:
        assert set(row) == fields
        assert 0 < row["us_min"] <= row["us"] <= row["us_max"]
        assert row["roofline_us"] > 0
    ours = report["rows"][0]
    assert (ours["bits"], ours["group_size"], ours["zero_mode"]) == (8, 128, "sub")
    assert report["meta"]["ceilings"]["read_gb_per_s"] > 0


def test_bench_overwrites_only_when_forced(tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    out.write_text("mine")
    arguments = ("bench", 64, 128, "--m", "1", "--device", "cpu", "--out", out)
    assert "--force replaces it" in run(*arguments, status=1)
    assert out.read_text() == "mine"
    run(*arguments, "--force")
    assert json.loads(out.read_text())["rows"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    assert "no regular file" in run(*arguments[:-1], "/dev/null", "--force", status=1)


def test_bench_prints_a_table() -> None:
    text = run("bench", 64, 128, "--m", "1", "--device", "cpu", "--dtype", "float32")
    assert "speedup" in text and "roofline" in text and "cpu_" in text


@pytest.mark.parametrize("rows", ["x", "0", "", "1,,-2"])
def test_bench_refuses_rows_that_are_no_numbers(rows: str) -> None:
    assert "positive numbers" in run("bench", 64, 128, "--m", rows, status=2)


def test_a_refused_problem_is_one_error_line() -> None:
    text = run("bench", 64, 128, "--group-size", 100, "--device", "cpu", status=1)
    assert text.startswith("error: ") and "multiple of 16" in text
    assert "Traceback" not in text


def test_traceback_lets_the_exception_through() -> None:
    result = CliRunner().invoke(app, ["--traceback", "bench", "64", "128", "--group-size", "100"])
    assert isinstance(result.exception, ValueError)


def test_a_device_that_is_not_there_is_an_error() -> None:
    assert "error: there is no cuda:99" in run("bench", 64, 128, "--device", "cuda:99", status=1)
    assert "must be cpu, cuda" in run("bench", 64, 128, "--device", "gpu", status=2)
    assert "must be cpu, cuda" in run("demo", "--device", "meta", status=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to tune on")
def test_tune_without_a_gpu_says_so() -> None:
    assert "no CUDA device" in run("tune", 64, 128, status=1)


def test_tune_prints_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = mixed_gemm.selection.TuneResult("M=1 N=64 K=128", "skinny_m8", 2.0, "multistage", 3.0)
    asked: dict[str, Any] = {}

    def tune(n: int, k: int, **options: Any) -> list[mixed_gemm.selection.TuneResult]:
        asked.update(options, n=n, k=k)
        return [found]

    monkeypatch.setattr(mixed_gemm, "tune", tune)
    report = run_json("tune", 64, 128, "--m", "1,4", "--no-save", "--dtype", "bfloat16")
    assert report["results"] == [vars(found)]
    assert report["saved"] is False
    assert (asked["n"], asked["k"], asked["m"], asked["dtype"]) == (64, 128, [1, 4], torch.bfloat16)
    assert asked["save"] is False
    text = run("tune", 64, 128)
    assert "skinny_m8" in text and "1.50x" in text


# --- checkpoints -------------------------------------------------------------------------------

AWQ = Path(__file__).parents[2] / "data" / "awq_gemm"
ACT_ORDER = AWQ.with_name("gptq_v2_4bit_act_order")


def test_inspect_counts_layers_and_bytes() -> None:
    found = run_json("inspect", AWQ, "--layers", "--check")
    assert found["format"] == "AWQ gemm"
    assert found["quantized_layers"] == len(found["layers"]) == 7
    assert found["quantized_weights"] == sum(n * k for n, k in tiny_llama.LINEARS.values())
    assert found["quantized_bytes"] == sum(layer["nbytes"] for layer in found["layers"])
    assert found["schemes"] == {"int4 group 32, zeros": 7}
    assert found["checked"] is True
    words = "name in_features out_features bits group_size kind has_zeros nbytes strategy "
    assert list(found["layers"][0]) == [*words.split(), "input_activations", "block"]
    assert found["layers"][0]["bits"] == 4 and found["layers"][0]["kind"] == "int"
    text = run("inspect", AWQ, "--layers")
    assert "7 x int4 group 32, zeros" in text and "model.layers.0.mlp.up_proj" in text


@pytest.mark.parametrize(
    ("folder", "scheme", "note"),
    (
        ("ct_float_block", "fp8 blocks of 32 x 64; dynamic float8 activations", "scales by block"),
        ("ct_float_tensor", "fp8 per tensor; dynamic float8 activations", ""),
        ("modelopt/nvfp4", "e2m1 group 16", "asks for float4 activations too"),
    ),
)
def test_inspect_tells_what_layers_are_served_as(folder: str, scheme: str, note: str) -> None:
    found = run_json("inspect", AWQ.parent / folder)
    assert found["schemes"] == {scheme: 7}
    assert len(found["notes"]) == bool(note) and all(note in x for x in found["notes"])
    text = run("inspect", AWQ.parent / folder)
    assert f"7 x {scheme}" in text and text.count("note: the file asks for") == bool(note)


@pytest.mark.parametrize(
    ("scheme", "wanted"), (("mxfp4", "e2m1 group 32"), ("nf4", "nf4 group 64"))
)
def test_inspect_names_codes_that_are_no_integers(tmp_path: Path, scheme: str, wanted: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(128, 64).bfloat16())
    mixed_gemm.quantize_(model, scheme)
    mixed_gemm.save_checkpoint(model, tmp_path / "out")
    assert run_json("inspect", tmp_path / "out")["schemes"] == {wanted: 1}


def test_inspect_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    assert "no such file or folder" in run("inspect", tmp_path / "nothing", status=1)
    assert run("inspect", tmp_path, status=1).startswith(f"error: {tmp_path}: no .safetensors")
    broken = tmp_path / "model.safetensors"
    broken.write_bytes((AWQ / "model.safetensors").read_bytes()[:-100])
    assert f"{broken}: not a whole safetensors file" in run("inspect", broken, status=1)


def test_inspect_check_refuses_a_config_that_its_tensors_contradict(tmp_path: Path) -> None:
    lying = shutil.copytree(AWQ.with_name("gptq_v1_4bit"), tmp_path / "lying")
    config = json.loads((lying / "config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (lying / "config.json").write_text(json.dumps(config))
    run("inspect", lying)
    assert "the configuration says that zero points" in run("inspect", lying, "--check", status=1)


def test_convert_keeps_every_bit(tmp_path: Path) -> None:
    report = run_json("convert", AWQ, tmp_path / "out", "--shard-size", "0.00003")
    assert report["target"]["format"] == "compressed-tensors pack-quantized"
    assert len(report["target"]["files"]) > 1
    before, after = mixed_gemm.open_checkpoint(AWQ), mixed_gemm.open_checkpoint(tmp_path / "out")
    for name in before.layers:
        assert torch.equal(after.layer(name).q, before.layer(name).q)
        assert torch.equal(after.layer(name).scales, before.layer(name).scales)
    assert "holds" in run("convert", AWQ, tmp_path / "out", status=1)
    run("convert", AWQ, tmp_path / "out", "--force")


def test_convert_onto_its_source_is_refused_even_with_force(tmp_path: Path) -> None:
    source = shutil.copytree(AWQ, tmp_path / "source")
    for target in (source, f"{source}/", tmp_path / "source" / ".." / "source"):
        text = run("convert", source, target, "--force", status=1)
        assert text.startswith("error: ") and "which is being read" in text
    assert mixed_gemm.open_checkpoint(source).format == "AWQ gemm"


def test_a_full_disk_is_one_error_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    text = run("convert", AWQ, tmp_path / "out", status=1)
    monkeypatch.undo()
    assert text.count("\n") == 1 and "No space left on device" in text
    assert not (tmp_path / "out").exists()


def test_convert_says_what_only_this_library_reads(tmp_path: Path) -> None:
    text = run("convert", ACT_ORDER, tmp_path / "out")
    assert "other readers refuse" in text and "README.md" in text
    assert "act-order" in (tmp_path / "out" / "README.md").read_text()
    assert "other readers" not in run("convert", AWQ, tmp_path / "plain")


def dense_model(folder: Path) -> Path:
    folder.mkdir()
    tensors = tiny_llama.plain_tensors()
    for name, (n, k) in tiny_llama.LINEARS.items():
        tensors[f"{name}.weight"] = tiny_llama.grid(name, n, k, 4, 32, False).weight().half()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(tiny_llama.CONFIG))
    return folder


def test_quantize_writes_what_inspect_reads(tmp_path: Path) -> None:
    dense = dense_model(tmp_path / "dense")
    options = ("--bits", 8, "--group-size", 32, "--asymmetric", "--skip", "lm_head")
    report = run_json("quantize", dense, tmp_path / "out", *options, "--skip", "down_proj")
    assert report["target"] == run_json("inspect", tmp_path / "out")
    assert report["target"]["schemes"] == {"int8 group 32, zeros": 6}
    assert set(report["left_dense"]) == {
        "lm_head", "model.embed_tokens", "model.layers.0.mlp.down_proj",
    }  # fmt: skip
    assert report["dense_bytes"] == 2 * (4 * 64 * 64 + 2 * 64 * 128)
    text = run("quantize", dense, tmp_path / "four", "--group-size", 32)
    assert "7 x int4 group 32" in text and "2 matrices are left dense:" in text
    assert "model.embed_tokens: is no linear by its name (*embed*)" in text


def test_quantize_says_where_groups_do_not_fit(tmp_path: Path) -> None:
    dense = dense_model(tmp_path / "dense")
    text = run("quantize", dense, tmp_path / "out", "--group-size", 48)
    assert "7 layers have groups of 32, since 48 does not divide their K" in text
    text = run("quantize", dense, tmp_path / "ragged", "--group-size", 48, "--ragged")
    assert "7 x int4 group 48" in text and "other readers refuse it" in text


def test_quantize_refuses_what_could_not_be_loaded_again(tmp_path: Path) -> None:
    pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    dense = dense_model(tmp_path / "dense")
    tensors = {name: x.clone() for name, x in load_file(dense / "model.safetensors").items()}
    (dense / "model.safetensors").unlink()
    other = "model.layers.0.mlp.other_proj"
    save_file({**tensors, f"{other}.weight": torch.ones(64, 64)}, dense / "model.safetensors")
    options = (dense, tmp_path / "out", "--group-size", 32)
    text = run("quantize", *options, status=1)
    assert f"LlamaForCausalLM has no linear for {other}" in text and "--skip" in text
    assert not (tmp_path / "out").exists()
    run("quantize", *options, "--skip", "other_proj")


def test_quantize_takes_experts_that_are_apart_and_names_others(tmp_path: Path) -> None:
    experts = {f"model.layers.0.mlp.experts.{i}.w1.weight": torch.ones(64, 64) for i in range(3)}
    joined = {"model.layers.0.mlp.experts.down_proj": torch.ones(3, 64, 64)}
    save_file({**experts, **joined}, tmp_path / "experts.safetensors")
    text = run("quantize", tmp_path / "experts.safetensors", tmp_path / "out", "--group-size", 32)
    assert "3 x int4 group 32" in text
    assert "experts.down_proj: holds 3 experts in one tensor. Hint: load the model" in text
    text = run("quantize", tmp_path / "experts.safetensors", tmp_path / "none", "--skip", "experts",
               status=1)  # fmt: skip
    assert "no tensor is the weight of a linear layer" in text


def test_a_quantized_mixture_is_what_quantize_makes_of_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")
    from integrations.test_experts import dense as dense_mixture

    tokens = torch.arange(6).view(1, 6)
    for name in ("Qwen3-MoE", "Mixtral"):
        folder = dense_mixture(name, tmp_path / name)
        text = run("quantize", folder, tmp_path / f"{name}-4", "--group-size", 32)
        assert "16 x int4 group 32" in text
        found = mixed_gemm.from_pretrained(tmp_path / f"{name}-4", dtype=torch.float32)
        asked = mixed_gemm.MixedGemmConfig(group_size=32)
        wanted = mixed_gemm.from_pretrained(folder, quantization_config=asked, dtype=torch.float32)
        assert torch.equal(found(tokens).logits, wanted(tokens).logits)


def test_quantize_refuses_with_the_reason(tmp_path: Path) -> None:
    dense = dense_model(tmp_path / "dense")
    assert "group_size must be" in run(
        "quantize", dense, tmp_path / "out", "--group-size", 40, status=1
    )
    assert not (tmp_path / "out").exists()
    assert "mixed-gemm convert" in run("quantize", AWQ, tmp_path / "out", status=1)
