"""What the version before weights had names of their types wrote: it loads, and what is written now
has the same bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support import older_layers
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.formats import open_checkpoint, save_checkpoint
from mixed_gemm.weights.values import decode_tag, encode_tag, tagged_weight, weight_tag

FOLDER = Path(__file__).resolve().parents[2] / "data" / "older"


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return load_file(FOLDER / "states.safetensors")


@pytest.mark.parametrize("name", older_layers.LAYERS)
def test_a_state_dict_loads_and_is_written_again_as_it_was(name, tensors):
    layer = older_layers.model(tensors)[name]
    assert torch.equal(layer.weight.dequantize(), tensors[f"{name}.dense"])
    found = {f"{name}.{part}": x for part, x in layer.state_dict().items()}
    wanted = {x for x in tensors if x.startswith(f"{name}.") and x != f"{name}.dense"}
    assert found.keys() == wanted
    for part in wanted:
        assert found[part].dtype == tensors[part].dtype and torch.equal(
            found[part].view(torch.uint8), tensors[part].view(torch.uint8)
        ), part


def test_a_pickled_layer_loads_and_multiplies(tensors):
    layer = torch.load(FOLDER / "int4.pt", weights_only=False)
    again = older_layers.model(tensors)["int4"]
    assert layer.scheme == again.scheme and layer.scheme.weights.scale_dtype is None
    assert layer.scheme.weight_type == "int4" and str(layer.scheme) == str(again.scheme)
    x = torch.eye(older_layers.K, dtype=torch.float16)
    assert torch.equal(layer(x), again(x))


def test_a_saved_folder_loads_with_the_weights_that_were_saved(tensors):
    checkpoint = open_checkpoint(FOLDER / "saved")
    assert set(checkpoint.layers) == older_layers.LAYERS.keys() - {older_layers.CONVOLUTION}
    for name in checkpoint.layers:
        weight = checkpoint.layer(name).to_module(torch.float16).weight
        assert torch.equal(weight.dequantize(), tensors[f"{name}.dense"]), name


def bytes_of(file: Path) -> bytes:
    """All but the version of the library that wrote it."""
    return re.sub(rb'"version": "[^"]*"', b'"version": ""', file.read_bytes())


def test_a_folder_is_saved_as_it_was(tensors, tmp_path):
    layers = older_layers.model(tensors)
    save_checkpoint(nn.ModuleDict(layers), tmp_path, config={})
    assert {x.name for x in tmp_path.iterdir()} == {x.name for x in (FOLDER / "saved").iterdir()}
    for file in tmp_path.iterdir():
        assert bytes_of(file) == bytes_of(FOLDER / "saved" / file.name), file.name


def test_a_scheme_is_the_json_that_it_was():
    weights = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 128,
               "symmetric": True, "dynamic": False, "block": None}  # fmt: skip
    old = {"weights": weights, "input_activations": None, "zero_mode": "none"}
    scheme = mixed_gemm.Scheme.weight_only()
    assert json.dumps(scheme.as_dict()) == json.dumps(old)
    assert mixed_gemm.Scheme.from_dict(old) == scheme
    other = {**old, "weights": {**weights, "scale_dtype": "e8m0"}}
    assert mixed_gemm.Scheme.from_dict(other).as_dict() == other


def test_a_tag_names_the_weight_type_only_where_bits_do_not():
    for scheme, tag in (
        (mixed_gemm.Scheme.weight_only(4), {"bits": 4}),
        (mixed_gemm.Scheme.weight_only(8), {"bits": 8}),
        (mixed_gemm.Scheme.fp8(), {"bits": 8, "weight": "e4m3"}),
    ):
        assert weight_tag(scheme) == tag and tagged_weight(tag) == scheme.weight_type


@pytest.mark.parametrize("weight", ["e2m1", "int8"])
def test_a_tag_of_another_weight_type_is_refused(weight, tensors, broken):
    state = {
        part.removeprefix("int4."): x
        for part, x in tensors.items()
        if part.startswith("int4.") and part != "int4.dense"
    }
    tag = decode_tag(state["_extra_state"])
    assert "weight" not in tag
    other = encode_tag({**tag, "weight": weight})
    layer = older_layers.LAYERS["int4"](older_layers.dense("int4"))
    with pytest.raises(RuntimeError, match="the packed weight is of another kind"):
        layer.load_state_dict({**state, "_extra_state": other})

    def named(state: Tensor) -> Tensor:
        return encode_tag({**decode_tag(state), "weight": weight})

    folder = broken("native_4bit_act_order", {"_extra_state": named})
    with pytest.raises(mixed_gemm.formats.CheckpointError, match=f"type '{weight}' are not read"):
        open_checkpoint(folder)
