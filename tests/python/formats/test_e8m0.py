"""float8 files whose scales are powers of two in one byte (e8m0): the same numbers as in float32,
read exactly, and as transformers' own reader has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support import float8_files, tiny_llama
from torch import Tensor

import mixed_gemm
from mixed_gemm import CheckpointError, open_checkpoint, save_checkpoint
from mixed_gemm.formats.e8m0 import powers

E8M0 = torch.float8_e8m0fnu
ROLE = "weight_scale_inv"
FIRST = next(iter(tiny_llama.LINEARS))
pytestmark = pytest.mark.filterwarnings("ignore::mixed_gemm.CheckpointWarning")


def powers_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name of a linear -> scales as bytes of e8m0, those of a file but for their fractions."""
    names = [name for name in tensors if name.endswith(ROLE)]
    return {x.removesuffix(f".{ROLE}"): tensors[x].to(E8M0).view(torch.uint8) for x in names}


FORMS = {
    "float32": lambda x: x.view(E8M0).float(),
    "float8_e8m0fnu": lambda x: x.view(E8M0),
    "uint8": lambda x: x,
}


def write(folder: Path, form: str, layout: str = "deepseek", **keys: Any) -> Path:
    """A folder of DeepSeek's whose scales are powers of two, in one of ``FORMS``."""
    float8_files.write(layout, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, scales in powers_of(tensors).items():
        tensors[f"{name}.{ROLE}"] = FORMS[form](scales).contiguous()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= {"scale_fmt": "ue8m0", **keys}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_byte_is_the_power_of_two_that_torch_says() -> None:
    every = torch.arange(255, dtype=torch.uint8)
    exact = torch.ldexp(torch.ones(255, dtype=torch.float64), every.double() - 127)
    assert torch.equal(powers(every).double(), exact)
    assert torch.equal(powers(every.view(E8M0)), every.view(E8M0).float())


@pytest.mark.parametrize("layout", ("deepseek", "deepseek, one block", "deepseek, ragged"))
def test_every_form_is_the_same_weight_exactly(tmp_path: Path, layout: str) -> None:
    read = {x: open_checkpoint(write(tmp_path / x, x, layout)) for x in FORMS}
    found = load_file(tmp_path / "uint8" / "model.safetensors")
    assert {x.dtype for name, x in found.items() if name.endswith(ROLE)} == {torch.uint8}
    for name, grid in float8_files.grids(layout).items():
        exact = grid.values.double() * grid.scales().to(E8M0).double()
        for form, checkpoint in read.items():
            weight = checkpoint.layer(name)
            assert torch.equal(weight.dequantize().double(), exact), form
            assert weight.scheme == read["float32"].layer(name).scheme
            assert torch.equal(weight.to_linear(torch.bfloat16).dequantize(torch.float64), exact)
    for checkpoint in read.values():
        assert any("scales of activations that are powers of two" in x for x in checkpoint.notes)


@pytest.mark.parametrize("form", ("float8_e8m0fnu", "uint8"))
def test_transformers_reads_the_same(tmp_path: Path, form: str) -> None:
    pytest.importorskip("accelerate", reason="transformers reads fp8 with it")
    folder = write(tmp_path / "m", form)
    config = transformers.FineGrainedFP8Config(
        weight_block_size=[32, 64], scale_fmt="ue8m0", dequantize=True
    )
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=config
    )
    ours = mixed_gemm.from_pretrained(folder, dtype=torch.float32, weight_only=True)
    for name in tiny_llama.LINEARS:
        assert torch.equal(theirs.get_submodule(name).weight, ours.get_submodule(name).dequantize())
    tokens = torch.tensor([[1, 5, 7, 9]])
    torch.testing.assert_close(ours(tokens).logits, theirs(tokens).logits)


def test_saving_writes_the_same_numbers_in_float32(tmp_path: Path) -> None:
    """compressed-tensors has float scales for float8 weights, and no others."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    checkpoint = open_checkpoint(write(tmp_path / "m", "float8_e8m0fnu"))
    save_checkpoint(checkpoint, tmp_path / "out")
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    (group,) = config["config_groups"].values()
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    for name in checkpoint.layers:
        mine = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(name)}
        assert mine["weight_scale"].dtype == torch.float32
        found = compressor.decompress(mine, QuantizationScheme(**group))["weight"]
        assert torch.equal(found, checkpoint.layer(name).dequantize()), name


def replaced(folder: Path, scale: Tensor) -> Path:
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{FIRST}.{ROLE}"] = scale
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_scale_that_is_nan_is_refused(tmp_path: Path) -> None:
    shape = (2, 1)
    nan = torch.full(shape, 255, dtype=torch.uint8).view(E8M0)
    folder = replaced(write(tmp_path / "m", "float8_e8m0fnu"), nan)
    text = rf"{FIRST}.{ROLE}: must be finite, got nan at \(0, 0\)"
    with pytest.raises(CheckpointError, match=text):
        open_checkpoint(folder).layer(FIRST)


def test_bytes_are_scales_only_where_the_file_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", "uint8", scale_fmt="float")
    text = rf"{ROLE}: must be float16 or .* or float8_e8m0fnu .*, got torch.uint8"
    with pytest.raises(CheckpointError, match=text):
        open_checkpoint(folder)


def test_integers_have_no_such_scales(tmp_path: Path) -> None:
    """A power of two is a scale of float8 weights alone: int8 ones are refused."""
    folder = write(tmp_path / "m", "float8_e8m0fnu")
    tensors = load_file(folder / "model.safetensors")
    name = f"{FIRST}.weight"
    tensors[name] = tensors[name].view(torch.int8)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"weight_scale_inv: must be float16 or bfloat16 or "):
        open_checkpoint(folder)
