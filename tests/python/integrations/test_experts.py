"""Files with quantized experts: those that hold each by itself are read, as are gpt-oss's; what
holds all in one tensor otherwise is refused in words that say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support import packed
from support.language_models import SIZES_OF_MIXTURES as SIZES
from torch import Tensor, nn
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from typer.testing import CliRunner

import mixed_gemm
from mixed_gemm.cli.app import app
from mixed_gemm.distributed.load import _place
from mixed_gemm.formats import CheckpointError, open_checkpoint
from mixed_gemm.nn.experts import Experts

MODELS = {
    "Qwen3-MoE": transformers.Qwen3MoeConfig(**SIZES, num_experts=4, moe_intermediate_size=64),
    "Mixtral": transformers.MixtralConfig(**SIZES, num_local_experts=4),
    "DeepSeek-V3": transformers.DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4}, n_routed_experts=4, moe_intermediate_size=64,
        first_k_dense_replace=0, q_lora_rank=None, kv_lora_rank=64, qk_rope_head_dim=16,
        qk_nope_head_dim=48, v_head_dim=64, n_group=1, topk_group=1,
    ),
    "gpt-oss": transformers.GptOssConfig(**SIZES, num_local_experts=4),
}  # fmt: skip
SAID = "quantized experts are not supported"
IDS = torch.arange(7).view(1, 7)


def dense(name: str, folder: Path) -> Path:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name])
    model.save_pretrained(folder)
    return folder


def packed_linears(
    pack: Callable[[packed.Layer], dict[str, Tensor]], which: str
) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Changes the tensors of a folder: linears whose name has ``which`` are packed."""

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, x in tensors.items():
            is_linear = x.dim() == 2 and which in name and not any(
                part in name for part in ("embed", "lm_head", "mlp.gate.", "moe.gate.", "router")
            )  # fmt: skip
            if not is_linear:
                found[name] = x
                continue
            layer = packed.random_layer(*x.shape, 32)
            owner = name.removesuffix(".weight")
            found |= {f"{owner}.{role}": part for role, part in pack(layer).items()}
        return found

    return change


CT = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": packed.group(["Linear"], packed.random_layer(8, 32, 32), 32)},
}
FORMATS: dict[str, tuple[dict[str, Any], Callable[[packed.Layer], dict[str, Tensor]]]] = {
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True},
        packed.awq,
    ),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}, packed.gptq),
    "compressed-tensors": (CT, packed.compressed),
}


def truth_of(name: str, folder: Path, packed_folder: Path) -> nn.Module:
    """The dense model with the weights that a packed folder stands for."""
    tensors = load_file(dense(name, folder) / "model.safetensors")
    for weight in open_checkpoint(packed_folder):
        tensors[f"{weight.name}.weight"] = weight.dequantize().float()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["Qwen3-MoE", "Mixtral", "DeepSeek-V3"])
def test_packed_experts_are_read(tmp_path: Path, name: str, form: str) -> None:
    config, pack = FORMATS[form]
    folder = dense(name, tmp_path / "m")
    packed.rewrite(folder, packed_linears(pack, "experts"), config)
    model = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
    experts = next(x for x in model.modules() if isinstance(x, Experts))
    assert all(isinstance(x, mixed_gemm.Linear) for x in experts.expert(0).children())
    truth = truth_of(name, tmp_path / "dense", folder)
    assert torch.allclose(model(IDS).logits, truth(IDS).logits, atol=1e-5)

    # Each of them is a matrix like others, which can be converted.
    checkpoint = open_checkpoint(folder)
    mixed_gemm.save_checkpoint(checkpoint, tmp_path / "ct")
    again = open_checkpoint(tmp_path / "ct")
    assert len(again) == len(checkpoint) and all("experts" in x for x in again.layers)
    for weight in checkpoint:
        assert torch.equal(again.layer(weight.name).dequantize(), weight.dequantize())
    converted = mixed_gemm.from_pretrained(tmp_path / "ct", dtype=torch.float32)
    assert torch.equal(converted(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["Qwen3-MoE", "Mixtral"])
def test_dense_experts_beside_packed_layers_are_loaded(
    tmp_path: Path, name: str, form: str
) -> None:
    config, pack = FORMATS[form]
    folder = dense(name, tmp_path / "m")
    packed.rewrite(folder, packed_linears(pack, "self_attn"), config)
    stock = dense(name, tmp_path / "stock")
    truth = transformers.AutoModelForCausalLM.from_pretrained(stock).eval()
    for weight in open_checkpoint(folder):
        truth.get_submodule(weight.name).weight.data.copy_(weight.dequantize())
    model = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
    linear = model.model.layers[0].self_attn.q_proj
    assert isinstance(linear, mixed_gemm.Linear)
    assert torch.allclose(model(IDS).logits, truth(IDS).logits, atol=1e-5)


def test_float8_experts_are_read(tmp_path: Path) -> None:
    """As DeepSeek and Qwen publish them: each with its scales by block."""

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, x in tensors.items():
            if "experts." in name:
                found[name] = x.to(torch.float8_e4m3fn)
                found[f"{name}_scale_inv"] = torch.full((1, 1), 0.5)
            else:
                found[name] = x
        return found

    folder = dense("Qwen3-MoE", tmp_path / "m")
    packed.rewrite(folder, change, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    model = mixed_gemm.from_pretrained(folder, dtype=torch.float32, weight_only=True)
    truth = truth_of("Qwen3-MoE", tmp_path / "dense", folder)
    assert torch.allclose(model(IDS).logits, truth(IDS).logits, atol=1e-5)


def joined(tensors: dict[str, Tensor], dtype: torch.dtype, scale: str) -> dict[str, Tensor]:
    """All experts of a layer in one tensor, as transformers has them in memory."""
    owner = "model.layers.0.mlp.experts"
    found = {name: x for name, x in tensors.items() if not name.startswith(owner)}
    for part in ("gate_up_proj", "down_proj"):
        found[f"{owner}.{part}"] = torch.ones(4, 64, 64).to(dtype)
        found[f"{owner}.{part}{scale}"] = torch.ones(4, 1, 1)
    return found


@pytest.mark.parametrize(
    ("dtype", "scale", "config"),
    [
        (torch.float8_e4m3fn, "_scale_inv", {"quant_method": "fp8", "weight_block_size": [64, 64]}),
        (torch.uint8, "_scale", CT),
        (torch.int8, "_scale", CT),
    ],
)
def test_quantized_experts_in_one_tensor_are_refused_as_such(
    tmp_path: Path, dtype: torch.dtype, scale: str, config: dict[str, Any]
) -> None:
    """Beside layers that are read."""

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if config is CT:
            tensors = packed_linears(packed.compressed, "self_attn")(tensors)
        else:
            name = "model.layers.0.self_attn.q_proj.weight"
            tensors[name] = tensors[name].to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = torch.ones(1, 1)
        return joined(tensors, dtype, scale)

    folder = dense("Qwen3-MoE", tmp_path / "m")
    packed.rewrite(folder, change, config)
    for load in (open_checkpoint, mixed_gemm.from_pretrained):
        with pytest.raises(CheckpointError, match=SAID) as error:
            load(folder)
        assert "mlp.experts" in error.value.tensor


@pytest.mark.parametrize("form", FORMATS)
def test_packed_experts_in_one_tensor_are_refused_as_such(tmp_path: Path, form: str) -> None:
    config, pack = FORMATS[form]
    layer = pack(packed.random_layer(64, 64, 32))
    stacked = {role: torch.stack([x] * 4) for role, x in layer.items()}
    owner = "model.layers.0.mlp.experts"
    folder = packed.write(tmp_path / form, {f"{owner}.gate_up_proj": stacked}, config)
    with pytest.raises(CheckpointError, match=SAID):
        open_checkpoint(folder)


def gpt_oss(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """A folder as OpenAI publishes it, and its tensors as transformers reads them."""
    random, truth = torch.Generator().manual_seed(1), dict[str, Tensor]()

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, x in tensors.items():
            if "experts" in name and x.dim() == 3:
                count, k, n = x.shape
                shape = (count, n, k // 32, 16)
                blocks = torch.randint(0, 256, shape, generator=random, dtype=torch.uint8)
                scales = torch.randint(118, 123, shape[:3], generator=random, dtype=torch.uint8)
                found[f"{name}_blocks"], found[f"{name}_scales"] = blocks, scales
                truth[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            else:
                noise = torch.randn(x.shape, generator=random) if "_proj_bias" in name else 0
                found[name] = truth[name] = x + noise
        return found

    packed.rewrite(dense("gpt-oss", folder), change, {"quant_method": "mxfp4"})
    return folder, truth


@pytest.mark.parametrize("said", [True, False])
def test_mxfp4_of_gpt_oss_is_read(tmp_path: Path, said: bool) -> None:
    """Its blocks of 32 are bytes of two codes, with a scale of one byte each."""
    folder, tensors = gpt_oss(tmp_path / "m")
    if not said:
        found = json.loads((folder / "config.json").read_text())
        del found["quantization_config"]
        (folder / "config.json").write_text(json.dumps(found))
        assert open_checkpoint(folder).format == "MXFP4 of gpt-oss"
        return
    truth = transformers.AutoModelForCausalLM.from_config(MODELS["gpt-oss"]).eval()
    truth.load_state_dict(tensors)
    model = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
    assert str(model.model.layers[0].mlp.experts.expert(3).up_proj.scheme).startswith("float4")
    assert torch.allclose(model(IDS).logits, truth(IDS).logits, atol=1e-5)
    model.save_pretrained(tmp_path / "saved")
    again = mixed_gemm.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    assert torch.equal(again(IDS).logits, model(IDS).logits)


def test_one_expert_of_gpt_oss_is_read_at_a_time(tmp_path: Path) -> None:
    folder, tensors = gpt_oss(tmp_path / "m")
    checkpoint = open_checkpoint(folder)
    name = "model.layers.0.mlp.experts.2.gate_proj"
    before = checkpoint.index.bytes_read
    weight = checkpoint.layer(name).dequantize().float()
    assert checkpoint.index.bytes_read - before < 2 * 64 * (32 + 2) + 128 * 4 + 100
    whole = tensors["model.layers.0.mlp.experts.gate_up_proj"]
    assert torch.equal(weight, whole[2].t()[::2])


@pytest.mark.parametrize("wrong", ["dtype", "bytes of a block", "scales"])
def test_broken_blocks_of_gpt_oss_are_refused(tmp_path: Path, wrong: str) -> None:
    folder, _ = gpt_oss(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.experts.down_proj"
    if wrong == "dtype":
        tensors[f"{name}_blocks"] = tensors[f"{name}_blocks"].int()
    elif wrong == "scales":
        tensors[f"{name}_scales"] = tensors[f"{name}_scales"][:, :32].contiguous()
    else:
        tensors[f"{name}_blocks"] = tensors[f"{name}_blocks"][..., :8].contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="must be uint8") as error:
        open_checkpoint(folder)
    assert "down_proj" in error.value.tensor


MXFP4 = {
    "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
    "dynamic": False, "scale_dtype": "torch.uint8",
}  # fmt: skip
SAYS_FLOAT4: dict[str, dict[str, Any]] = {
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": MXFP4, "input_activations": None}
        },
    },
    "modelopt": {"quant_method": "modelopt", "quant_algo": "MXFP4"},
}


@pytest.mark.parametrize("parts", [("_packed", "_scale"), ("", "_weight_scale")])
@pytest.mark.parametrize("method", SAYS_FLOAT4)
def test_gpt_oss_whose_joined_experts_alone_are_packed_is_refused_as_such(
    tmp_path: Path, method: str, parts: tuple[str, str]
) -> None:
    """Where no linear is quantized beside them, no tensor has a name that layers have."""

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, x in tensors.items():
            if "experts" in name and x.dim() == 3:
                shapes = ((4, x.shape[2], 32), (4, x.shape[2], 2))
                for part, shape in zip(parts, shapes, strict=True):
                    found[name + part] = torch.zeros(shape, dtype=torch.uint8)
            else:
                found[name] = x
        return found

    folder = dense("gpt-oss", tmp_path / "m")
    packed.rewrite(folder, change, SAYS_FLOAT4[method])
    for load in (open_checkpoint, mixed_gemm.from_pretrained):
        with pytest.raises(CheckpointError, match=SAID) as error:
            load(folder)
        assert "mlp.experts" in error.value.tensor
    run = CliRunner().invoke(app, ["eval", str(folder), str(Path(__file__))])
    assert run.exit_code == 1 and SAID in run.output


def test_load_parallel_refuses_them_as_such(tmp_path: Path) -> None:
    """Ranks are not needed to see that the model has no place for a layer."""
    config, pack = FORMATS["awq"]
    folder = dense("Qwen3-MoE", tmp_path / "m")
    packed.rewrite(folder, packed_linears(pack, "experts"), config)
    checkpoint = open_checkpoint(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(MODELS["Qwen3-MoE"])
    name = next(iter(checkpoint.layers))
    with pytest.raises(CheckpointError, match=SAID):
        _place(model, checkpoint, name, nn.Identity())
    with pytest.raises(ValueError, match=r"has a quantized model\.other, which the model has not"):
        _place(model, checkpoint, "model.other", nn.Identity())
