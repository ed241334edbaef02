"""float8 files, in every layout that is found: read, kept, and saved again bit for bit, with what
they ask of activations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import float8_files
from support.float8_files import LAYOUTS
from torch import Tensor, nn

from mixed_gemm import CheckpointError, Scheme, open_checkpoint, save_checkpoint
from mixed_gemm.weights import Side

SIDES = {
    "TOKEN": Side("float", strategy="token", dynamic=True),
    "TENSOR": Side("float", strategy="tensor"),
    "GROUP": Side("float", strategy="group", group_size=64, dynamic=True),
}
ASKED: dict[str, Side | None] = {
    "ct channel, dynamic": SIDES["TOKEN"],
    "ct tensor, static": SIDES["TENSOR"],
    "ct tensor, weight only": None,
    "ct block": SIDES["GROUP"],
    "deepseek": SIDES["GROUP"],
    "deepseek, one block": Side("float", strategy="group", group_size=128, dynamic=True),
    "deepseek, ragged": Side("float", strategy="group", group_size=40, dynamic=True),
    "transformers, static": SIDES["TENSOR"],
    "autofp8, static": SIDES["TENSOR"],
    "autofp8, dynamic": SIDES["TOKEN"],
}


def bits(x: Tensor) -> bytes:
    return bytes(x.flatten().view(torch.uint8).tolist())


def assert_same_bits(folder: Path, layout: str) -> None:
    """Codes and scales of a saved folder are those of the file, in its dtypes."""
    role, static = LAYOUTS[layout][3], LAYOUTS[layout][5]
    given, found = float8_files.tensors(layout), load_file(folder / "model.safetensors")
    for name in float8_files.grids(layout):
        renamed = {"weight": "weight", role: "weight_scale", static: "input_scale"}
        for old, new in renamed.items():
            if old:
                a, b = given[f"{name}.{old}"], found[f"{name}.{new}"]
                assert a.dtype == b.dtype and bits(a) == bits(b), (name, new)


def assert_same_meaning(folder: Path, layout: str) -> None:
    """The config says of weights and activations what the file said."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    (group,) = config["config_groups"].values()
    _, strategy, block, _, _, _ = LAYOUTS[layout]
    assert (config["quant_method"], config["format"]) == ("compressed-tensors", "float-quantized")
    assert group["format"] == "float-quantized" and "lm_head" in config["ignore"]
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
    weights |= {"strategy": strategy} | ({"block_structure": block} if block else {})
    assert group["weights"] == weights
    asked, side = group["input_activations"], ASKED[layout]
    assert (asked is None) == (side is None)
    assert side is None or Side(**asked) == side


@pytest.mark.parametrize("layout", LAYOUTS)
def test_open_finds_what_is_in_the_file(tmp_path: Path, layout: str) -> None:
    checkpoint = open_checkpoint(float8_files.write(layout, tmp_path / "m"))
    _, strategy, block, _, dtype, _ = LAYOUTS[layout]
    for name, grid in float8_files.grids(layout).items():
        weight, info = checkpoint.layer(name), checkpoint.layers[name]
        assert bits(weight.q) == bits(grid.values) and weight.scales.dtype == dtype
        exact = grid.values.float() * grid.scales().to(dtype).float()
        assert torch.equal(weight.dequantize(), exact)
        assert weight.scheme.weights.strategy == strategy
        assert weight.scheme.weights.block == info.block == (tuple(block) if block else None)
        assert weight.input_activations == info.input_activations == ASKED[layout]
        assert torch.equal(weight.to_linear(torch.float32).dequantize(), exact)
        assert weight.to_linear().scheme == weight.scheme
    told = "scales by block; products round them" in " ".join(checkpoint.notes)
    assert told == (strategy == "block")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_is_saved_again_bit_for_bit(tmp_path: Path, layout: str) -> None:
    checkpoint = open_checkpoint(float8_files.write(layout, tmp_path / "m"))
    save_checkpoint(checkpoint, tmp_path / "out")
    assert_same_bits(tmp_path / "out", layout)
    assert_same_meaning(tmp_path / "out", layout)
    again = open_checkpoint(tmp_path / "out")
    for name in checkpoint.layers:
        assert again.layer(name).scheme == checkpoint.layer(name).scheme
    assert again.notes == checkpoint.notes


class Model(nn.Module):
    """The linears of a checkpoint at their places, one of them dense."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        super().__init__()
        for weight in open_checkpoint(folder):
            parent: nn.Module = self
            *path, last = weight.name.split(".")
            for part in path:
                if part not in parent._modules:
                    parent.add_module(part, nn.Module())
                parent = parent._modules[part]  # type: ignore[assignment]
            parent.add_module(last, weight.to_linear(dtype))
        self.lm_head = nn.Linear(4, 4)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_model_is_saved_again_bit_for_bit(
    tmp_path: Path, layout: str, dtype: torch.dtype
) -> None:
    """Whatever the dtype of the model and the casts on the way."""
    model = Model(float8_files.write(layout, tmp_path / "m"), dtype).float().half()
    save_checkpoint(model, tmp_path / "out")
    assert_same_bits(tmp_path / "out", layout)
    assert_same_meaning(tmp_path / "out", layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compressed_tensors_reads_what_is_saved(tmp_path: Path, layout: str) -> None:
    pytest.importorskip("compressed_tensors", reason="the optional oracle")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    save_checkpoint(open_checkpoint(float8_files.write(layout, tmp_path / "m")), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    (group,) = config["config_groups"].values()
    scheme = QuantizationScheme(**group)
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    for name, grid in float8_files.grids(layout).items():
        mine = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(name)}
        found = compressor.decompress(mine, scheme)["weight"]
        # It multiplies in the dtype of the scales.
        scales = grid.scales().to(mine["weight_scale"].dtype)
        assert torch.equal(found, grid.values.to(scales.dtype) * scales), name


@pytest.mark.parametrize(
    "scheme",
    (
        Scheme.fp8(),
        Scheme.fp8(None, strategy="tensor"),
        Scheme.fp8("static"),
        Scheme.fp8(strategy="block", block=(16, 32)),
    ),
    ids=str,
)
def test_what_is_quantized_here_survives(tmp_path: Path, scheme: Scheme) -> None:
    from mixed_gemm import Linear

    static = {"input_range": (-3.0, 5.0)} if scheme.activations == "static" else {}
    model = nn.ModuleDict(
        {name: Linear.from_float(nn.Linear(72, 40), scheme, **static) for name in ("a", "b")}
    )
    save_checkpoint(model, tmp_path)
    found, x = open_checkpoint(tmp_path), torch.randn(3, 72)
    for name, layer in model.items():
        again = found.layer(name).to_linear(torch.float32)
        assert again.scheme == layer.scheme and torch.equal(again(x), layer(x))
        for part, tensor in layer.weight.tensors().items():
            assert bits(again.weight.tensors()[part]) == bits(tensor)


# --- broken files --------------------------------------------------------------------------------

FIRST = next(iter(float8_files.grids("deepseek")))


def changed(layout: str, folder: Path, change: Any) -> Path:
    """A folder whose tensors, by the names of one layer, and config went through ``change``."""
    float8_files.write(layout, folder)
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    change({"tensors": tensors, "config": config["quantization_config"]})
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def put(role: str, value: Tensor) -> Any:
    return lambda x: x["tensors"].update({f"{FIRST}.{role}": value})


BROKEN: dict[str, tuple[str, Any, str]] = {
    "no static scale": (
        "autofp8, static",
        lambda x: x["tensors"].pop(f"{FIRST}.input_scale"),
        "input_scale: is missing",
    ),
    "two static scales": (
        "ct tensor, static",
        put("input_scale", torch.ones(2)),
        r"input_scale: must be one .* for static activations, got torch.float32 \(2,\)",
    ),
    "NaN in a static scale": (
        "transformers, static",
        put("activation_scale", torch.tensor(float("nan"))),
        "activation_scale: must be finite, got nan",
    ),
    "Inf in a scale": (
        "deepseek",
        put("weight_scale_inv", torch.full((2, 1), float("inf"))),
        r"weight_scale_inv: must be finite, got inf at \(0, 0\)",
    ),
    "scales of other blocks": (
        "deepseek",
        put("weight_scale_inv", torch.ones(3, 1)),
        r"weight_scale_inv: must be .* \(2, 1\), got torch.float32 \(3, 1\)",
    ),
    "scales of one byte": (
        "deepseek",
        put("weight_scale_inv", torch.ones(2, 1).to(torch.uint8)),
        r"weight_scale_inv: must be float16 or bfloat16 or float32 .*, got torch.uint8 \(2, 1\)",
    ),
    "e5m2": (
        "autofp8, dynamic",
        put("weight", torch.zeros(64, 64).to(torch.float8_e5m2)),
        "weight: must be int8 or float8_e4m3fn, 2-D and not empty, got torch.float8_e5m2",
    ),
    "activation_scheme": (
        "deepseek",
        lambda x: x["config"].update(activation_scheme="sometimes"),
        "activation_scheme must be 'dynamic' or 'static', got 'sometimes'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_by_name(tmp_path: Path, case: str) -> None:
    layout, change, text = BROKEN[case]
    folder = changed(layout, tmp_path / "m", change)
    with pytest.raises(CheckpointError, match=text):
        open_checkpoint(folder).layer(FIRST)
