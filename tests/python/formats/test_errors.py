"""Broken checkpoints: each must be refused with the file, the tensor and the reason."""

from __future__ import annotations

import json
import random
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny_llama

from mixed_gemm.formats import CheckpointError, open_checkpoint, save_checkpoint

Q_PROJ = f"{tiny_llama.BLOCK}.self_attn.q_proj"


def read_all(path):
    for weight in open_checkpoint(path):
        assert weight.q.numel()


def with_value(value, index=(0, 0)):
    def change(tensor):
        tensor[index] = value
        return tensor

    return change


# fixture, role, change, text after "file: tensor: "
BAD_TENSORS = {
    "awq: shape of qweight": (
        "awq_gemm",
        "qweight",
        lambda x: x[:, :-1],
        r"scales: must be float16 or bfloat16 or float32 \(2, 56\), got torch.float16 \(2, 64\)",
    ),
    "awq: rank of qweight": (
        "awq_gemm",
        "qweight",
        lambda x: x[0],
        r"qweight: must be int32, 2-D and not empty, got torch.int32 \(8,\)",
    ),
    "awq: dtype of qweight": (
        "awq_gemm",
        "qweight",
        lambda x: x.long(),
        r"qweight: must be int32, 2-D and not empty, got torch.int64",
    ),
    "awq: shape of qzeros": (
        "awq_gemm",
        "qzeros",
        lambda x: x[:1],
        r"qzeros: must be int32 \(2, 8\), got torch.int32 \(1, 8\)",
    ),
    "awq: too few rows": (
        "awq_gemm",
        "qweight",
        lambda x: x[:30],
        r"scales: has 2 groups for K=30, which group_size=32 does not give",
    ),
    "awq: no scales": ("awq_gemm", "scales", None, r"scales: is missing"),
    "awq: NaN": (
        "awq_gemm",
        "scales",
        with_value(float("nan"), (1, 3)),
        r"scales: must be finite, got nan at \(1, 3\)",
    ),
    "awq: Inf": (
        "awq_gemm",
        "scales",
        with_value(float("inf")),
        r"scales: must be finite, got inf at \(0, 0\)",
    ),
    "awq: bias": (
        "awq_gemm",
        "bias",
        lambda _: torch.zeros(3).half(),
        r"bias: must be float16 or bfloat16 or float32 \(64,\), got torch.float16 \(3,\)",
    ),
    "awq: NaN in bias": (
        "awq_gemm",
        "bias",
        lambda _: torch.full((64,), float("nan")).half(),
        r"bias: must be finite, got nan at \(0,\)",
    ),
    "gemv: padded width": (
        "awq_gemv",
        "scales",
        lambda x: x[:, :-1],
        r"scales: must be float16 or bfloat16 or float32 \(64, 32\), got torch.float16 \(64, 31\)",
    ),
    "gemv_fast: columns": (
        "awq_gemv_fast",
        "qweight",
        lambda x: x[:, :-1],
        r"qweight: must have a multiple of 64 columns, got 63",
    ),
    "gemv_fast: NaN in zeros": (
        "awq_gemv_fast",
        "qzeros",
        with_value(float("nan")),
        r"qzeros: must be finite, got nan at \(0, 0\)",
    ),
    "native: tag": (
        "native_8bit",
        "_extra_state",
        lambda x: x[:-1],
        r"_extra_state: is not a layout tag",
    ),
    "native: layout version": (
        "native_8bit",
        "_extra_state",
        lambda x: torch.tensor(
            list(bytes(x.tolist()).replace(b'"layout_version": 1', b'"layout_version": 9')),
            dtype=torch.uint8,
        ),
        r"_extra_state: is layout version 9, this library reads 1",
    ),
    "native: no permutation": (
        "native_4bit_act_order",
        "permutation",
        None,
        r"permutation: is missing",
    ),
    "native: zeros": (
        "native_4bit_act_order",
        "zeros",
        with_value(float("nan")),
        r"zeros: must be finite, got nan at \(0, 0\)",
    ),
    "gptq: rows": (
        "gptq_v1_4bit",
        "qweight",
        lambda x: x[:-1],
        r"qweight: has 7 rows for K=64, and qzeros 8 columns for N=64, which bits=4 does not give",
    ),
    "gptq: dtype of scales": (
        "gptq_v1_4bit",
        "scales",
        lambda x: x.int(),
        r"scales: must be float16 or bfloat16 or float32, 2-D and not empty, got torch.int32",
    ),
    "gptq: g_idx range": (
        "gptq_v2_4bit_act_order",
        "g_idx",
        with_value(2, 5),
        r"g_idx: must be in 0\.\.1, got 0\.\.2",
    ),
    "gptq: g_idx balance": (
        "gptq_v2_4bit_act_order",
        "g_idx",
        lambda x: x * 0,
        r"g_idx: must give 32 of the 64 columns to each of 2 groups",
    ),
    "native: packed shape": (
        "native_8bit",
        "b_packed",
        lambda x: x[:, :-1],
        r"b_packed: must be torch.uint8 \(64, 64\)|b_packed: must be uint8 \(64, 64\), got",
    ),
    "gptq: NaN": (
        "gptq_v1_4bit",
        "scales",
        with_value(float("nan")),
        r"scales: must be finite, got nan at \(0, 0\)",
    ),
    "ct: words": (
        "ct_pack_4bit",
        "weight_packed",
        lambda x: x[:, :-1],
        r"weight_packed: is \[64, 7\], which 4 bits and weight_shape \[64, 64\] do not give",
    ),
    "ct: weight_shape": (
        "ct_pack_4bit",
        "weight_shape",
        with_value(32, 0),
        r"weight_packed: is \[64, 8\], which 4 bits and weight_shape \[32, 64\] do not give",
    ),
    "ct: groups": (
        "ct_pack_4bit",
        "weight_scale",
        lambda x: torch.cat([x, x, x], 1),
        r"weight_scale: has 6 groups for K=64, which group_size=32 does not give",
    ),
    "ct: rows of scales": (
        "ct_pack_4bit",
        "weight_scale",
        lambda x: x[1:],
        r"weight_scale: must be float16 or bfloat16 or float32 \(64, 2\), got .* \(63, 2\)",
    ),
    "ct: zero points": (
        "ct_pack_4bit_zeros",
        "weight_zero_point",
        lambda x: x[:, :1],
        r"weight_zero_point: must be int32 \[8, 2\], got \[8, 1\]",
    ),
    "ct: NaN": (
        "ct_pack_4bit",
        "weight_scale",
        with_value(float("nan")),
        r"weight_scale: must be finite, got nan at \(0, 0\)",
    ),
    "ct: dtype of weight": (
        "ct_int_8bit",
        "weight",
        lambda x: x.short(),
        r"weight: must be int8 or float8_e4m3fn, 2-D and not empty, got torch.int16",
    ),
    "ct: no weight": ("ct_int_8bit", "weight", None, r"weight: is missing"),
    "ct: NaN in float8": (
        "ct_float_channel",
        "weight",
        lambda x: x.view(torch.uint8).fill_(0x7F).view(torch.float8_e4m3fn),
        r"weight: must be finite, got nan at \(0, 0\)",
    ),
    "ct: blocks": (
        "ct_float_block",
        "weight_scale",
        lambda x: torch.cat([x, x, x], 1)[:, :3],
        r"weight_scale: must be .* \(2, 1\), got torch.bfloat16 \(2, 3\)",
    ),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_open_bad_tensor_is_refused(broken, case):
    folder, role, change, text = BAD_TENSORS[case]
    path = broken(folder, {role: change})
    with pytest.raises(CheckpointError, match=text) as info:
        read_all(path)
    assert info.value.tensor.startswith(f"{Q_PROJ}.")
    assert str(info.value) == f"{info.value.file}: {info.value.tensor}: {info.value.reason}"
    assert info.value.file.startswith(str(path))


# fixture, changed options of quantization_config, text
BAD_CONFIGS = {
    "method": ("awq_gemm", {"quant_method": "exl3"}, r"the format 'exl3' is not read; awq gemm,"),
    "awq version": ("awq_gemm", {"version": "marlin"}, r"the format 'awq marlin' is not read"),
    "awq bits": ("awq_gemm", {"bits": 3}, r"config\.json: bits must be 4, got 3"),
    "not a number": ("awq_gemm", {"bits": "4"}, r"bits must be an integer, got '4'"),
    "group size": ("awq_gemm", {"group_size": 48}, r"scales: has 4 groups for K=128, which"),
    "gptq bits": (
        "gptq_v1_4bit",
        {"bits": 8},
        r"qweight: has 16 rows for K=128, .* bits=8 does not",
    ),
    "gptq planes": ("gptq_v1_4bit", {"bits": 5}, r"bits=5 in split planes \(gptq_p\) is not read"),
    "ct format": (
        "ct_pack_4bit",
        {"format": "marlin-24"},
        r"the compressed-tensors format marlin-24 is not read; pack-quantized,",
    ),
    "ct targets": (
        "ct_pack_4bit",
        {"config_groups": {"a": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4}}}},
        r"self_attn\.\w_proj: has quantized tensors, but no target of config_groups names it",
    ),
    "ct group": (
        "ct_pack_4bit",
        {"config_groups": {"a": {"targets": "Linear"}}},
        r"config_groups\.a must have a list targets and an object weights",
    ),
    "ct block": (
        "ct_float_block",
        {"config_groups": {"a": {"targets": ["Linear"], "weights": {"block_structure": [0, 1]}}}},
        r"the block size must be two numbers, got \[0, 1\]",
    ),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_open_bad_config_is_refused(broken, case):
    folder, options, text = BAD_CONFIGS[case]
    with pytest.raises(CheckpointError, match=text):
        read_all(broken(folder, **options))


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.999])
def test_open_truncated_file_is_refused(broken, keep):
    path = broken("awq_gemm")
    file = path / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: not a whole safetensors file"):
        read_all(path)


def test_open_truncated_pickle_is_refused(broken, tmp_path):
    path = broken("awq_gemv_fast")
    torch.save(load_file(path / "model.safetensors"), tmp_path / "whole.pt")
    content = (tmp_path / "whole.pt").read_bytes()
    (tmp_path / "half.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=r"half\.pt: not a whole torch file"):
        read_all(tmp_path / "half.pt")


@pytest.mark.filterwarnings("ignore::mixed_gemm.CheckpointWarning")
@pytest.mark.parametrize("part", ["header", "config"])
@pytest.mark.parametrize(
    "folder", ["awq_gemm", "awq_gemv", "gptq_v2_4bit_act_order", "ct_pack_4bit_zeros"]
)
def test_open_corrupt_bytes_are_refused_or_harmless(repository, tmp_path, folder, part):
    """No other exception leaks: a byte or a few of the header or the configuration change."""
    data, rng, refused = repository / "tests" / "data" / folder, random.Random(0), 0
    tensors, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    whole = {tensors: (data / tensors.name).read_bytes(), config: (data / config.name).read_bytes()}
    file = tensors if part == "header" else config
    end = int.from_bytes(whole[tensors][:8], "little") + 8 if part == "header" else None
    for _ in range(60):
        content = bytearray(whole[file])
        for _ in range(rng.choice([1, 1, 2, 5])):
            content[rng.randrange(end or len(content))] = rng.randrange(256)
        for path in whole:
            path.write_bytes(content if path == file else whole[path])
        try:
            read_all(tmp_path)
        except CheckpointError as error:
            refused += 1
            assert str(tmp_path) in str(error)
    assert refused > 10


@pytest.fixture
def sharded(repository, tmp_path):
    path = tmp_path / "sharded"
    source = open_checkpoint(repository / "tests" / "data" / "awq_gemm")
    save_checkpoint(source, path, max_shard_bytes=10_000)
    return path


def test_open_missing_shard_is_refused(sharded):
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=r"the shard is missing: model\.safetensors") as info:
        open_checkpoint(sharded)
    assert info.value.file == str(shard)


def test_open_shard_without_its_tensor_is_refused(sharded):
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    shard = sorted(sharded.glob("*.safetensors"))[0].name
    content["weight_map"]["model.extra.weight"] = shard
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"model\.extra\.weight: is missing: model\.safe"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", 3, ""])
def test_open_shard_outside_the_folder_is_refused(sharded, shard):
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"][next(iter(content["weight_map"]))] = shard
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"must be in a file beside it, got"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": {}}', '{"weight_map": 1}'])
def test_open_broken_index_is_refused(sharded, text):
    (sharded / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"index\.json: (not a readable|must h)"):
        open_checkpoint(sharded)


def test_open_tensor_in_two_files_is_refused(broken):
    path = broken("awq_gemm")
    shutil.copy(path / "model.safetensors", path / "copy.safetensors")
    with pytest.raises(CheckpointError, match=r"is in copy\.safetensors as well"):
        open_checkpoint(path)


def test_open_nothing_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"no such file or folder"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"no \.safetensors, \.bin or \.pt file"):
        open_checkpoint(tmp_path)
    save_file({"a.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"holds no quantized tensors .* mixed_gemm\.quantize_"
    ):
        open_checkpoint(tmp_path)


def test_layer_of_another_name_is_a_key_error(repository):
    checkpoint = open_checkpoint(repository / "tests" / "data" / "awq_gemm")
    with pytest.raises(KeyError, match="lm_head"):
        checkpoint.layer("lm_head")
    with pytest.raises(CheckpointError, match=r"nothing: is missing"):
        checkpoint.tensor("nothing")
