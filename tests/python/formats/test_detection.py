"""What a checkpoint is when its configuration does not say so, or lies: formats found from the
tensors, and GPTQ's two conventions for zero points."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from mixed_gemm.formats import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint

# --- formats found without a configuration -----------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "title"),
    [
        ("awq_gemm", "AWQ gemm"),
        ("gptq_v2_4bit_act_order", "GPTQ v1"),
        ("ct_pack_8bit_channel", "compressed-tensors"),
        ("ct_int_8bit", "compressed-tensors"),
    ],
)
def test_open_single_file_detects_the_format(repository, tmp_path, folder, title):
    file = tmp_path / "weights.safetensors"
    data = repository / "tests" / "data" / folder
    shutil.copy(data / "model.safetensors", file)
    found, wanted = open_checkpoint(file), open_checkpoint(data)
    assert found.format == title
    if folder == "gptq_v2_4bit_act_order":
        return  # nothing tells its zero points' convention
    for name in wanted.layers:
        assert torch.equal(found.layer(name).dequantize(), wanted.layer(name).dequantize())


@pytest.mark.parametrize("said", [{"backend": "llm-awq"}, {"version": "llm-awq"}])
def test_open_llm_awq_pickle_reads_scaled_zeros(repository, tmp_path, said):
    """Its own name of the layout, and the one that transformers writes."""
    data = repository / "tests" / "data" / "awq_gemv_fast"
    tensors = load_file(data / "model.safetensors")
    renamed = {name.replace(".qzeros", ".scaled_zeros"): x for name, x in tensors.items()}
    torch.save(renamed, tmp_path / "llm-awq.pt")
    config = {"quantization_config": {"quant_method": "awq", **said, "group_size": 64}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found, wanted = open_checkpoint(tmp_path / "llm-awq.pt"), open_checkpoint(data)
    assert found.format == "llm-awq"
    for name in wanted.layers:
        assert torch.equal(found.layer(name).dequantize(), wanted.layer(name).dequantize())


@pytest.mark.parametrize(
    "folder", ["ct_pack_8bit_channel", "awq_gemv_fast", "gptq_v2_4bit_act_order"]
)
def test_the_default_device_is_not_where_files_are_read_to(repository, tmp_path, folder):
    """transformers opens checkpoints while it is meta."""
    wanted = open_checkpoint(repository / "tests" / "data" / folder)
    with torch.device("meta"):
        found = open_checkpoint(repository / "tests" / "data" / folder)
        for name in found.layers:
            layer = found.layer(name)
            assert torch.equal(layer.q, wanted.layer(name).q) and layer.scales.device.type == "cpu"
        if folder == "ct_pack_8bit_channel":
            save_checkpoint(found, tmp_path)
    if folder == "ct_pack_8bit_channel":
        assert len(open_checkpoint(tmp_path)) == len(wanted)


# --- GPTQ's zero convention --------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["gptq_v1_4bit", "gptq_v2_8bit"])
def test_gptq_symmetric_flag_that_lies_is_warned_about_and_overruled(broken, repository, folder):
    lie = {"gptq_v1_4bit": "gptq_v2", "gptq_v2_8bit": "gptq"}[folder]
    truthful = open_checkpoint(repository / "tests" / "data" / folder)
    lying = open_checkpoint(broken(folder, checkpoint_format=lie))
    with pytest.warns(
        CheckpointWarning, match=r"config\.json: .* zero points are stored"
    ) as record:
        found = list(lying)
    assert len(record) == 1, "one warning for the whole file"
    for weight in found:
        assert weight.zeros is None
        assert torch.equal(weight.dequantize(), truthful.layer(weight.name).dequantize())


@pytest.mark.parametrize("folder", ["gptq_v1_4bit", "gptq_v2_8bit"])
def test_gptq_flag_that_lies_is_refused_when_strict(broken, folder):
    lie = {"gptq_v1_4bit": "gptq_v2", "gptq_v2_8bit": "gptq"}[folder]
    lying = open_checkpoint(broken(folder, checkpoint_format=lie), strict=True)
    for name in lying.layers:
        text = rf"{name}\.qweight: .*the configuration says that zero points are stored"
        with pytest.raises(CheckpointError, match=text):
            lying.layer(name)


def gptq_file(path, convention, flag, seed=0):
    """A Gaussian layer with real, asymmetric zero points, in a file that may lie about them."""
    g = torch.Generator().manual_seed(seed)
    n, k, size = 64, 256, 32
    w = torch.randn(n, k // size, size, generator=g) + 0.05
    low = w.amin(-1, keepdim=True).clamp(max=0)
    scale = ((w.amax(-1, keepdim=True).clamp(min=0) - low) / 15).half().float()
    zeros = (-low / scale).round().clamp(1, 15)
    codes = ((w / scale).round() + zeros).clamp(0, 15)
    from mixed_gemm.formats.bitfields import pack_dense

    stored = zeros[..., 0].t() - (1 if convention == "v1" else 0)
    tensors = {
        "m.qweight": pack_dense(codes.reshape(n, k).to(torch.uint8), 4).t().contiguous(),
        "m.qzeros": pack_dense(stored.contiguous().to(torch.uint8), 4),
        "m.scales": scale[..., 0].t().half().contiguous(),
    }
    path.mkdir(exist_ok=True)
    save_file(tensors, path / "model.safetensors")
    config = {"quant_method": "gptq", "bits": 4, "group_size": size, "sym": False}
    config["checkpoint_format"] = {"v1": "gptq", "v2": "gptq_v2"}[flag]
    (path / "quantize_config.json").write_text(json.dumps(config))
    return (zeros[..., 0].t() - 8).half()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("convention", ["v1", "v2"])
@pytest.mark.parametrize("flag", ["v1", "v2"])
def test_gptq_asymmetric_zero_points_are_told_from_the_weights(tmp_path, convention, flag, seed):
    zeros = gptq_file(tmp_path, convention, flag, seed)
    checkpoint = open_checkpoint(tmp_path)
    if convention == flag:
        weight = checkpoint.layer("m")
    else:
        with pytest.warns(CheckpointWarning, match="The tensors are believed"):
            weight = checkpoint.layer("m")
    assert torch.equal(weight.zeros, zeros)
    strict = open_checkpoint(tmp_path, strict=True)
    if convention == flag:
        assert torch.equal(strict.layer("m").zeros, zeros)
    else:
        with pytest.raises(CheckpointError, match=r"m\.qweight: .*The tensors are believed"):
            strict.layer("m")
