"""bitsandbytes in 4 bits: our codes against those of the package, and files that it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import mixed_gemm
from mixed_gemm.formats import CheckpointError, open_checkpoint, save_checkpoint
from mixed_gemm.weights.books import BookWeight
from mixed_gemm.weights.codes import values_of
from mixed_gemm.weights.scheme import SCHEMES, Scheme

bnb = pytest.importorskip("bitsandbytes", reason="the oracle: pip install bitsandbytes")

BOOKS = ("nf4", "fp4")
HALVES = (torch.float16, torch.bfloat16)
STATE = "a.weight.quant_state.bitsandbytes__"
# Roundings of a scale and of a product with it: 2^-11 and 2^-8 each.
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
CONFIG = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "load_in_8bit": False,
    "bnb_4bit_quant_storage": "uint8",
    "bnb_4bit_compute_dtype": "bfloat16",
    "llm_int8_threshold": 6.0,
    "llm_int8_skip_modules": None,
}


def weight(n: int = 96, k: int = 256, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return (torch.randn(n, k) * 0.02).to(dtype)


def file_of(
    folder: Path, w: torch.Tensor, book: str = "nf4", blocks: int = 64, nested: bool = False
) -> torch.Tensor:
    """Writes what transformers writes for one layer; returns the dense weight, float32: as the
    package makes it, or by its definition, where the package's kernel for CPUs has the scale of
    another block (0.50.2, blocks of more than a row)."""
    packed, state = bnb.functional.quantize_4bit(
        w, blocksize=blocks, quant_type=book, compress_statistics=nested
    )
    parts = {f"a.weight.{name}": x for name, x in state.as_dict(packed=True).items()}
    save_file({"a.weight": packed, **parts, "a.bias": w[:, 0].clone()}, folder / "m.safetensors")
    config = {**CONFIG, "bnb_4bit_quant_type": book, "bnb_4bit_use_double_quant": nested}
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    if blocks > w.shape[1]:
        pairs = packed.flatten()
        codes = torch.stack([pairs >> 4, pairs & 15], 1).view(-1, blocks)
        return (state.code[codes.int()] * state.absmax[:, None]).view(w.shape)
    dense: torch.Tensor = bnb.functional.dequantize_4bit(packed, state).float()
    return dense


@pytest.mark.parametrize("dtype", (*HALVES, torch.float32))
@pytest.mark.parametrize("blocks", (64, 128))
@pytest.mark.parametrize("book", BOOKS)
def test_codes_and_scales_are_those_of_the_package(book, blocks, dtype):
    w = weight(dtype=dtype)
    w[3], w[5, :7] = 0, 0
    packed, state = bnb.functional.quantize_4bit(w, blocksize=blocks, quant_type=book)
    pairs = packed.flatten()
    theirs = torch.stack([pairs >> 4, pairs & 15], 1).view(w.shape).to(torch.int8)
    ours = BookWeight.from_float(w, Scheme.of_file(book, blocks))
    if book == "nf4":
        assert torch.equal(ours._codes(), theirs)
    # FP4 has two codes of 0.
    assert torch.equal(values_of(ours._codes(), book), values_of(theirs, book))
    assert torch.equal(ours.scales.t(), state.absmax.view(w.shape[0], -1).to(dtype))


@pytest.mark.parametrize("nested", (False, True))
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("book", BOOKS)
def test_a_file_reads_as_the_package_reads_it(tmp_path, book, dtype, nested):
    w = weight(dtype=dtype)
    dense = file_of(tmp_path, w, book, nested=nested)
    checkpoint = open_checkpoint(tmp_path)
    info = checkpoint.layers["a"]
    assert info.scheme == SCHEMES[book] and info.shape == tuple(w.shape)
    layer = checkpoint.layer("a").to_linear(dtype)
    assert torch.equal(layer.bias, w[:, 0])
    read = layer.weight.dequantize(torch.float32)
    # What dequantize_4bit rounds to the dtype of the weight, and one rounding of absmax.
    bound = 2 * ROUNDING[dtype] * dense.abs()
    assert ((read - dense).abs() <= bound + 2.0**-24).all()
    x = torch.randn(5, w.shape[1]).to(dtype)
    expected = x.double() @ read.double().t() + w[:, 0].double()
    error = (layer(x).double() - expected).abs()
    assert (error <= ROUNDING[dtype] * expected.abs() + 1e-5 * x.abs().sum().double()).all()


def test_a_block_of_several_rows_is_a_scale_for_each(tmp_path):
    dense = file_of(tmp_path, weight(8, 64), blocks=128)
    layer = open_checkpoint(tmp_path).layer("a").to_linear(torch.float32)
    assert layer.scheme.group_size == -1
    bound = 2.0**-8 * dense.abs() + 2.0**-24
    assert ((layer.weight.dequantize() - dense).abs() <= bound).all()


def test_blocks_that_run_over_rows_are_refused(tmp_path):
    file_of(tmp_path, weight(8, 96))
    with pytest.raises(CheckpointError, match="blocks of 64 run over rows of 96 elements"):
        open_checkpoint(tmp_path)


def test_a_book_of_other_numbers_is_refused(tmp_path):
    file_of(tmp_path, weight())
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "m.safetensors")
    tensors["a.weight.quant_map"] = tensors["a.weight.quant_map"] * 2
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match="must be the book of nf4"):
        open_checkpoint(tmp_path).layer("a")


@pytest.mark.parametrize("text", (b"{", b"[]", b'{"shape": [4], "blocksize": 64}'))
def test_a_state_that_says_nothing_is_refused(tmp_path, text):
    file_of(tmp_path, weight())
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "m.safetensors")
    tensors[STATE + "nf4"] = torch.tensor(list(text), dtype=torch.uint8)
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match="must be"):
        open_checkpoint(tmp_path)


def test_weights_of_llm_int8_are_refused(tmp_path):
    file_of(tmp_path, weight())
    config = {"quantization_config": {**CONFIG, "load_in_4bit": False, "load_in_8bit": True}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="load_in_4bit must be true"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("book", BOOKS)
def test_a_model_keeps_its_codes_in_our_own_file(tmp_path, book):
    model = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.Linear(128, 70)).bfloat16()
    mixed_gemm.quantize_(model, book, progress=False)
    save_checkpoint(model, tmp_path / "own")
    read = open_checkpoint(tmp_path / "own")
    for name in ("0", "1"):
        kept = read.layer(name).to_linear(torch.bfloat16).weight
        assert torch.equal(kept.dequantize(), model[int(name)].weight.dequantize())
