"""Folders that ModelOpt wrote (tests/data/make_modelopt.py): their weights by the definition in
float64, and beside what the converter and the reader of compressed-tensors make of them."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters import ModelOptNvfp4Converter
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import load_file, save_file
from support import tiny_llama
from torch import Tensor

import mixed_gemm
from mixed_gemm import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint
from mixed_gemm.formats.modelopt_config import ALGOS, MIXED
from mixed_gemm.weights import Side

DATA = Path(__file__).resolve().parents[2] / "data" / "modelopt"
FOLDERS = sorted(x.name for x in DATA.iterdir())
LAYERS = tuple(tiny_llama.LINEARS)
ATTENTION = tuple(x for x in LAYERS if "self_attn" in x)
DOWN = f"{tiny_llama.BLOCK}.mlp.down_proj"
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
STATIC = Side("float", strategy="tensor")
# folder -> (kind of the weights in the MLP, rows and columns that share a scale there, how layers
# round activations, what of the file is not done)
FOUND: dict[str, tuple[str, tuple[int, int], Side | None, tuple[str, ...]]] = {
    "fp8_kv_fp8": ("fp8", (0, 0), STATIC, ("rounded keys and values",)),
    "fp8_pb_wo": ("fp8", (128, 128), None, ()),
    "fp8_pc_pt": ("fp8", (1, 0), Side("float", strategy="token", dynamic=True), ()),
    "mixed": ("e2m1", (1, 16), None, ("float4 activations",)),
    "mxfp8": ("fp8", (1, 32), None, ("float8 activations",)),
    "nvfp4": ("e2m1", (1, 16), None, ("float4 activations",)),
    "nvfp4_kv_nvfp4": (
        *("e2m1", (1, 16), None),
        ("float4 activations", 'keys and values (kv_cache_scheme: "NVFP4")'),
    ),
    "nvfp4_mlp": ("e2m1", (1, 16), None, ("float4 activations",)),
    "w4a16_nvfp4": ("e2m1", (1, 16), None, ()),
    "w4a8_mxfp4": ("e2m1", (1, 32), None, ("float8 activations",)),
    "w4a8_nvfp4": ("e2m1", (1, 32), None, ("float8 activations",)),
}
# A product of a code and a scale in float32 is rounded once; of powers of two it is exact. A weight
# with a global scale has two more roundings: its inverse, and the inverse of that.
ROUNDINGS = {"float8_e4m3fn": 3.0001, "float32": 1.0, "uint8": 0.0}  # by the dtype of the scales


def numbers(tensors: dict[str, Tensor], name: str) -> Tensor:
    """The weight of a layer by the definition, float64 ``[N, K]``."""
    weight, scale = tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"]
    if weight.dtype == torch.uint8:  # the first of two codes in the low half
        codes = torch.stack((weight & 15, weight >> 4), -1).flatten(-2).long()
        values = torch.tensor([*E2M1, *(-x for x in E2M1)], dtype=torch.float64)[codes]
    else:
        values = weight.double()
    scales = torch.exp2(scale.double() - 127) if scale.dtype == torch.uint8 else scale.double()
    if scales.dim() == 4:
        scales = scales[:, 0, :, 0].repeat_interleave(128, 0)[: len(values)]
        scales = scales.repeat_interleave(128, 1)[:, : values.shape[1]]
    elif scales.dim() == 2:
        scales = scales.repeat_interleave(values.shape[1] // scales.shape[1], 1)
    elif scales.dim() == 1:
        scales = scales[:, None]
    whole = tensors.get(f"{name}.weight_scale_2")
    return values * scales * (1.0 if whole is None else whole.double())


def changed(folder: str, out: Path, change: Callable[[dict[str, Tensor], Any], Any]) -> Path:
    """A folder whose tensors and quantization_config went through ``change``."""
    shutil.copytree(DATA / folder, out)
    tensors = load_file(out / "model.safetensors")
    config = json.loads((out / "config.json").read_text())
    change(tensors, config["quantization_config"])
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    (out / "config.json").write_text(json.dumps(config))
    return out


def as_older(folder: str, out: Path) -> Path:
    """The folder with hf_quant_config.json alone, as releases before 0.29 wrote it."""
    shutil.copytree(DATA / folder, out)
    config = json.loads((out / "config.json").read_text())
    del config["quantization_config"]
    (out / "config.json").write_text(json.dumps(config))
    return out


def test_every_fixture_is_here() -> None:
    assert list(FOUND) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_layer_is_what_the_definition_says(folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every key that ModelOpt writes is known
        checkpoint = open_checkpoint(DATA / folder)
    tensors = load_file(DATA / folder / "model.safetensors")
    scaled = [x.removesuffix(".weight_scale") for x in tensors if x.endswith("weight_scale")]
    assert sorted(checkpoint.layers) == sorted(scaled) and checkpoint.format.startswith("ModelOpt ")
    for name, info in checkpoint.layers.items():
        exact, weight = numbers(tensors, name), checkpoint.layer(name)
        stored = str(tensors[f"{name}.weight_scale"].dtype).removeprefix("torch.")
        bound = ROUNDINGS[stored] * 2.0**-24 * exact.abs()
        assert info.shape == weight.shape == tuple(exact.shape)
        assert ((weight.dequantize().double() - exact).abs() <= bound).all()
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            kept = weight.to_linear(dtype).dequantize(torch.float32)
            assert ((kept.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_found_and_what_is_told(folder: str) -> None:
    kind, (rows, columns), side, told = FOUND[folder]
    checkpoint = open_checkpoint(DATA / folder)
    info = checkpoint.layers[DOWN]
    assert info.kind == kind and info.input_activations == side
    if info.block is not None:
        assert info.block == (rows, columns)
    else:
        assert info.group_size == (columns or -1)
        assert (info.strategy == "tensor") == (not rows)
    assert len(checkpoint.notes) == len(told)
    for note, words in zip(checkpoint.notes, told, strict=True):
        assert words in note
    if folder == "mixed":
        assert all(checkpoint.layers[x].input_activations == STATIC for x in ATTENTION)


@pytest.mark.parametrize("folder", FOLDERS)
def test_both_configurations_say_the_same(folder: str, tmp_path: Path) -> None:
    new, old = open_checkpoint(DATA / folder), open_checkpoint(as_older(folder, tmp_path / "m"))
    assert old.format == new.format and dict(old.layers) == dict(new.layers)
    assert len(old.notes) == len(new.notes)
    for name in new.layers:
        assert torch.equal(old.layer(name).q.view(torch.uint8), new.layer(name).q.view(torch.uint8))


@pytest.mark.parametrize("folder", [x for x in FOLDERS if "nvfp4" in x and "w4a8" not in x])
def test_nvfp4_is_the_file_that_compressed_tensors_converts_it_to(
    folder: str, tmp_path: Path
) -> None:
    """Its converter is NVFP4's alone, in groups of 16."""
    source = open_checkpoint(DATA / folder)
    converter = ModelOptNvfp4Converter(targets=[f"re:.*{x}$" for x in source.layers])
    converted = converter.process(load_file(DATA / folder / "model.safetensors"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        save_checkpoint(source, tmp_path / "ours")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    for name in source.layers:
        for role in ("weight_packed", "weight_scale", "weight_global_scale"):
            a, b = ours[f"{name}.{role}"], converted[f"{name}.{role}"].reshape(-1)
            assert a.dtype == b.dtype
            assert torch.equal(a.view(torch.uint8).flatten(), b.view(torch.uint8).flatten())


@pytest.mark.filterwarnings("ignore::mixed_gemm.CheckpointWarning")
@pytest.mark.parametrize("folder", [x for x in FOLDERS if x != "w4a8_nvfp4"])
def test_compressed_tensors_reads_what_is_saved(folder: str, tmp_path: Path) -> None:
    """All but groups of 32 with e4m3 scales, which are a format of this library's own."""
    source = open_checkpoint(DATA / folder)
    save_checkpoint(source, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    groups = config["config_groups"].values()
    for name in source.layers:
        mine = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(name)}
        group = next(x for x in groups if "Linear" in x["targets"] or name in x["targets"])
        found = BaseCompressor.get_value_from_registry(group["format"]).decompress(
            mine, QuantizationScheme(**group)
        )["weight"]
        exact = source.layer(name).dequantize()
        # Of 4-bit floats theirs is bfloat16, of scales that were rounded to it.
        bound = 2.0**-7 * exact.abs() if "weight_packed" in mine else 0 * exact
        assert ((found.float() - exact).abs() <= bound).all(), name
    again = open_checkpoint(tmp_path / "out")
    for name in source.layers:
        assert torch.equal(again.layer(name).dequantize(), source.layer(name).dequantize())


@pytest.mark.filterwarnings("ignore::mixed_gemm.CheckpointWarning")
@pytest.mark.parametrize("older", (False, True))
@pytest.mark.parametrize("folder", ("nvfp4_mlp", "fp8_pb_wo", "mixed"))
def test_a_model_of_transformers_has_these_weights(
    folder: str, older: bool, tmp_path: Path
) -> None:
    path = as_older(folder, tmp_path / "m") if older else DATA / folder
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32, weight_only=True)
    dense = transformers.AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    tensors = load_file(path / "model.safetensors")
    found = open_checkpoint(path)
    with torch.no_grad():
        for name, parameter in dense.named_parameters():
            layer = name.removesuffix(".weight")
            parameter.copy_(numbers(tensors, layer) if layer in found.layers else tensors[name])
    kinds = {x: type(model.get_submodule(x)) for x in found.layers}
    assert set(kinds.values()) == {mixed_gemm.Linear}
    tokens = torch.tensor([[1, 5, 7, 9]])
    torch.testing.assert_close(model(tokens).logits, dense(tokens).logits)


def test_enable_transformers_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.quantizers import auto

    table = auto.AUTO_QUANTIZATION_CONFIG_MAPPING
    monkeypatch.setattr(auto, "AUTO_QUANTIZATION_CONFIG_MAPPING", dict(table))
    mixed_gemm.enable_transformers("modelopt")
    with pytest.warns(CheckpointWarning, match="float4 activations too; only its weights are used"):
        model = transformers.AutoModelForCausalLM.from_pretrained(DATA / "nvfp4")
    assert isinstance(model.get_submodule(DOWN), mixed_gemm.Linear)


def test_pre_quant_scale_multiplies_activations(tmp_path: Path) -> None:
    """NVFP4_AWQ, whose scales ModelOpt finds on a GPU: the tensor that it then exports beside."""
    factors = torch.linspace(0.5, 2, 128)

    def smooth(tensors: dict[str, Tensor], config: Any) -> None:
        config["quant_algo"] = "NVFP4_AWQ"
        config["config_groups"]["group_0"]["pre_quant_scale"] = True
        tensors[f"{DOWN}.pre_quant_scale"] = factors

    path = changed("nvfp4", tmp_path / "m", smooth)
    checkpoint, x = open_checkpoint(path), torch.randn(3, 128)
    linear = checkpoint.layer(DOWN).to_linear(torch.float32)
    exact = numbers(load_file(path / "model.safetensors"), DOWN)
    wanted = (x * factors).double() @ exact.t()
    size = (x * factors).abs().double() @ exact.abs().t()
    # A sum of 128 products in float32, of weights with three roundings.
    assert ((linear(x).double() - wanted).abs() <= 132 * 2.0**-24 * size).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        save_checkpoint(checkpoint, tmp_path / "out")
    kept = open_checkpoint(tmp_path / "out").layer(DOWN)
    assert torch.equal(kept.pre_scale, factors)


def test_float8_without_a_scale_of_activations_leaves_these_alone(tmp_path: Path) -> None:
    """As ModelOpt exports a layer whose input quantizer is off."""
    path = changed("fp8_kv_fp8", tmp_path / "m", lambda x, _: x.pop(f"{DOWN}.input_scale"))
    checkpoint = open_checkpoint(path)
    assert checkpoint.layers[DOWN].input_activations is None
    assert checkpoint.layers[ATTENTION[0]].input_activations == STATIC


# --- what is refused -----------------------------------------------------------------------------


def put(role: str, value: Tensor) -> Callable[[dict[str, Tensor], Any], Any]:
    return lambda tensors, config: tensors.update({f"{DOWN}.{role}": value})


def say(**keys: Any) -> Callable[[dict[str, Tensor], Any], Any]:
    return lambda tensors, config: config.update(keys)


BROKEN: dict[str, tuple[str, Callable[[dict[str, Tensor], Any], Any], str]] = {
    "algo": ("nvfp4", say(quant_algo="W4A16_AWQ"), r"quant_algo must be nvfp4 or .*\"W4A16_AWQ\""),
    "no algo": ("nvfp4", say(quant_algo=None), r"config.json: quant_algo must be NVFP4, .*None"),
    "other algo": (
        *("nvfp4", say(quant_algo="FP8")),
        rf"{DOWN}.weight: must be float8_e4m3fn, 2-D and not empty, got torch.uint8 \(64, 64\)",
    ),
    "float8 for 4 bits": (
        *("fp8_pc_pt", say(quant_algo="NVFP4")),
        rf"{DOWN}.weight: must be uint8, 2-D and not empty, got torch.float8_e4m3fn",
    ),
    "groups of another size": (
        *("nvfp4", say(group_size=32)),
        rf"{DOWN}.weight_scale: has 8 groups for K=128, which group_size=32 does not give",
    ),
    "lora": ("nvfp4", say(lora_rank=16), "lora_rank is 16, which is not read: a product of two"),
    "zero points": ("nvfp4", say(has_zero_point=True), "has_zero_point is true, which is not read"),
    "no layers": (
        *("mixed", say(quantized_layers={})),
        f"quant_algo is {MIXED}, which needs an object quantized_layers",
    ),
    "a layer that is not listed": (
        *("mixed", lambda tensors, config: config["quantized_layers"].pop(DOWN)),
        rf"{DOWN}.weight_scale: is quantized, and quantized_layers of the configuration does not",
    ),
    "algo of a layer": (
        *("mixed", lambda tensors, config: config["quantized_layers"][DOWN].update(quant_algo="X")),
        rf"quantized_layers.{DOWN}.quant_algo must be nvfp4 or .*\"X\"",
    ),
    "no global scale": (
        *("nvfp4", lambda tensors, config: tensors.pop(f"{DOWN}.weight_scale_2")),
        rf"{DOWN}.weight_scale_2: is missing",
    ),
    "a global scale of 0": (
        *("nvfp4", put("weight_scale_2", torch.tensor(0.0))),
        rf"{DOWN}.weight_scale_2: and its inverse must be positive and finite in float32, got 0.0",
    ),
    "a global scale that is NaN": (
        *("nvfp4", put("weight_scale_2", torch.tensor(float("nan")))),
        rf"{DOWN}.weight_scale_2: and its inverse must be positive and finite in float32, got nan",
    ),
    "smoothed float8": (
        *("fp8_pc_pt", put("pre_quant_scale", torch.ones(128))),
        rf"{DOWN}.pre_quant_scale: is of 4-bit floats, got it beside a float8 weight",
    ),
    "blocks of another size": (
        *("fp8_pb_wo", put("weight_scale", torch.ones(1, 1, 3, 1))),
        rf"{DOWN}.weight_scale: must be float32 \(1, 2\), got torch.float32 \(1, 3\)",
    ),
    "NaN in e8m0": (
        *("mxfp8", put("weight_scale", torch.full((64, 4), 255, dtype=torch.uint8))),
        rf"{DOWN}.weight_scale: must be finite, got nan at \(0, 0\)",
    ),
    "experts": (
        "nvfp4",
        lambda tensors, config: tensors.update(
            {
                "model.layers.0.mlp.experts.weight": torch.zeros(2, 8, 8, dtype=torch.uint8),
                "model.layers.0.mlp.experts.weight_scale": torch.zeros(2, 8, 1),
            }
        ),
        "experts.weight: quantized experts are not supported",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_folders_are_refused_by_name(case: str, tmp_path: Path) -> None:
    folder, change, text = BROKEN[case]
    path = changed(folder, tmp_path / "m", change)
    with pytest.raises(CheckpointError, match=text):
        open_checkpoint(path).layer(DOWN)


def test_a_key_that_nobody_knows_is_named(tmp_path: Path) -> None:
    path = changed("nvfp4", tmp_path / "m", say(swirl=1))
    with pytest.warns(CheckpointWarning, match="the quantization_config has swirl, which is not"):
        open_checkpoint(path)


@pytest.mark.parametrize("name", ("modelopt_fp4", "MODELOPT"))
def test_other_names_of_the_method(name: str, tmp_path: Path) -> None:
    found = open_checkpoint(changed("nvfp4", tmp_path / "m", say(quant_method=name)))
    assert found.format == "ModelOpt NVFP4"


def test_a_configuration_of_before_0_30(tmp_path: Path) -> None:
    change = say(quant_method=None, quant_library="modelopt")
    assert open_checkpoint(changed("nvfp4", tmp_path / "m", change)).format == "ModelOpt NVFP4"


def test_every_algo_has_a_fixture_or_is_tried_otherwise() -> None:
    said = {
        json.loads((DATA / x / "hf_quant_config.json").read_text())["quantization"]["quant_algo"]
        for x in FOLDERS
    }
    assert {x.upper() for x in said} | {"NVFP4_AWQ", "MXFP4"} == {*ALGOS, MIXED}
    assert ALGOS["MXFP4"].weights == ALGOS["W4A8_MXFP4_FP8"].weights
