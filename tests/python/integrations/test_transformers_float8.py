"""float8 files through transformers: loaded as they are, saved bit for bit, and read from there by
transformers and compressed-tensors without this library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support import float8_files, tiny_llama
from support.checkpoints import FLOATS
from support.float8_files import LAYOUTS
from support.generation import assert_equals_dense, dense_model, logits, quantized_layers

import mixed_gemm
from mixed_gemm import CheckpointWarning, open_checkpoint

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
NOTED = "ignore:.*float8 activations beside weights:mixed_gemm.CheckpointWarning"
pytestmark = pytest.mark.filterwarnings(NOTED)


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def load(folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    return mixed_gemm.from_pretrained(folder, dtype=dtype, **options)


def dense(layout: str) -> Any:
    """The model that the numbers in the file are, nothing rounded."""
    dtype = LAYOUTS[layout][4]
    weights = {
        name: grid.values.float() * grid.scales().to(dtype).float()
        for name, grid in float8_files.grids(layout).items()
    }
    return dense_model(weights, biases=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_are_kept_and_generate(tmp_path: Path, layout: str) -> None:
    folder = float8_files.write(layout, tmp_path / "m")
    model = load(folder)
    layers = quantized_layers(model)
    assert set(layers) == set(tiny_llama.LINEARS)
    kind = "fp8_weight_only" if layout == "ct tensor, weight only" else "fp8"
    assert {x.weight.kind for x in layers.values()} == {kind}
    for name, grid in float8_files.grids(layout).items():
        found = layers[name].weight.weight_fp8
        assert torch.equal(found.view(torch.uint8), grid.values.view(torch.uint8))
    weight_only = load(folder, weight_only=True)
    assert_equals_dense(weight_only, dense(layout))
    # Activations of float8 are 2.65 % off RMS, once a layer.
    rounded, exact = logits(model), logits(weight_only)
    assert (rounded - exact).norm() < 0.1 * exact.norm()
    assert torch.equal(rounded, exact) == (layout == "ct tensor, weight only")


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_save_pretrained_writes_the_same_bits(
    tmp_path: Path, layout: str, dtype: torch.dtype
) -> None:
    model = load(float8_files.write(layout, tmp_path / "m"), dtype)
    model.save_pretrained(tmp_path / "out")
    given, found = float8_files.tensors(layout), load_file(tmp_path / "out" / "model.safetensors")
    _, _, _, role, _, static = LAYOUTS[layout]
    for name in tiny_llama.LINEARS:
        for old, new in (("weight", "weight"), (role, "weight_scale"), (static, "input_scale")):
            if old:
                a, b = given[f"{name}.{old}"], found[f"{name}.{new}"]
                assert a.dtype == b.dtype
                assert torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=dtype)
    assert torch.equal(logits(again), logits(model))
    for name, layer in quantized_layers(again).items():
        assert layer.scheme == quantized_layers(model)[name].scheme
    saved, source = open_checkpoint(tmp_path / "out"), open_checkpoint(tmp_path / "m")
    for name in tiny_llama.LINEARS:
        assert saved.layer(name).scheme == source.layer(name).scheme


WITHOUT_US = """
import json
import sys
import warnings

import torch
import transformers

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
tokens = torch.tensor(json.loads(sys.argv[1]))
for folder in sys.argv[2:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        found = {"logits": model(tokens).logits}
    linears = {n: x for n, x in model.named_modules() if isinstance(x, torch.nn.Linear)}
    found["weights"] = {n: x.weight.detach() for n, x in linears.items()}
    torch.save(found, f"{folder}/found.pt")
assert not [name for name in sys.modules if name.startswith("mixed_gemm")]
"""


def test_transformers_alone_reads_what_is_saved(tmp_path: Path) -> None:
    """By compressed-tensors, whose weights are ours to the bit and which rounds activations as we
    do; in groups that divide K only."""
    pytest.importorskip("compressed_tensors", reason="what transformers reads such files with")
    from support.generation import PROMPT

    models = {}
    for layout in sorted({*LAYOUTS} - {"deepseek, one block", "deepseek, ragged"}):
        model = load(float8_files.write(layout, tmp_path / "m" / layout.replace(" ", "_")))
        folder = tmp_path / layout.replace(" ", "_")
        model.save_pretrained(folder)
        models[str(folder)] = (layout, model)
    ours = ("MIXED_GEMM_LIBRARY", "PYTHONPATH")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_US, json.dumps(PROMPT.tolist()), *models],
        env={k: v for k, v in os.environ.items() if k not in ours},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for folder, (layout, model) in models.items():
        found = torch.load(Path(folder) / "found.pt")
        for name, layer in quantized_layers(model).items():
            assert torch.equal(found["weights"][name], layer.dequantize()), (layout, name)
        torch.testing.assert_close(found["logits"], logits(model), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layout", ("deepseek", "transformers, static"))
def test_transformers_reads_the_same_from_its_own_layout(tmp_path: Path, layout: str) -> None:
    """Its quantizer for fp8, which makes the model dense on a CPU, finds the weights that we do."""
    pytest.importorskip("accelerate", reason="transformers reads fp8 with it")
    folder = float8_files.write(layout, tmp_path / "m")
    config = transformers.FineGrainedFP8Config(
        weight_block_size=LAYOUTS[layout][2], dequantize=True
    )
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=config
    )
    for name, layer in quantized_layers(load(folder)).items():
        found = theirs.get_submodule(name).weight.detach()
        assert torch.equal(found, layer.dequantize(found.dtype)), name


def test_enable_transformers_takes_float8_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.quantizers import auto

    table = auto.AUTO_QUANTIZATION_CONFIG_MAPPING
    monkeypatch.setattr(auto, "AUTO_QUANTIZATION_CONFIG_MAPPING", dict(table))
    mixed_gemm.enable_transformers("fp8")
    folder = float8_files.write("deepseek", tmp_path / "m")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert {x.weight.kind for x in quantized_layers(model).values()} == {"fp8"}
    exact = dense("deepseek")
    for name, layer in quantized_layers(model).items():
        assert torch.equal(layer.dequantize(), exact.get_submodule(name).weight), name
    assert 0 < (logits(model) - logits(exact)).norm() < 0.1 * logits(exact).norm()


@pytest.mark.parametrize("folder", FLOATS)
def test_int8_in_place_of_float8_is_asked_for_and_said(repository: Path, folder: str) -> None:
    path = repository / "tests" / "data" / folder
    with pytest.warns(
        CheckpointWarning, match="7 layers are float8_e4m3fn and are rounded to int8"
    ):
        model = load(path, float8="int8")
    weights = {w.name: w.requantize().dequantize() for w in open_checkpoint(path)}
    assert_equals_dense(model, dense_model(weights, biases=True))
    assert {x.weight.kind for x in quantized_layers(model).values()} == {"integer"}


def test_another_answer_is_refused(tmp_path: Path) -> None:
    folder = float8_files.write("deepseek", tmp_path / "m")
    expected = r"float8 must be one of \('keep', 'int8'\), got 'dense'"
    with pytest.raises(ValueError, match=f"from_pretrained: {expected}"):
        load(folder, float8="dense")
    with pytest.raises(ValueError, match=f"MixedGemmConfig: {expected}"):
        mixed_gemm.MixedGemmConfig(float8="dense")


@pytest.mark.parametrize(
    ("scheme", "text"), (("fp8", "per channel"), ("fp8_block", "blocks of 128 x 128"))
)
def test_a_dense_model_becomes_float8_as_it_loads(tmp_path: Path, scheme: str, text: str) -> None:
    folder = tiny_llama.write_dense(tmp_path / "dense")
    model = load(folder, quantization_config=mixed_gemm.MixedGemmConfig(scheme))
    assert {str(x.scheme) for x in quantized_layers(model).values()} == {
        f"float8, {text}, symmetric; float8 activations, dynamic"
    }
    model.save_pretrained(tmp_path / "out")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits(again), logits(model))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    quantized = mixed_gemm.quantize_(plain, scheme, progress=False)
    assert len(quantized.layers) >= 7 and torch.equal(logits(plain), logits(model))
    plain.save_pretrained(tmp_path / "by quantize_")
    assert torch.equal(logits(load(tmp_path / "by quantize_")), logits(model))
