"""``mixed-gemm quantize`` of dense folders that hold all experts of a layer in one tensor: the
files that quantizing the model in memory and saving it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support import decoders
from torch import Tensor

import mixed_gemm
from mixed_gemm.formats.safetensors_file import SafetensorsFile
from mixed_gemm.quantization import CalibratedCheckpoint

pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")
from integrations.test_stacked_files import STACKED, loaded, written
from quantization.test_experts import IDS, MODELS, experts_of
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from mixed_gemm.cli.app import app
from mixed_gemm.integrations.transformers.stacked_files import experts_in

PARTS = {
    "": [],
    "one linear": ["*experts.*.down_proj", "lm_head", "router"],
    "an expert": ["experts.1", "lm_head", "router"],
    "no expert": ["experts", "lm_head", "router"],
    "experts alone": ["self_attn", "*shared_expert", "lm_head", "router"],
}


def run(folder: Path, out: Path, *more: object, status: int = 0) -> str:
    arguments = [str(x) for x in ("quantize", folder, out, *more)]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == status, done.output
    return done.output


def in_memory(folder: Path, out: Path, scheme: str, **options: Any) -> Any:
    model = loaded(folder)
    mixed_gemm.quantize_(model, scheme, **options)
    model.save_pretrained(out)
    return model


def same(found: Path, wanted: Path, model: Any) -> None:
    mine, theirs = (load_file(x / "model.safetensors") for x in (found, wanted))
    assert mine.keys() == theirs.keys()
    for name, x in theirs.items():
        a, b = (y.flatten().view(torch.uint8) for y in (mine[name], x))
        assert mine[name].shape == x.shape and mine[name].dtype == x.dtype, name
        assert torch.equal(a, b), name
    said = [json.loads((x / "config.json").read_text())["quantization_config"]
            for x in (found, wanted)]  # fmt: skip
    for config in said:  # the command names embeddings among what is dense, too
        for key in ("ignore", "modules_to_not_convert", "mixed_gemm"):
            config.pop(key, None)
    assert said[0] == said[1]
    assert (found / "README.md").exists() is (wanted / "README.md").exists()
    again = mixed_gemm.from_pretrained(found)
    assert torch.equal(again(IDS).logits, model(IDS).logits)


@pytest.mark.filterwarnings("ignore:.*matches no module")
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", STACKED)
@pytest.mark.parametrize("scheme", ["w4a16_asym", "mxfp4"])
def test_the_files_of_the_model_in_memory(
    tmp_path: Path, name: str, scheme: str, parts: str
) -> None:
    folder, skip = written(tmp_path / "dense", name), PARTS[parts]
    sizes: dict[str, Any] = {"group_size": 32} if scheme != "mxfp4" else {}
    sizes |= {"skip": skip} if skip else {}
    model = in_memory(folder, tmp_path / "truth", scheme, **sizes)
    options = [x for pattern in skip for x in ("--skip", pattern)]
    options += ["--group-size", 32] if "group_size" in sizes else []
    text = run(folder, tmp_path / "out", "--scheme", scheme, *options)
    assert "experts in one tensor" not in text
    assert (".experts." in text) is (parts in ("one linear", "an expert", "no expert"))
    same(tmp_path / "out", tmp_path / "truth", model)
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    is_own = name == "gpt-oss" and scheme == "mxfp4" and parts == "experts alone"
    assert (config["quant_method"] == "mxfp4") is is_own


@pytest.mark.parametrize("name", ["Qwen3-MoE", "Mixtral"])
def test_others_as_transformers_holds_them(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path / "dense", name, save_original_format=False)
    model = in_memory(folder, tmp_path / "truth", "w4a16", group_size=32)
    assert "experts" not in run(folder, tmp_path / "out", "--group-size", 32)
    same(tmp_path / "out", tmp_path / "truth", model)
    kept = run(folder, tmp_path / "kept", "--group-size", 32, "--skip", "experts", "--skip", "gate",
               "--skip", "lm_head")  # fmt: skip
    assert "matches skip='experts'" in kept
    mixed_gemm.from_pretrained(tmp_path / "kept")


@pytest.mark.parametrize("kind", ["shards", "torch"])
def test_kinds_of_folders(tmp_path: Path, kind: str) -> None:
    size = "20KB" if kind == "shards" else "1GB"
    folder = written(tmp_path / "dense", "gpt-oss", max_shard_size=size)
    if kind == "torch":
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    model = in_memory(folder, tmp_path / "truth", "w8a16", group_size=32)
    run(folder, tmp_path / "out", "--scheme", "w8a16", "--group-size", 32)
    same(tmp_path / "out", tmp_path / "truth", model)


@pytest.mark.parametrize("name", STACKED)
@pytest.mark.parametrize("skip", [(), ("experts",), ("experts.*.up_proj",)])
def test_calibrated(tmp_path: Path, name: str, skip: tuple[str, ...]) -> None:
    folder = written(tmp_path / "dense", name)
    batches = [torch.arange(64).view(1, 64) + 16 * x for x in range(2)]
    model = loaded(folder)
    options: dict[str, Any] = {"group_size": 32, "method": "gptq", "calibration": batches}
    options["skip"] = (*skip, "lm_head", "router")
    mixed_gemm.quantize_(model, "w4a16", **options)
    model.save_pretrained(tmp_path / "truth")
    found = CalibratedCheckpoint(
        folder, work=tmp_path / "work", progress=False, experts=experts_in, **options
    )
    mixed_gemm.save_checkpoint(found, tmp_path / "out")
    same(tmp_path / "out", tmp_path / "truth", model)


def test_the_command_calibrates(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODELS["gpt-oss"], "vocab_size", decoders.VOCABULARY)
        folder, text = written(tmp_path / "dense", "gpt-oss"), tmp_path / "text"
    decoders.save_tokenizer(folder)
    text.write_text(decoders.words(700, 1))
    options = ("--method", "gptq", "--calibration", text, "--tokens", 256, "--group-size", 32)
    assert "holds 4 experts" not in run(folder, tmp_path / "out", *options)
    model = mixed_gemm.from_pretrained(tmp_path / "out")
    linears = experts_of(model).expert(3).linears
    assert all(isinstance(x, mixed_gemm.Linear) for x in linears)
    assert torch.isfinite(model(IDS).logits).all()


def test_no_more_than_an_expert_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, most = written(tmp_path / "dense", "gpt-oss"), list[int]()

    def watched(kind: Any, name: str) -> None:
        read = getattr(kind, name)

        def load(self: Any, key: str, *args: Any) -> Tensor:
            found: Tensor = read(self, key, *args)
            if ".experts." in key and "bias" not in key:
                most.append(found.numel())
            return found

        monkeypatch.setattr(kind, name, load)

    watched(SafetensorsFile, "load_slice")
    whole = SafetensorsFile.load

    def load(self: Any, key: str) -> Tensor:
        assert not key.endswith(("experts.gate_up_proj", "experts.down_proj"))
        return whole(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(SafetensorsFile, "load", load)
        run(folder, tmp_path / "out", "--group-size", 32)
    assert max(most) == 64 * 128 and len(most) == 4 * 3


def test_bad_files_are_refused_by_name(tmp_path: Path) -> None:
    folder = written(tmp_path / "dense", "gpt-oss")
    whole = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.experts.down_proj"
    other = whole[name].clone()
    other[2, 3, 4] = float("nan")
    for wrong, words in (
        (other, "experts.2.down_proj"),
        (whole[name][:, :32].contiguous(), "must be [4, 64, 64], as the configuration says"),
    ):
        save_file({**whole, name: wrong}, folder / "model.safetensors", metadata={"format": "pt"})
        text = run(folder, tmp_path / "out", "--group-size", 32, status=1)
        assert words in " ".join(text.split()), text
        assert not (tmp_path / "out").exists()
