"""How many elements of K share a scale, where K is no multiple of it, and where rules of a file
state another size for some of its layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import packed

import mixed_gemm
from mixed_gemm.distributed.read import COLUMNS, ShardOf, read_shard
from mixed_gemm.formats import CheckpointError, layer_rules, open_checkpoint
from mixed_gemm.formats.layer_rules import LayerRules

GPTQ = {"quant_method": "gptq", "sym": False, "desc_act": False, "checkpoint_format": "gptq"}
AUTO_ROUND = {"quant_method": "auto-round", "sym": False, "packing_format": "auto_round:auto_gptq"}
AUTO_ROUND_AWQ = {**AUTO_ROUND, "packing_format": "auto_round:auto_awq"}
AWQ = {"quant_method": "awq", "zero_point": True, "version": "gemm"}
NAME = "model.layers.0.mlp.down_proj"
# What a file says of single layers: a rule for another one, for this one by its name, by a pattern.
RULES = {
    "none": {},
    "another": {"dynamic": {"+:.*lm_head.*": {"bits": 8, "group_size": 32}}},
    "dense": {"dynamic": {"-:.*lm_head.*": {}}},
    "extra": {"extra_config": {"model.layers.7.mlp.down_proj": {"bits": 8}}},
}


def opened(folder: Path, tensors: Any, config: dict[str, Any] | None) -> torch.Tensor:
    packed.write(folder, {NAME: tensors}, config)
    return open_checkpoint(folder).layer(NAME).dequantize()


SIZES = st.sampled_from([16, 32, 48, 64, 96, 100, 128, 160, 256])


@given(
    k=st.integers(3, 130).map(lambda x: 8 * x),
    size=SIZES,
    bits=st.sampled_from([2, 4, 8]),
    rules=st.sampled_from(sorted(RULES)),
    g_idx=st.booleans(),
)
@settings(max_examples=120)
def test_the_stated_size_holds_in_gptq(tmp_path_factory, k, size, bits, rules, g_idx) -> None:
    k = k // 16 * 16 if bits == 2 else k
    layer = packed.random_layer(64, k, size, bits, symmetric=False)
    config = {**GPTQ, "bits": bits, "group_size": size, **RULES[rules]}
    found = opened(tmp_path_factory.mktemp("gptq"), packed.gptq(layer, g_idx), config)
    assert torch.equal(found, layer.weight())


@given(k=st.integers(3, 200).map(lambda x: 5 * x), size=SIZES, rules=st.sampled_from(sorted(RULES)))
@settings(max_examples=60)
def test_the_stated_size_holds_in_awq(tmp_path_factory, k, size, rules) -> None:
    layer = packed.random_layer(64, k, size, symmetric=False)
    for method in (AWQ, AUTO_ROUND_AWQ):
        config = {**method, "bits": 4, "group_size": size, **RULES[rules]}
        found = opened(tmp_path_factory.mktemp("awq"), packed.awq(layer), config)
        assert torch.equal(found, layer.weight())


@given(k=st.integers(3, 200).map(lambda x: 5 * x), size=SIZES, bits=st.sampled_from([2, 3, 4, 8]))
@settings(max_examples=60)
def test_the_stated_size_holds_in_compressed_tensors(tmp_path_factory, k, size, bits) -> None:
    layer = packed.random_layer(64, k, size, bits, symmetric=False)
    config = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "version": "0.20.0",
        "config_groups": {"group_0": packed.group(["Linear"], layer, size)},
    }
    found = opened(tmp_path_factory.mktemp("ct"), packed.compressed(layer), config)
    assert torch.equal(found, layer.weight())


BY_RULE = {
    "name": ("extra_config", NAME),
    "regular expression": ("extra_config", r".*down_proj.*"),
    "part of a name": ("extra_config", r"mlp\.down"),
    "last part": ("extra_config", "down_proj"),
    "pattern": ("dynamic", r"+:.*\.down_proj.*"),
    "pattern without a sign": ("dynamic", r"model\.layers\.\d+\.mlp\.down_proj"),
}


@pytest.mark.parametrize("g_idx", [True, False])
@pytest.mark.parametrize("rule", BY_RULE)
def test_a_rule_that_is_for_the_layer_states_its_size(tmp_path, rule, g_idx) -> None:
    """160 columns in groups of 96 or of 128 are two groups either way."""
    layer = packed.random_layer(64, 160, 96, symmetric=False)
    key, pattern = BY_RULE[rule]
    said = {key: {"-:.*down_proj.*": {}, pattern: {"group_size": 96}}}
    config = {**AUTO_ROUND, "bits": 4, "group_size": 128, **said}
    assert torch.equal(opened(tmp_path / "a", packed.gptq(layer, g_idx), config), layer.weight())
    config = {**AUTO_ROUND_AWQ, "bits": 4, "group_size": 128, **said}
    assert torch.equal(opened(tmp_path / "b", packed.awq(layer), config), layer.weight())


def test_the_first_rule_that_fits_decides(tmp_path) -> None:
    layer = packed.random_layer(64, 160, 96, symmetric=False)
    rules = {r"+:.*mlp.*": {"group_size": 96}, r"+:.*": {"group_size": 128}}
    config = {**GPTQ, "bits": 4, "group_size": 32, "dynamic": rules}
    assert torch.equal(opened(tmp_path / "a", packed.gptq(layer), config), layer.weight())
    # One that says nothing of sizes leaves the size of all layers.
    rules = {r"+:.*mlp.*": {"damp_percent": 0.1}, r"+:.*": {"group_size": 128}}
    config = {**GPTQ, "bits": 4, "group_size": 96, "dynamic": rules}
    assert torch.equal(opened(tmp_path / "b", packed.gptq(layer), config), layer.weight())


def test_bits_are_those_of_the_rule(tmp_path) -> None:
    """For 8 output channels the shapes leave 2 and 4 bits open."""
    layer = packed.random_layer(8, 128, 32, bits=2, symmetric=False)
    config = {**GPTQ, "bits": 4, "group_size": 32, "dynamic": {"+:.*mlp.*": {"bits": 2}}}
    assert torch.equal(opened(tmp_path, packed.gptq(layer, False), config), layer.weight())


@pytest.mark.parametrize(("k", "size"), [(448, 64), (384, 128), (960, 32), (300, 100)])
def test_a_size_that_no_rule_states_is_read_off_the_tensors(tmp_path, k, size) -> None:
    """The rule names the layer otherwise than the file does."""
    layer = packed.random_layer(64, k // 8 * 8, size, symmetric=False)
    rules = {"dynamic": {"+:language_model.mlp.*": {"group_size": size}}}
    config = {**GPTQ, "bits": 4, "group_size": 256, **rules}
    assert torch.equal(opened(tmp_path, packed.gptq(layer), config), layer.weight())


@given(k=st.integers(3, 130).map(lambda x: 8 * x), size=SIZES)
@settings(max_examples=80)
def test_without_a_stated_size_it_is_right_or_refused(tmp_path_factory, k, size) -> None:
    layer = packed.random_layer(64, k, size, symmetric=False)
    folder = tmp_path_factory.mktemp("none")
    assert torch.equal(opened(folder, packed.gptq(layer), {**GPTQ, "bits": 4}), layer.weight())
    for tensors, config in ((packed.awq(layer), AWQ), (packed.gptq(layer, False), GPTQ)):
        try:
            found = opened(tmp_path_factory.mktemp("none"), tensors, config)
        except CheckpointError as error:
            assert f"groups for K={k}" in str(error)
            assert k % size or size not in (16, 32, 64, 128, 256)
        else:
            groups = -(-k // size)
            usual = size in (16, 32, 64, 128, 256) or k // groups == size
            assert torch.equal(found, layer.weight()) or not usual


def test_an_open_size_is_refused_with_the_sizes_it_may_be(tmp_path) -> None:
    layer = packed.random_layer(64, 192, 128)
    text = r"scales: has 2 groups for K=192, which no size is stated for: groups of 96 or 128 would"
    with pytest.raises(CheckpointError, match=text):
        opened(tmp_path, packed.awq(layer), {"quant_method": "awq"})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"group_size": 0}, r"group_size must be -1 or positive, got 0"),
        ({"dynamic": {"+:.*": {"group_size": -3}}}, r"group_size must be -1 or positive, got -3"),
        ({"dynamic": {"+:.*": {"bits": "8"}}}, r"bits must be an integer, got '8'"),
        (
            {"dynamic": {"+:(": {"bits": 8}}},
            r"the pattern '\(' of dynamic is no regular expression",
        ),
        (
            {"extra_config": {"(a+)+": {"bits": 8}}},
            r"the pattern '\(a\+\)\+' of extra_config repeats",
        ),
    ],
)
def test_rules_that_cannot_be_read_are_refused(tmp_path, change, text) -> None:
    layer = packed.random_layer(64, 128, 32)
    with pytest.raises(CheckpointError, match=text):
        opened(tmp_path, packed.gptq(layer), {**GPTQ, "bits": 4, "group_size": 32, **change})


def test_rules_by_name_are_looked_up_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """AutoRound writes one for each expert: 70,000 times 70,000 searches take days."""
    names = [f"model.layers.0.mlp.experts.{i}.down_proj" for i in range(3000)]
    config = {"bits": 4, "group_size": 128, "extra_config": {key: {"bits": 8} for key in names}}
    rules, searched = LayerRules(config, Path()), []
    monkeypatch.setattr(layer_rules, "finds_pattern", lambda *given: searched.append(given))
    assert {rules.bits_of(name) for name in names} == {(8, 4)}
    assert rules.bits_of("model.layers.0.mlp.up_proj") == (4,)
    assert searched == []


def test_a_rule_that_says_nothing_of_sizes_may_have_any_pattern(tmp_path) -> None:
    layer = packed.random_layer(64, 192, 128)
    rules = {"-:(a+)+": {}, "+:.*a.*b.*c.*d.*e.*f": {"damp_percent": 0.1}, "+:x": False}
    config = {**GPTQ, "bits": 4, "group_size": 128, "dynamic": rules}
    assert torch.equal(opened(tmp_path, packed.gptq(layer), config), layer.weight())


@pytest.mark.parametrize("k", [448, 960, 192])
@pytest.mark.parametrize("stated", [True, False])
def test_a_share_has_the_groups_of_the_whole(tmp_path, k, stated) -> None:
    """Also where the shapes of the share alone would leave its size open."""
    size = 128 if stated else 96
    layer = packed.random_layer(64, k, size, symmetric=False)
    config = {**AWQ, "bits": 4, **({"group_size": size} if stated else {})}
    folder = packed.write(tmp_path, {NAME: packed.awq(layer)}, config)
    if not stated and k != 960:
        with pytest.raises(CheckpointError, match="groups for K="):
            open_checkpoint(folder)
        return
    checkpoint = open_checkpoint(folder)
    whole = checkpoint.layer(NAME).to_linear(torch.float32).weight
    for start, stop in ((0, k // 2), (k // 2, k), (k // 4, k // 4 * 3)):
        span = ShardOf(COLUMNS, start // 16 * 16, stop // 16 * 16)
        share, _ = read_shard(checkpoint.index, checkpoint.codec, NAME, span, torch.float32)
        assert torch.equal(
            share.dequantize(), whole.cut(COLUMNS, span.start, span.stop).dequantize()
        )


@pytest.mark.parametrize(("k", "size"), [(192, 128), (448, 128), (300, 128), (160, 96)])
def test_a_ragged_layer_is_written_and_read_again(tmp_path, k, size) -> None:
    layer = packed.random_layer(64, k, size, symmetric=False)
    config = {**AWQ, "bits": 4, "group_size": size}
    folder = packed.write(tmp_path / "awq", {NAME: packed.awq(layer)}, config)
    mixed_gemm.save_checkpoint(open_checkpoint(folder), tmp_path / "ct")
    again = open_checkpoint(tmp_path / "ct")
    assert torch.equal(again.layer(NAME).dequantize(), layer.weight())
    assert json.loads((tmp_path / "ct" / "config.json").read_text())["quantization_config"]


# --- other things that shapes may say ------------------------------------------------------------


def compressed_config(layer: packed.Layer, **more: Any) -> dict[str, Any]:
    groups = {"group_0": packed.group(["Linear"], layer, 32)}
    method = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    return {**method, "config_groups": groups, **more}


@pytest.mark.parametrize("k", [40, 50, 60, 100])
@pytest.mark.parametrize("version", ["0.17.1", "0.20.0"])
def test_the_version_tells_how_3_bits_are_packed_where_the_shape_does_not(
    tmp_path, k, version
) -> None:
    """Words without straddling codes are as many as words with them."""
    layer = packed.random_layer(40, k, 32, bits=3, symmetric=False)
    tensors = packed.compressed(layer)
    if version == "0.17.1":  # ten whole codes to a word
        tensors["weight_packed"] = aligned(layer.codes)
        tensors["weight_zero_point"] = aligned(layer.zeros).t().contiguous()
    found = opened(tmp_path, tensors, compressed_config(layer, version=version))
    assert torch.equal(found, layer.weight())


def aligned(codes: torch.Tensor) -> torch.Tensor:
    """uint8 codes of 3 bits ``[R, n]`` -> int32 ``[R, ceil(n / 10)]``."""
    padded = torch.nn.functional.pad(codes.long(), (0, -codes.shape[1] % 10))
    fields = padded.reshape(codes.shape[0], -1, 10) << (3 * torch.arange(10))
    return fields.sum(-1).int()


def test_words_of_3_bits_do_not_tell_how_many_codes_they_hold(tmp_path) -> None:
    layer = packed.random_layer(64, 100, 32, bits=3, symmetric=False)
    tensors = packed.compressed(layer)
    del tensors["weight_shape"]
    with pytest.raises(CheckpointError, match=r"weight_shape: is missing"):
        opened(tmp_path, tensors, compressed_config(layer))


def test_zero_points_that_are_announced_must_be_there(tmp_path) -> None:
    layer = packed.random_layer(64, 128, 32, symmetric=False)
    tensors = packed.compressed(layer)
    del tensors["weight_zero_point"]
    with pytest.raises(CheckpointError, match=r"weight_zero_point: is missing, and .* symmetric"):
        opened(tmp_path / "ct", tensors, compressed_config(layer))
    tensors = packed.awq(layer)
    del tensors["qzeros"]
    with pytest.raises(CheckpointError, match=r"qzeros: is missing, and .* zero_point: true"):
        opened(tmp_path / "awq", tensors, {**AWQ, "bits": 4, "group_size": 32})
    symmetric = packed.random_layer(64, 128, 32)
    tensors = packed.awq(symmetric)
    del tensors["qzeros"]
    config = {**AWQ, "zero_point": False, "bits": 4, "group_size": 32}
    assert torch.equal(opened(tmp_path / "none", tensors, config), symmetric.weight())
