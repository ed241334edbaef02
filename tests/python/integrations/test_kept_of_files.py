"""What files say of keys, values and activations that nothing here computes by: it is in what is
saved, whether a checkpoint or a model was, or a warning names it."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig
from safetensors.torch import load_file, save_file
from support import tiny_llama
from torch import Tensor

import mixed_gemm
from mixed_gemm import CheckpointWarning
from mixed_gemm.parallel import load_parallel

DATA = Path(__file__).resolve().parents[2] / "data"
ATTENTION = "model.layers.0.self_attn"
SCHEME = {
    "num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False,
}  # fmt: skip
SCALES = {  # as llm-compressor has named them, newer and older
    f"{ATTENTION}.k_scale": torch.tensor([0.5], dtype=torch.bfloat16),
    f"{ATTENTION}.v_scale": torch.tensor([0.25], dtype=torch.bfloat16),
    f"{ATTENTION}.k_proj.output_scale": torch.tensor([2.0]),
}


def from_checkpoint(folder: Path, out: Path) -> None:
    mixed_gemm.save_checkpoint(mixed_gemm.open_checkpoint(folder), out)


def from_model(folder: Path, out: Path) -> None:
    mixed_gemm.save_checkpoint(load(folder), out)


def from_pretrained(folder: Path, out: Path) -> None:
    load(folder).save_pretrained(out)


def load(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        model, info = mixed_gemm.from_pretrained(folder, output_loading_info=True)
    assert not info["unexpected_keys"]
    return model


WAYS = (from_checkpoint, from_model, from_pretrained)


def compressed(out: Path, scheme: dict[str, Any] | None = SCHEME) -> Path:
    """A folder of compressed-tensors with a static kv_cache_scheme and its scales."""
    shutil.copytree(DATA / "ct_pack_8bit_channel", out)
    tensors = {**load_file(out / "model.safetensors"), **SCALES}
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    config = json.loads((out / "config.json").read_text())
    config["quantization_config"]["kv_cache_scheme"] = scheme
    (out / "config.json").write_text(json.dumps(config))
    return out


def written(out: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    tensors: dict[str, Tensor] = load_file(out / "model.safetensors")
    return config, tensors


@pytest.mark.parametrize("save", WAYS)
def test_static_scales_of_keys_and_values_are_saved_again(
    tmp_path: Path, save: Callable[[Path, Path], None]
) -> None:
    folder = compressed(tmp_path / "source")
    for i in range(2):  # again from what was saved
        out = tmp_path / str(i)
        save(folder, out)
        config, tensors = written(out)
        assert QuantizationConfig(**config).kv_cache_scheme == QuantizationArgs(**SCHEME)
        for name, scale in SCALES.items():
            assert tensors[name].dtype == scale.dtype and torch.equal(tensors[name], scale)
        folder = out


@pytest.mark.parametrize("save", WAYS)
def test_scales_without_a_scheme_are_kept(
    tmp_path: Path, save: Callable[[Path, Path], None]
) -> None:
    save(compressed(tmp_path / "source", None), tmp_path / "out")
    config, tensors = written(tmp_path / "out")
    assert config["kv_cache_scheme"] is None and set(SCALES) <= set(tensors)


@pytest.mark.parametrize("save", WAYS)
@pytest.mark.parametrize("older", (False, True))
def test_float8_keys_and_values_of_modelopt_are_those_of_compressed_tensors(
    tmp_path: Path, save: Callable[[Path, Path], None], older: bool
) -> None:
    folder = shutil.copytree(DATA / "modelopt" / "fp8_kv_fp8", tmp_path / "source")
    if older:  # hf_quant_config.json says "FP8"
        config = json.loads((folder / "config.json").read_text())
        del config["quantization_config"]
        (folder / "config.json").write_text(json.dumps(config))
    save(folder, tmp_path / "out")
    config, tensors = written(tmp_path / "out")
    found = QuantizationConfig(**config).kv_cache_scheme
    assert found is not None and (found.num_bits, found.type, found.dynamic) == (8, "float", False)
    given = load_file(folder / "model.safetensors")
    for name in (f"{ATTENTION}.k_proj.k_scale", f"{ATTENTION}.v_proj.v_scale"):
        assert torch.equal(tensors[name], given[name])


@pytest.mark.parametrize("save", WAYS)
def test_what_compressed_tensors_has_no_words_for_is_named(
    tmp_path: Path, save: Callable[[Path, Path], None]
) -> None:
    folder = DATA / "modelopt" / "nvfp4_kv_nvfp4"
    with pytest.warns(CheckpointWarning) as caught:
        save(folder, tmp_path / "out")
    told = [str(x.message) for x in caught if "does not ask for it" in str(x.message)]
    assert len(told) == 2
    assert "asks for float4 activations too" in told[0]
    assert 'rounded keys and values (kv_cache_scheme: "NVFP4")' in told[1]
    config, tensors = written(tmp_path / "out")
    assert config["kv_cache_scheme"] is None
    assert f"{ATTENTION}.k_proj.k_scale" in tensors


def test_loading_tells_once_what_activations_are_served_as() -> None:
    with pytest.warns(CheckpointWarning) as caught:
        mixed_gemm.from_pretrained(DATA / "modelopt" / "nvfp4")
    told = [str(x.message) for x in caught if issubclass(x.category, CheckpointWarning)]
    (note,) = told
    assert "asks for float4 activations too; only its weights are used here" in note


@pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo"
)
def test_load_parallel_tells_it_too() -> None:
    """One process is a mesh of one."""
    folder = DATA / "modelopt" / "nvfp4"
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**tiny_llama.CONFIG))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = dist.init_device_mesh("cpu", (1,))
        with pytest.warns(CheckpointWarning, match="asks for float4 activations too"):
            load_parallel(model, folder, mesh, {}, torch.float32)
    finally:
        dist.destroy_process_group()
    wanted = mixed_gemm.open_checkpoint(folder).layer(f"{ATTENTION}.k_proj").dequantize()
    assert torch.equal(model.get_submodule(f"{ATTENTION}.k_proj").dequantize(), wanted)
