"""bitsandbytes folders that are written here, read by stock transformers with bitsandbytes in a
process without this library, and by transformers once it is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from support import tiny_llama
from transformers.quantizers.quantizers_utils import should_convert_module

import mixed_gemm
from mixed_gemm.formats.bnb_encode import are_told_apart

pytest.importorskip("bitsandbytes", reason="the oracle: pip install bitsandbytes")
pytest.importorskip("accelerate", reason="transformers reads bitsandbytes with it")

TOKENS = [[1, 5, 7, 9]]
WITHOUT_US = """
import json
import sys
import warnings

import bitsandbytes
import torch
import transformers

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
tokens = torch.tensor(json.loads(sys.argv[1]))
for folder in sys.argv[2:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    linears = {n: x for n, x in model.named_modules() if isinstance(x, bitsandbytes.nn.Linear4bit)}
    found = {
        n: bitsandbytes.functional.dequantize_4bit(x.weight, x.weight.quant_state)
        for n, x in linears.items()
    }
    with torch.no_grad():
        torch.save({"weights": found, "logits": model(tokens).logits}, f"{folder}/found.pt")
assert not [name for name in sys.modules if name.startswith("mixed_gemm")]
"""


def saved(folder: Path, book: str, dtype: torch.dtype, way: str, whole: bool) -> Any:
    """A model of random weights that is quantized and saved; returned.

    Args:
        whole: whether its head is quantized, too, and linears of its attention have a bias.
    """
    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "attention_bias": whole})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter)
    skip = {"skip": ()} if whole else {}
    mixed_gemm.quantize_(model, book, progress=False, **skip)
    if way == "save_pretrained":
        model.save_pretrained(folder)
    else:
        mixed_gemm.save_checkpoint(model, folder)
    return model


def layers(model: Any) -> dict[str, mixed_gemm.Linear]:
    return {n: x for n, x in model.named_modules() if isinstance(x, mixed_gemm.Linear)}


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor(TOKENS)).logits
    return found


CASES: dict[str, tuple[str, torch.dtype, str, bool]] = {
    "nf4, bfloat16": ("nf4", torch.bfloat16, "save_pretrained", False),
    "fp4, float32": ("fp4", torch.float32, "save_pretrained", False),
    "head and biases": ("nf4", torch.float32, "save_pretrained", True),
    "nf4, float32, save_checkpoint": ("nf4", torch.float32, "save_checkpoint", False),
    "fp4, float16, save_checkpoint": ("fp4", torch.float16, "save_checkpoint", False),
    "head and biases, save_checkpoint": ("fp4", torch.bfloat16, "save_checkpoint", True),
}


def test_stock_transformers_reads_equal_weights(tmp_path: Path) -> None:
    """The weights have the same bits. Logits agree as bfloat16 does, to which bitsandbytes rounds
    in products on CPUs, of float32 models too."""
    models = {
        str(tmp_path / str(i)): (case, saved(tmp_path / str(i), *CASES[case]))
        for i, case in enumerate(CASES)
    }
    ours = ("MIXED_GEMM_LIBRARY", "PYTHONPATH")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_US, json.dumps(TOKENS), *models],
        env={k: v for k, v in os.environ.items() if k not in ours},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for folder, (case, model) in models.items():
        found = torch.load(Path(folder) / "found.pt")
        expected = {*tiny_llama.LINEARS, *(("lm_head",) if CASES[case][-1] else ())}
        assert set(found["weights"]) == set(layers(model)) == expected
        for name, layer in layers(model).items():
            wanted = layer.dequantize(torch.float32).to(layer.weight.dtype)
            assert torch.equal(found["weights"][name], wanted), (case, name)
        wanted = logits(model).float()
        error = (found["logits"].float() - wanted).norm() / wanted.norm()
        assert error <= torch.finfo(torch.bfloat16).eps, case


@pytest.mark.parametrize("case", CASES)
def test_we_read_it_as_it_was(case: str, tmp_path: Path) -> None:
    """Also where AutoModel does, once this library is imported."""
    book = CASES[case][0]
    model = saved(tmp_path / "m", *CASES[case])
    auto = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    for found in (mixed_gemm.from_pretrained(tmp_path / "m", dtype="auto"), auto):
        assert layers(found).keys() == layers(model).keys()
        for name, layer in layers(found).items():
            assert layer.scheme.weight_type == book
            assert torch.equal(layer.dequantize(), model.get_submodule(name).dequantize())
        assert torch.equal(logits(found), logits(model))


def test_what_bitsandbytes_quantized_is_saved_again(tmp_path: Path) -> None:
    """A folder of stock transformers: its codes stay; its absmax does in float32, and in bfloat16
    is rounded once, by 2^-9 of it at most."""
    dense = tiny_llama.write_dense(tmp_path / "dense")
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        dense, quantization_config=config, dtype=torch.bfloat16
    )
    theirs.save_pretrained(tmp_path / "theirs")
    given = load_file(tmp_path / "theirs" / "model.safetensors")
    for dtype, bound in ((torch.float32, 0.0), (torch.bfloat16, 2.0**-9)):
        model = mixed_gemm.from_pretrained(tmp_path / "theirs", dtype=dtype)
        out = tmp_path / str(dtype)
        model.save_pretrained(out)
        found = load_file(out / "model.safetensors")
        assert set(found) == set(given)
        for name in tiny_llama.LINEARS:
            assert torch.equal(found[f"{name}.weight"], given[f"{name}.weight"])
            a, b = (x[f"{name}.weight.absmax"] for x in (found, given))
            assert a.dtype == b.dtype == torch.float32
            assert ((a - b).abs() <= bound * b).all()
    mixed_gemm.save_checkpoint(mixed_gemm.open_checkpoint(tmp_path / "theirs"), tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    for name in given:
        assert torch.equal(again[name].view(torch.uint8), given[name].view(torch.uint8)), name


def test_codes_that_lie_in_another_dtype_are_loaded_as_they_are(tmp_path: Path) -> None:
    """bnb_4bit_quant_storage, which FSDP wants to be the dtype of the model."""
    dense = tiny_llama.write_dense(tmp_path / "dense")
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_quant_storage="bfloat16",
        bnb_4bit_use_double_quant=True,
    )  # fmt: skip
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        dense, quantization_config=config, dtype=torch.bfloat16
    )
    theirs.save_pretrained(tmp_path / "theirs")
    checkpoint = mixed_gemm.open_checkpoint(tmp_path / "theirs")
    model = mixed_gemm.from_pretrained(tmp_path / "theirs", dtype=torch.float32)
    for name in tiny_llama.LINEARS:
        wanted = checkpoint.layer(name).dequantize()
        assert torch.equal(model.get_submodule(name).dequantize(), wanted)


@pytest.mark.parametrize("dense", ("fc1", "a.fc1", "a", "a.b", "b", "a.bb", "lm_head"))
@pytest.mark.parametrize("layer", ("a.fc1", "a.b.fc1", "a.b", "a_b", "axb.fc1", "a.bb", "xlm_head"))
def test_names_are_told_apart_as_transformers_does(layer: str, dense: str) -> None:
    converts: bool = should_convert_module(layer, [dense])
    assert are_told_apart([layer], [dense]) == converts


def test_layers_are_left_on_disk(tmp_path: Path) -> None:
    """The parameters that accelerate offloads have names without the dots of the files."""
    model = saved(tmp_path / "m", *CASES["head and biases"])
    parts = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu"}
    places = {**parts, "lm_head": "disk", "model.layers": "disk"}
    found = mixed_gemm.from_pretrained(
        tmp_path / "m", dtype="auto", device_map=places, offload_folder=str(tmp_path / "disk")
    )
    assert all(layer.weight.is_meta for layer in layers(found).values())
    assert torch.equal(logits(found), logits(model))
