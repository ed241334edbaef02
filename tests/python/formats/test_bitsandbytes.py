"""bitsandbytes in 4 bits: our codes against those of the package, and files that it made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mixed_gemm
from mixed_gemm.formats import CheckpointError, open_checkpoint, save_checkpoint
from mixed_gemm.quantization import DenseCheckpoint
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
    tensors = load_file(tmp_path / "m.safetensors")
    tensors["a.weight.quant_map"] = tensors["a.weight.quant_map"] * 2
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match="must be the book of nf4"):
        open_checkpoint(tmp_path).layer("a")


@pytest.mark.parametrize("text", (b"{", b"[]", b'{"shape": [4], "blocksize": 64}'))
def test_a_state_that_says_nothing_is_refused(tmp_path, text):
    file_of(tmp_path, weight())
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


# --- written -------------------------------------------------------------------------------------


def written(folder: Path) -> tuple[dict[str, torch.Tensor], dict]:
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    return load_file(folder / "model.safetensors"), config


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    same = a.dtype == b.dtype and a.shape == b.shape
    return same and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("dtype", (*HALVES, torch.float32))
@pytest.mark.parametrize("blocks", (64, 128))
@pytest.mark.parametrize("book", BOOKS)
def test_a_model_is_written_as_the_package_writes_it(tmp_path, book, blocks, dtype):
    w = weight(dtype=dtype)
    dense = torch.nn.Linear(*reversed(w.shape), bias=False, dtype=dtype)
    dense.weight.data = w
    scheme = Scheme.of_file(book, blocks)
    model = torch.nn.ModuleDict({"a": mixed_gemm.Linear.from_float(dense, scheme)})
    save_checkpoint(model, tmp_path / "out")
    tensors, config = written(tmp_path / "out")
    packed, state = bnb.functional.quantize_4bit(w, blocksize=blocks, quant_type=book)
    theirs = {"a.weight": packed, **{f"a.weight.{k}": v for k, v in state.as_dict(True).items()}}
    assert set(tensors) == set(theirs)
    for name in {*theirs} - ({"a.weight"} if book == "fp4" else set()):  # which has two codes of 0
        assert same_bits(tensors[name], theirs[name]), name
    assert config["quant_method"] == "bitsandbytes" and config["bnb_4bit_quant_type"] == book
    assert not (tmp_path / "out" / "README.md").exists()
    parts = {k.removeprefix("a.weight."): v for k, v in tensors.items() if k != "a.weight"}
    read = bnb.functional.QuantState.from_dict(parts, device=torch.device("cpu"))
    found = bnb.functional.dequantize_4bit(tensors["a.weight"], read)
    assert torch.equal(found, model["a"].dequantize(torch.float32).to(dtype))


@pytest.mark.parametrize("nested", (False, True))
@pytest.mark.parametrize("blocks", (32, 64, 128))
@pytest.mark.parametrize("book", BOOKS)
def test_a_file_of_theirs_comes_back_to_the_bit(tmp_path, book, blocks, nested):
    """But for nested scales, which are written as the float32 numbers that they stand for."""
    file_of(tmp_path, weight(), book, blocks, nested)
    source = open_checkpoint(tmp_path)
    save_checkpoint(source, tmp_path / "out")
    given, (found, config) = load_file(tmp_path / "m.safetensors"), written(tmp_path / "out")
    kept = {"a.weight", "a.weight.quant_map", "a.bias"}
    for name in kept if nested else given:
        assert same_bits(given[name], found[name]), name
    absmax = source.layer("a").scales.t().flatten()
    assert same_bits(found["a.weight.absmax"], absmax.contiguous())
    assert config["bnb_4bit_use_double_quant"] is False
    again = open_checkpoint(tmp_path / "out")
    assert again.layers["a"].scheme == source.layers["a"].scheme
    assert torch.equal(again.layer("a").dequantize(), source.layer("a").dequantize())
    assert json.loads(bytes(found[STATE + book].tolist()))["dtype"] == "bfloat16"


def test_a_scale_of_several_rows_is_written_for_each(tmp_path):
    """The package's kernel for CPUs has the scale of another block where one is of several rows."""
    dense = file_of(tmp_path, weight(8, 64), blocks=128)
    save_checkpoint(open_checkpoint(tmp_path), tmp_path / "out")
    found, _ = written(tmp_path / "out")
    assert found["a.weight.absmax"].shape == (8,)
    parts = {k.removeprefix("a.weight."): v for k, v in found.items() if "weight." in k}
    state = bnb.functional.QuantState.from_dict(parts, device=torch.device("cpu"))
    assert torch.equal(bnb.functional.dequantize_4bit(found["a.weight"], state), dense.bfloat16())


def layer(book: str = "nf4", n: int = 64, k: int = 256, group_size: int = 64, **more):
    """A module of one quantized weight."""
    found = BookWeight.from_float(weight(n, k), Scheme.of_file(book, group_size)).unpacked()
    return found.with_fields(**more).to_module(torch.bfloat16)


MODELS = {
    "blocks that it does not make": {"a": lambda: layer(group_size=48, k=96)},
    "a short last block": {"a": lambda: layer(k=96)},
    "a scale for a row of a length that is no block": {"a": lambda: layer(k=96, group_size=-1)},
    "smoothed": {"a": lambda: layer(pre_scale=torch.ones(256))},
    "permuted": {"a": lambda: layer(permutation=torch.arange(256).flip(0))},
    "a Conv1D": {"a": lambda: layer(module="conv1d")},
    "two books": {"a": layer, "b": lambda: layer("fp4")},
    "integers beside": {
        "a": layer, "b": lambda: mixed_gemm.Linear.from_float(torch.nn.Linear(128, 64), "w4a16")
    },
    "a dense name that ends one": {"aa": layer, "a": lambda: torch.nn.Linear(4, 4)},
    "a dense name whose dot is any letter": {
        "bxa": layer, "b": lambda: torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4)})
    },
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_what_a_file_of_theirs_has_no_place_for_is_our_own(tmp_path, case):
    model = torch.nn.ModuleDict({name: make() for name, make in MODELS[case].items()})
    save_checkpoint(model, tmp_path / "own")
    _, config = written(tmp_path / "own")
    assert config["quant_method"] == "compressed-tensors"
    assert "mixed-gemm-packed" in json.dumps(config)
    read = open_checkpoint(tmp_path / "own")
    for name in read.layers:
        kept = read.layer(name).to_module(model[name].weight.dtype).weight
        assert torch.equal(kept.dequantize(), model[name].weight.dequantize())


class Smoothing:
    """A method of a user, whose weights have what no outline can foretell."""

    def prepare(self, *given):
        pass

    def weight(self, name, target):
        k = target.layer.weight.shape[1]
        found = BookWeight.from_float(target.layer.weight, target.scheme).unpacked(name)
        return found.with_fields(pre_scale=torch.full((k,), 2.0)).to_module(torch.float32).weight

    def note(self, name):
        return ""


def test_what_a_method_of_others_makes_is_kept(tmp_path):
    save_file({"a.weight": weight(64, 128, torch.float32)}, tmp_path / "m.safetensors")
    source = DenseCheckpoint(tmp_path / "m.safetensors", "nf4", method=Smoothing())
    save_checkpoint(source, tmp_path / "out")
    found = open_checkpoint(tmp_path / "out").layer("a").pre_scale
    assert torch.equal(found, torch.full((128,), 2.0))


def test_a_dense_folder_is_quantized_to_it(tmp_path):
    """By the command, one layer at a time."""
    from support import tiny_llama
    from typer.testing import CliRunner

    from mixed_gemm.cli.app import app

    folder, out = tiny_llama.write_dense(tmp_path / "dense"), tmp_path / "out"
    run = CliRunner().invoke(app, ["quantize", str(folder), str(out), "--scheme", "nf4"])
    assert run.exit_code == 0, run.output
    tensors, config = written(out)
    assert config["quant_method"] == "bitsandbytes"
    assert config["llm_int8_skip_modules"] == ["lm_head", "model.embed_tokens"]
    name = "model.layers.0.mlp.down_proj"
    dense = load_file(folder / "model.safetensors")[f"{name}.weight"]
    packed, state = bnb.functional.quantize_4bit(dense, blocksize=64, quant_type="nf4")
    assert same_bits(tensors[f"{name}.weight"], packed)
    assert same_bits(tensors[f"{name}.weight.absmax"], state.absmax)
