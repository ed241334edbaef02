"""mxfp4-pack-quantized and nvfp4-pack-quantized: files of the real compressed-tensors, read and
written to the bit, and ours read by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme, quant_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.formats.errors import CheckpointError, CheckpointWarning
from mixed_gemm.weights import FloatWeight

PRESETS = {
    "mxfp4-pack-quantized": (quant_scheme.MXFP4A16, quant_scheme.MXFP4),
    "nvfp4-pack-quantized": (quant_scheme.NVFP4A16, quant_scheme.NVFP4),
}
NAMES = {"mxfp4-pack-quantized": "mxfp4", "nvfp4-pack-quantized": "nvfp4"}


def compressed(form: str, dense: Tensor) -> dict[str, Tensor]:
    """What the package writes of a weight ``[N, K]``."""
    args = PRESETS[form][0]["weights"]
    groups = dense.unflatten(1, (-1, args.group_size))
    whole = generate_gparam(dense.min(), dense.max()) if form.startswith("nv") else None
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), args, global_scale=whole)
    given = {"weight": dense, "weight_scale": scale}
    if whole is not None:
        given["weight_global_scale"] = whole
    scheme = QuantizationScheme(targets=["Linear"], **PRESETS[form][0])
    found: dict[str, Tensor] = BaseCompressor.get_value_from_registry(form).compress(given, scheme)
    return {name: x.contiguous() for name, x in found.items()}


def write(
    path: Path, form: str, tensors: dict[str, Tensor], activations: bool = False, **weights: Any
) -> Path:
    path.mkdir()
    save_file({f"a.{name}": x for name, x in tensors.items()}, path / "model.safetensors")
    preset = PRESETS[form][activations]
    group = {name: json.loads(args.model_dump_json()) for name, args in preset.items()}
    group["weights"] |= weights
    quantization = {
        "quant_method": "compressed-tensors", "format": form, "ignore": [],
        "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, **group}},
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    return path


def dense_weight() -> Tensor:
    dense = torch.randn(48, 96, generator=torch.Generator().manual_seed(0))
    dense[3, 32:64], dense[5] = 0, 0
    dense[7] *= 1e-3
    return dense


def same_bytes(found: dict[str, Tensor], wanted: dict[str, Tensor], prefix: str = "a.") -> None:
    assert {x.removeprefix(prefix) for x in found} == set(wanted)
    for name, x in wanted.items():
        y = found[prefix + name]
        assert x.dtype == y.dtype and x.shape == y.shape
        assert torch.equal(x.view(torch.uint8), y.view(torch.uint8)), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("form", PRESETS)
def test_a_file_of_theirs_comes_back_to_the_bit(
    form: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    tensors = compressed(form, dense_weight())
    checkpoint = mixed_gemm.open_checkpoint(write(tmp_path / "in", form, tensors))
    info = checkpoint.layers["a"]
    assert (info.shape, info.bits, info.kind) == ((48, 96), 4, "e2m1")
    assert info.scheme == mixed_gemm.weights.SCHEMES[NAMES[form]]
    mixed_gemm.save_checkpoint(checkpoint, tmp_path / "copied")
    same_bytes(load_file(tmp_path / "copied" / "model.safetensors"), tensors)
    linear = checkpoint.layer("a").to_linear(dtype)
    mixed_gemm.save_checkpoint(nn.ModuleDict({"a": linear}), tmp_path / "out")
    same_bytes(load_file(tmp_path / "out" / "model.safetensors"), tensors)
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert config["format"] == form and not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize("form", PRESETS)
def test_values_are_those_that_they_compute(form: str, tmp_path: Path) -> None:
    tensors = compressed(form, dense_weight())
    scheme = QuantizationScheme(targets=["Linear"], **PRESETS[form][0])
    theirs = BaseCompressor.get_value_from_registry(form).decompress(tensors, scheme)["weight"]
    ours = mixed_gemm.open_checkpoint(write(tmp_path / "in", form, tensors)).layer("a").dequantize()
    # Theirs is bfloat16, of scales that NVFP4 divides by the global one and rounds to bfloat16.
    assert bool(((ours - theirs.float()).abs() <= 2**-7 * ours.abs()).all())
    if form.startswith("mx"):
        assert torch.equal(ours, theirs.float())


@pytest.mark.parametrize("form", PRESETS)
def test_they_read_what_is_quantized_here(form: str, tmp_path: Path) -> None:
    model = nn.ModuleDict({"a": nn.Linear(96, 48, bias=False)})
    model["a"].weight.data = dense_weight()
    mixed_gemm.quantize_(model, NAMES[form], progress=False)
    mixed_gemm.save_checkpoint(model, tmp_path / "out")
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    found = {name.removeprefix("a."): x for name, x in tensors.items()}
    wanted = compressed(form, dense_weight())
    assert {name: (x.dtype, x.shape) for name, x in found.items()} == {
        name: (x.dtype, x.shape) for name, x in wanted.items()
    }
    scheme = QuantizationScheme(targets=["Linear"], **PRESETS[form][0])
    theirs = BaseCompressor.get_value_from_registry(form).decompress(found, scheme)["weight"]
    ours = model["a"].weight.dequantize(torch.float32)
    assert bool(((ours - theirs.float()).abs() <= 2**-7 * ours.abs()).all())
    if form.startswith("nv"):  # MXFP4's scale is of another rule there: it rounds the exponent up
        assert torch.equal(found["weight_scale"].view(torch.uint8),
                           wanted["weight_scale"].view(torch.uint8))  # fmt: skip
        assert torch.equal(found["weight_global_scale"], wanted["weight_global_scale"])
        assert torch.equal(found["weight_packed"] & 0x77, wanted["weight_packed"] & 0x77)
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    group = config["config_groups"]["group_0"]
    QuantizationScheme(targets=["Linear"], weights=group["weights"])  # what they parse it with


@pytest.mark.parametrize("form", PRESETS)
def test_activations_in_4_bits_are_not_rounded_and_a_warning_says_so(
    form: str, tmp_path: Path
) -> None:
    tensors = compressed(form, dense_weight())
    if form.startswith("nv"):
        tensors["input_global_scale"] = torch.ones(1)
    path = write(tmp_path / "in", form, tensors, activations=True)
    words = "asks for float4 activations too; only its weights are used here"
    checkpoint = mixed_gemm.open_checkpoint(path)
    assert any(words in note for note in checkpoint.notes)
    assert checkpoint.layer("a").input_activations is None
    with pytest.warns(CheckpointWarning, match="float4 activations"):
        mixed_gemm.save_checkpoint(checkpoint, tmp_path / "out")


@pytest.mark.parametrize("group_size, k", [(64, 128), (32, 80), (-1, 75), (16, 33)])
@pytest.mark.parametrize("name", NAMES.values())
def test_other_groups_are_a_format_of_our_own(
    name: str, group_size: int, k: int, tmp_path: Path
) -> None:
    scheme = mixed_gemm.Scheme.named(name, group_size=group_size)
    weight = FloatWeight.from_float(torch.randn(24, k), scheme)
    model = nn.ModuleDict({"a": mixed_gemm.Linear.from_weight(weight, torch.randn(24))})
    mixed_gemm.save_checkpoint(model, tmp_path / "out")
    text = (tmp_path / "out" / "config.json").read_text()
    assert "mixed-gemm-packed" in text
    read = mixed_gemm.open_checkpoint(tmp_path / "out").layer("a")
    found = read.to_linear(torch.float32).weight
    assert read.scheme == weight.scheme
    for part, tensor in weight.tensors().items():
        assert torch.equal(tensor, found.tensors()[part]), part


BROKEN = {
    "nan of e8m0": ("mxfp4-pack-quantized", "weight_scale", 255, "weight_scale.*must be finite"),
    "nan of e4m3": ("nvfp4-pack-quantized", "weight_scale", 127, "weight_scale.*must be finite"),
    "negative": ("nvfp4-pack-quantized", "weight_scale", 0xB8, "scales must be .*from 0 on"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_scale_that_is_no_scale_is_refused(case: str, tmp_path: Path) -> None:
    form, role, byte, words = BROKEN[case]
    tensors = compressed(form, dense_weight())
    tensors[role].view(torch.uint8)[2, 1] = byte
    checkpoint = mixed_gemm.open_checkpoint(write(tmp_path / "in", form, tensors))
    with pytest.raises(CheckpointError, match=words):
        checkpoint.layer("a")


def test_tensors_of_another_shape_are_refused(tmp_path: Path) -> None:
    form = "nvfp4-pack-quantized"
    good = compressed(form, dense_weight())
    for i, (role, changed, words) in enumerate((
        ("weight_packed", good["weight_packed"].to(torch.int32), "weight_packed.*must be uint8"),
        ("weight_scale", good["weight_scale"][:, :5].clone(), "5 groups for K=96"),
        ("weight_scale", good["weight_scale"].float(), "weight_scale.*must be float8_e4m3fn"),
        ("weight_global_scale", torch.ones(2), "weight_global_scale.*must be float32"),
    )):  # fmt: skip
        path = write(tmp_path / f"in{i}", form, {**good, role: changed})
        with pytest.raises(CheckpointError, match=words):
            mixed_gemm.open_checkpoint(path).layer("a")
    del good["weight_global_scale"]
    with pytest.raises(CheckpointError, match=r"weight_global_scale.*is missing"):
        mixed_gemm.open_checkpoint(write(tmp_path / "less", form, good)).layer("a")


def test_a_configuration_that_says_otherwise_is_refused(tmp_path: Path) -> None:
    for i, (form, changes, words) in enumerate((
        ("mxfp4-pack-quantized", {"num_bits": 8}, "must be floats of 4 bits"),
        ("mxfp4-pack-quantized", {"scale_dtype": "torch.float8_e4m3fn"}, "must be torch.uint8"),
        ("nvfp4-pack-quantized", {"symmetric": False}, "no zero points"),
    )):  # fmt: skip
        tensors = compressed(form, dense_weight())
        path = write(tmp_path / f"in{i}", form, tensors, **changes)
        with pytest.raises(CheckpointError, match=words):
            mixed_gemm.open_checkpoint(path)
