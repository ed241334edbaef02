"""save_checkpoint: what is written is read back to the bit, by us and by compressed-tensors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import tiny_llama
from support.checkpoints import FLOATS, INTEGERS
from torch import nn

import mixed_gemm
from mixed_gemm import Scheme
from mixed_gemm.formats import open_checkpoint, save_checkpoint
from mixed_gemm.formats.bitfields import (
    pack_dense,
    to_codes,
    to_signed,
    unpack_aligned,
    unpack_dense,
    words_aligned,
)
from mixed_gemm.formats.kv_cache import kv_cache_scheme
from mixed_gemm.weights import QuantizedWeight

ACT_ORDER = {folder for folder, case in INTEGERS.items() if case[4]}
FIELDS = ("q", "scales", "zeros", "bias", "pre_scale", "permutation")


def assert_same(found: QuantizedWeight, wanted: QuantizedWeight) -> None:
    """Bit for bit, with the same meaning."""
    for field in ("name", "bits", "group_size", "zero_mode"):
        assert getattr(found, field) == getattr(wanted, field), field
    for field in FIELDS:
        x, y = getattr(found, field), getattr(wanted, field)
        assert (x is None) == (y is None), field
        if x is not None:
            assert x.dtype == y.dtype and x.shape == y.shape, field
            assert torch.equal(x.flatten().view(torch.uint8), y.flatten().view(torch.uint8)), field


@pytest.mark.parametrize("folder", sorted({*INTEGERS, *FLOATS} - ACT_ORDER))
def test_save_opened_checkpoint_round_trips(repository, tmp_path, folder):
    source = open_checkpoint(repository / "tests" / "data" / folder)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    save_checkpoint(source, tmp_path / "out")
    found = open_checkpoint(tmp_path / "out")
    rounds = any(x.input_activations is not None for x in source.layers.values())
    integers = "int-quantized" if rounds else "pack-quantized"
    wanted_format = "float-quantized" if folder in FLOATS else integers
    assert found.format == f"compressed-tensors {wanted_format}"
    assert list(found.layers) == list(source.layers)
    for name in source.layers:
        assert_same(found.layer(name), source.layer(name))
    assert set(found.tensors) == set(source.tensors)
    for name in source.tensors:
        assert torch.equal(found.tensor(name), source.tensor(name))
    assert found.config["hidden_size"] == tiny_llama.HIDDEN
    assert "lm_head" in found.quantization_config["ignore"]


@pytest.mark.parametrize("folder", sorted(ACT_ORDER))
def test_save_act_order_is_for_this_library_alone(repository, tmp_path, folder):
    source = open_checkpoint(repository / "tests" / "data" / folder)
    save_checkpoint(source, tmp_path / "out")
    found = open_checkpoint(tmp_path / "out")
    assert found.format == "compressed-tensors mixed-gemm-packed"
    for name in source.layers:
        assert_same(found.layer(name), source.layer(name))
    assert "a permutation of the columns" in (tmp_path / "out" / "README.md").read_text()


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(48, 40)
        self.second = torch.nn.Linear(40, 72, bias=False)
        self.norm = torch.nn.LayerNorm(40)
        self.lm_head = torch.nn.Linear(72, 8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("zero_mode", ["sub", "add"])
def test_save_quantized_model_round_trips(tmp_path, bits, symmetric, zero_mode):
    model = Tiny().half()
    mixed_gemm.quantize_(
        model,
        bits=bits,
        group_size=16,
        symmetric=symmetric,
        zero_mode=None if symmetric else zero_mode,
        progress=False,
    )
    save_checkpoint(model, tmp_path, config={"model_type": "tiny"})
    found = open_checkpoint(tmp_path)
    assert set(found.layers) == {"first", "second"}
    assert set(found.tensors) == {"norm.weight", "norm.bias", "lm_head.weight", "lm_head.bias"}
    for name in found.layers:
        linear, weight = getattr(model, name), found.layer(name)
        wanted = linear.to_quantized_weight(name)
        assert_same(weight, wanted)
    # Zeros that are added are stored as the integers they came from, which others read; the second
    # layer has a ragged group, which they do not.
    groups = found.quantization_config["config_groups"].values()
    assert [x["format"] for x in groups] == ["pack-quantized", "mixed-gemm-packed"]
    assert found.config["model_type"] == "tiny"


def test_save_mixed_bits_names_every_layer(tmp_path):
    model = Tiny().bfloat16()
    mixed_gemm.quantize_(
        model,
        lambda name, _: Scheme.weight_only(4 if name == "first" else 8, -1),
        progress=False,
        skip=None,
    )
    save_checkpoint(model, tmp_path)
    found = open_checkpoint(tmp_path)
    assert {name: info.bits for name, info in found.layers.items()} == {
        "first": 4,
        "second": 8,
        "lm_head": 8,
    }
    for name in found.layers:
        assert_same(found.layer(name), getattr(model, name).to_quantized_weight(name))


def test_save_shards_when_a_file_is_full(repository, tmp_path):
    source = open_checkpoint(repository / "tests" / "data" / "awq_gemm")
    save_checkpoint(source, tmp_path, max_shard_bytes=10_000)
    assert not list(tmp_path.glob("*.part"))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2 and {x.name for x in files} == set(index["weight_map"].values())
    found = open_checkpoint(tmp_path)
    assert set(found.files) == set(files)
    for name in source.layers:
        assert_same(found.layer(name), source.layer(name))


def test_save_copies_the_tokenizer(repository, tmp_path):
    data = repository / "tests" / "data" / "awq_gemm"
    source = tmp_path / "source"
    source.mkdir()
    for file in data.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    (source / "tokenizer.json").write_text('{"a": 1}')
    save_checkpoint(open_checkpoint(source), tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").read_text() == '{"a": 1}'


def test_save_into_a_checkpoint_is_refused(repository, tmp_path):
    source = open_checkpoint(repository / "tests" / "data" / "awq_gemm")
    save_checkpoint(source, tmp_path)
    with pytest.raises(FileExistsError, match=r"holds config\.json already"):
        save_checkpoint(source, tmp_path)


def test_save_model_without_quantized_layers_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no layer is a mixed_gemm\.Linear"):
        save_checkpoint(Tiny(), tmp_path)


@pytest.mark.parametrize("zero_mode", ["sub", "add"])
def test_what_others_cannot_read_survives(tmp_path, zero_mode):
    """Real zero points, a ragged last group, a pre_scale: each with what only it has."""
    common = {"zeros": torch.full((1, 8), 0.3), "zero_mode": zero_mode}
    ragged = {"group_size": 16, "scales": torch.rand(2, 8) + 0.5}
    parts = {"zeros": common, "ragged": ragged, "scaled": {"pre_scale": torch.rand(24) + 0.5}}
    model = torch.nn.ModuleDict()
    for name, changes in parts.items():
        fields = {"q": torch.randint(-8, 8, (8, 24)).char(), "scales": torch.ones(1, 8), **changes}
        model[name] = QuantizedWeight(name, **fields).to_linear()
    save_checkpoint(model, tmp_path)
    found = open_checkpoint(tmp_path)
    assert found.format == "compressed-tensors mixed-gemm-packed"
    for name in parts:
        assert_same(found.layer(name), model[name].to_quantized_weight(name))
    assert "zero points that are no integers" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("activations", ["dynamic", "dynamic_azp", "static", "static_azp"])
def test_w8a8_survives(tmp_path, activations):
    model = torch.nn.ModuleDict(
        {
            name: mixed_gemm.Linear.from_float(
                torch.nn.Linear(48, 40),
                Scheme.w8a8(activations),
                input_range=(-3.0, 5.0),
                smoothing=torch.rand(48) + 0.5 if name == "smoothed" else None,
            )
            for name in ("plain", "smoothed")
        }
    )
    save_checkpoint(model, tmp_path)
    found, x = open_checkpoint(tmp_path), torch.randn(3, 48)
    for name, layer in model.items():
        again = found.layer(name).to_linear(torch.float32)
        assert again.scheme == layer.scheme
        assert torch.equal(again(x), layer(x))
        assert all(torch.equal(t, again.state_dict()[k]) for k, t in layer.state_dict().items())


@pytest.mark.parametrize("activations", ["static", "static_azp"])
def test_static_zero_points_beyond_int8_survive_in_a_format_of_our_own(tmp_path, activations):
    """Others know them as int8, and would read 121 for -1403 without a word."""
    ranges = {"far": (5.0, 6.0), "near": (-3.0, 5.0), "edge": (0.0, 6.0)}
    model = torch.nn.ModuleDict(
        {
            name: mixed_gemm.Linear.from_float(
                torch.nn.Linear(48, 40), Scheme.w8a8(activations), input_range=limits
            )
            for name, limits in ranges.items()
        }
    )
    save_checkpoint(model, tmp_path)
    x, readme = 5 + torch.rand(3, 48), tmp_path / "README.md"
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    formats = {
        name: group["format"]
        for group in config["config_groups"].values()
        for name in group["targets"]
    }
    if activations == "static":
        assert formats == {"Linear": "int-quantized"} and not readme.exists()
    else:
        own = {"far": "mixed-gemm-packed", "near": "int-quantized", "edge": "int-quantized"}
        assert formats == own
        assert re.search("far.*zero point is no int8", readme.read_text())
    found = open_checkpoint(tmp_path)
    for name, layer in model.items():
        again = found.layer(name).to_linear(torch.float32)
        assert torch.equal(again(x), layer(x))
        assert all(torch.equal(t, again.state_dict()[k]) for k, t in layer.state_dict().items())


@st.composite
def weights(draw) -> QuantizedWeight:
    n, k = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    bits = draw(st.sampled_from([4, 8]))
    group_size = draw(st.sampled_from([-1, *(g for g in (16, 32, 48) if g < k)]))
    symmetric, biased = draw(st.booleans()), draw(st.booleans())
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32]))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
    groups = 1 if group_size == -1 else -(-k // group_size)
    zeros = torch.randint(low, high, (groups, n), generator=g).to(dtype)
    if not zeros.any():
        symmetric = True
    return QuantizedWeight(
        name="m",
        q=torch.randint(low, high, (n, k), generator=g, dtype=torch.int8),
        scales=torch.randn(groups, n, generator=g).to(dtype),
        zeros=None if symmetric else zeros,
        bits=bits,
        group_size=group_size,
        zero_mode="none" if symmetric else "sub",
        bias=torch.randn(n, generator=g).to(dtype) if biased else None,
    )


@given(weights())
def test_save_any_weight_round_trips(tmp_path_factory, weight):
    folder = tmp_path_factory.mktemp("save")
    save_checkpoint(torch.nn.ModuleDict({"m": weight.to_linear()}), folder)
    assert_same(open_checkpoint(folder).layer("m"), weight)


@given(weights())
def test_saved_weight_is_what_compressed_tensors_reads(tmp_path_factory, weight):
    package = pytest.importorskip("compressed_tensors", reason="the optional oracle")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from safetensors.torch import load_file

    assert package
    folder = tmp_path_factory.mktemp("save")
    save_checkpoint(torch.nn.ModuleDict({"m": weight.to_linear()}), folder)
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    group = config["config_groups"]["group_0"]
    scheme = QuantizationScheme(
        targets=group["targets"], weights=QuantizationArgs(**group["weights"])
    )
    tensors = {k[2:]: v for k, v in load_file(folder / "model.safetensors").items()}
    if weight.group_size != -1 and weight.shape[1] % weight.group_size:
        return  # it refuses to dequantize ragged groups
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    found = compressor.decompress(tensors, scheme)["weight"]
    # It multiplies in the dtype of the scales; ours in float32, rounded once to it.
    assert torch.equal(found, weight.dequantize(weight.scales.dtype))


@given(st.sampled_from([2, 3, 4, 5, 6, 7, 8]), st.integers(1, 200), st.integers(0, 2**31))
def test_bitfields_round_trip(bits, count, seed):
    g = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (3, count), generator=g, dtype=torch.uint8)
    words = pack_dense(codes, bits)
    assert words.shape == (3, -(-count * bits // 32)) and words.dtype == torch.int32
    assert torch.equal(unpack_dense(words, bits, count), codes)
    # against the definition, bit by bit
    stream = [(int(w) >> i) & 1 for w in words[0].tolist() for i in range(32)]
    values = [sum(stream[i * bits + j] << j for j in range(bits)) for i in range(count)]
    assert values == codes[0].tolist()


@given(st.sampled_from([2, 3, 4, 5, 6, 8]), st.integers(1, 100), st.integers(0, 2**31))
def test_bitfields_aligned_words_hold_whole_values(bits, count, seed):
    g = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (count,), generator=g).tolist()
    per_word = 32 // bits
    words = [0] * words_aligned(count, bits)
    for i, code in enumerate(codes):
        words[i // per_word] |= code << (bits * (i % per_word))
    signed = torch.tensor([w - (w >> 31 << 32) for w in words], dtype=torch.int32)
    assert unpack_aligned(signed[None], bits, count)[0].tolist() == codes


@given(st.sampled_from([2, 3, 4, 8]))
def test_signed_codes_are_less_the_middle(bits):
    codes = torch.arange(2**bits, dtype=torch.uint8)
    signed = to_signed(codes, bits)
    assert signed.tolist() == [c - 2 ** (bits - 1) for c in range(2**bits)]
    assert torch.equal(to_codes(signed, bits), codes)


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_a_source_says_of_keys_and_values_is_kept(tmp_path: Path, dynamic: bool) -> None:
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": dynamic}
    save_checkpoint(_quantized_layer(), tmp_path / "first")
    file = tmp_path / "first" / "config.json"
    config = json.loads(file.read_text())
    assert config["quantization_config"]["kv_cache_scheme"] is None
    config["quantization_config"]["kv_cache_scheme"] = scheme
    file.write_text(json.dumps(config))
    save_checkpoint(open_checkpoint(tmp_path / "first"), tmp_path / "second")
    written = json.loads((tmp_path / "second" / "config.json").read_text())
    assert written["quantization_config"]["kv_cache_scheme"] == scheme
    # Without the scales of keys and values a static scheme says nothing.
    for has_scales in (False, True):
        found = kv_cache_scheme(written["quantization_config"], has_scales)
        assert found == (scheme if dynamic or has_scales else None)


def _quantized_layer() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 32))
    mixed_gemm.quantize_(model, "w8a16", progress=False)
    return model
