"""Dense folders that hold all experts of a layer in one tensor (gpt-oss, Llama 4, and what
transformers writes of others as it holds them): quantized as they are read, one expert at a time,
to the bit what ``quantize_`` makes of the loaded model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from quantization.test_experts import IDS, MODELS, experts_of, model_of
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import core_model_loading

import mixed_gemm
from mixed_gemm import _freed
from mixed_gemm.formats import CheckpointError
from mixed_gemm.formats.safetensors_file import SafetensorsFile
from mixed_gemm.integrations.transformers.read_experts import LOOK
from mixed_gemm.nn.experts import Experts
from mixed_gemm.quantization.names import DEFAULT_SKIP

STACKED = ("gpt-oss", "Llama 4")
SCHEMES: dict[str, dict[str, Any]] = {
    "w4a16": {"group_size": 32}, "w4a16_asym": {"group_size": 32}, "w8a16": {}, "w8a8": {},
    "fp8": {}, "fp8_block": {}, "mxfp4": {}, "nvfp4": {}, "nf4": {}, "fp4": {},
}  # fmt: skip


def written(folder: Path, name: str, dtype: torch.dtype = torch.bfloat16, **options: Any) -> Path:
    """A dense folder, whose biases are not zero."""
    model = model_of(name).to(dtype)
    for key, parameter in model.named_parameters():
        if key.endswith("bias"):
            nn.init.normal_(parameter)
    model.save_pretrained(folder, **options)
    return folder


def loaded(folder: Path, **options: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options)


def same(found: nn.Module, wanted: nn.Module) -> None:
    state, other = found.state_dict(), wanted.state_dict()
    assert state.keys() == other.keys()
    for name, x in other.items():
        mine, theirs = (y.contiguous().flatten().view(torch.uint8) for y in (state[name], x))
        assert state[name].dtype == x.dtype and torch.equal(mine, theirs), name
    trains = [{n: p.requires_grad for n, p in x.named_parameters()} for x in (found, wanted)]
    assert trains[0] == trains[1]
    assert torch.equal(found(IDS).logits, wanted(IDS).logits)  # type: ignore[operator]


def scheme_of(name: str) -> Any:
    if name != "fp8_block":
        return name
    return mixed_gemm.Scheme.fp8(strategy="block", block=(32, 32))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", STACKED)
def test_they_are_those_of_the_loaded_model(tmp_path: Path, name: str, scheme: str) -> None:
    number = list(SCHEMES).index(scheme)
    source = (torch.bfloat16, torch.float16)[number % 2]
    dtype = (torch.float32, source, torch.bfloat16)[number % 3]
    folder = written(tmp_path / "dense", name, source)
    truth = loaded(folder, dtype=dtype)
    mixed_gemm.quantize_(truth, scheme_of(scheme), **SCHEMES[scheme])
    asked = mixed_gemm.MixedGemmConfig(scheme_of(scheme), **SCHEMES[scheme])
    found = loaded(folder, dtype=dtype, quantization_config=asked)
    assert all(isinstance(x, mixed_gemm.Linear) for x in experts_of(found).expert(3).linears)
    same(found, truth)
    found.save_pretrained(tmp_path / "found")
    truth.save_pretrained(tmp_path / "truth")
    files = [load_file(tmp_path / x / "model.safetensors") for x in ("found", "truth")]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(bits(x), bits(files[1][key])) for key, x in files[0].items())
    again = mixed_gemm.from_pretrained(tmp_path / "found", dtype=dtype)
    assert torch.equal(again(IDS).logits, found(IDS).logits)


def bits(x: Tensor) -> Tensor:
    return x.flatten().view(torch.uint8)


@pytest.mark.parametrize("name", [x for x in MODELS if x not in STACKED])
def test_others_as_transformers_holds_them(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path, name, save_original_format=False)
    truth = loaded(folder)
    mixed_gemm.quantize_(truth, "w4a16", group_size=32)
    asked = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
    same(loaded(folder, quantization_config=asked), truth)


@pytest.mark.parametrize("name", STACKED)
@pytest.mark.parametrize("skip", ["*experts.*.down_proj", "*experts.1", "*experts"])
def test_what_is_skipped_stays_dense(tmp_path: Path, name: str, skip: str) -> None:
    folder = written(tmp_path, name)
    asked = mixed_gemm.MixedGemmConfig(
        group_size=32, modules_to_not_convert=[skip.replace("*", r".*"), "lm_head"]
    )
    found = loaded(folder, quantization_config=asked)
    truth = loaded(folder)
    mixed_gemm.quantize_(truth, group_size=32, skip=[*DEFAULT_SKIP, skip])
    same(found, truth)
    taken = any(isinstance(x, Experts) for x in found.modules())
    assert taken is (skip != "*experts")
    if taken:
        dense = [x for x in experts_of(found).modules() if type(x) is nn.Linear]
        assert len(dense) == (3 if skip.endswith("1") else 4)
        assert all(x.weight.untyped_storage().nbytes() == x.weight.nbytes for x in dense)


@pytest.mark.parametrize("kind", ["shards", "torch", "base model"])
def test_kinds_of_folders(tmp_path: Path, kind: str) -> None:
    folder = written(tmp_path, "gpt-oss", max_shard_size="20KB" if kind == "shards" else "1GB")
    if kind == "shards":
        assert len(list(folder.glob("*.safetensors"))) > 3
    else:
        tensors = load_file(folder / "model.safetensors")
        if kind == "torch":
            torch.save(tensors, folder / "pytorch_model.bin")
            (folder / "model.safetensors").unlink()
        else:
            named = {x.removeprefix("model."): y for x, y in tensors.items()}
            save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    truth = loaded(folder)
    mixed_gemm.quantize_(truth, "w8a16", group_size=32)
    asked = mixed_gemm.MixedGemmConfig("w8a16", group_size=32)
    same(loaded(folder, quantization_config=asked, device_map={"": "cpu"}), truth)


def test_no_more_than_an_expert_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, "gpt-oss")
    most: list[int] = []
    read, copied = SafetensorsFile.load_slice, core_model_loading._materialize_copy

    def load_slice(self: Any, *args: Any) -> Tensor:
        most.append((found := read(self, *args)).numel())
        return found

    def materialize(tensor: Any, *args: Any) -> Any:
        assert len(tensor.get_shape()) < 3
        return copied(tensor, *args)

    monkeypatch.setattr(SafetensorsFile, "load_slice", load_slice)
    monkeypatch.setattr(core_model_loading, "_materialize_copy", materialize)
    loaded(folder, quantization_config=mixed_gemm.MixedGemmConfig(group_size=32))
    assert max(most) == 64 * 128 and len(most) == 4 * 4


def test_bad_files_are_refused_by_name(tmp_path: Path) -> None:
    folder = written(tmp_path, "gpt-oss")
    whole = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.experts.down_proj"
    asked = mixed_gemm.MixedGemmConfig(group_size=32)

    def refused(tensors: dict[str, Tensor], words: str, **options: Any) -> None:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises((ValueError, CheckpointError), match=words):
            loaded(folder, quantization_config=asked, **options)

    other = whole[name].clone()
    other[2, 3, 4] = float("nan")
    refused({**whole, name: other}, r"experts\.2\.down_proj.*(nan|NaN|finite)")
    refused(
        {**whole, name: whole[name][:, :32].contiguous()},
        r"must be \[4, 64, 64\].*got \[4, 32, 64\]",
    )
    refused(whole, r"no tensor that becomes .*experts\.down_proj\. Hint", key_mapping={
        r"experts\.down_proj$": "experts.other"
    })  # fmt: skip


def test_experts_that_are_given_in_memory_stay_dense(tmp_path: Path) -> None:
    model = model_of("gpt-oss")
    asked = mixed_gemm.MixedGemmConfig(group_size=32)
    with pytest.warns(UserWarning, match=r"experts stay dense.*state_dict.*mixed_gemm\.quantize_"):
        found = type(model).from_pretrained(
            None, config=model.config, state_dict=model.state_dict(), quantization_config=asked
        )
    assert not any(isinstance(x, Experts) for x in found.modules())
    assert isinstance(found.model.layers[0].self_attn.q_proj, mixed_gemm.Linear)


COUNT, HIDDEN, INNER = 32, 1024, 1024  # a layer's gate and up: 128 MiB of bfloat16
PROGRAM = """
import sys, torch, transformers, mixed_gemm

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

asked = mixed_gemm.MixedGemmConfig("w4a16", group_size=64) if sys.argv[2] == "packed" else None
load = transformers.AutoModelForCausalLM.from_pretrained
load(sys.argv[3], quantization_config=asked, dtype=torch.bfloat16)
before = peak()
model = load(sys.argv[1], quantization_config=asked, dtype=torch.bfloat16)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says what a process has")
@pytest.mark.skipif(_freed._trim() is None, reason="this C library gives memory back by itself")
def test_loading_takes_little_beside_the_packed_weights(tmp_path: Path) -> None:
    sizes = {
        "vocab_size": 64, "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "num_local_experts": COUNT, "num_experts_per_tok": 2,
    }  # fmt: skip
    with torch.device("meta"):
        empty = transformers.GptOssForCausalLM(transformers.GptOssConfig(**sizes))
    model = empty.to(torch.bfloat16).to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.detach().flatten().view(torch.int16).random_(0x3C00, 0x3D00)
    model.save_pretrained(tmp_path / "large", max_shard_size="100GB")
    small = written(tmp_path / "small", "gpt-oss")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "large"), "packed", str(small)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    weights = COUNT * 3 * HIDDEN * INNER
    packed = weights * (4 + 16 / 64) / 8 / 2**20
    # They are there twice when they are stacked. All are 192 MiB in the file, one tensor 128.
    assert float(run.stdout) < 2 * packed + LOOK / 2**20 + 48
