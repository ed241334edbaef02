"""transformers end to end on the CPU, with a Llama of one layer. Skipped without the package; what
it stands on (the loaders) is tested without.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny_llama
from support.checkpoints import INTEGERS
from support.generation import (
    PROMPT,
    assert_equals_dense,
    dense_model,
    generated,
    logits,
    quantized_layers,
    truth,
    worst_ratio,
)
from support.training import losses_of

import mixed_gemm
from mixed_gemm.formats import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.disable_progress_bar()


@pytest.mark.parametrize("folder", INTEGERS)
def test_from_pretrained_generates_what_the_dense_model_does(repository, folder):
    model = mixed_gemm.from_pretrained(repository / "tests" / "data" / folder, dtype=torch.float32)
    assert set(quantized_layers(model)) == set(tiny_llama.LINEARS)
    assert not model.training
    if folder == "ct_int_8bit":  # whose activations are rounded too
        assert {x.weight.kind for x in quantized_layers(model).values()} == {"w8a8"}
        path = repository / "tests" / "data" / folder
        model = mixed_gemm.from_pretrained(path, dtype=torch.float32, weight_only=True)
    assert_equals_dense(model, truth(folder))


@pytest.mark.parametrize("folder", ["awq_gemm", "gptq_v2_4bit_act_order", "ct_pack_8bit_channel"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_from_pretrained_keeps_the_asked_dtype(repository, folder, dtype):
    model = mixed_gemm.from_pretrained(repository / "tests" / "data" / folder, dtype=dtype)
    assert model.dtype == dtype
    for layer in quantized_layers(model).values():
        assert layer.scales.dtype == dtype and layer.weight.dtype == dtype
    assert worst_ratio(model) <= 1.0


@pytest.mark.parametrize(
    "folder", ["awq_gemm", "gptq_v2_4bit_act_order", "ct_pack_4bit", "native_4bit_act_order"]
)
def test_save_pretrained_and_reload_is_identical(repository, tmp_path, folder):
    model = mixed_gemm.from_pretrained(repository / "tests" / "data" / folder, dtype=torch.float32)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors" and config["mixed_gemm"]["version"]
    for again in (
        mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32),
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32),
    ):
        assert set(quantized_layers(again)) == set(tiny_llama.LINEARS)
        assert torch.equal(logits(again), logits(model))
    checkpoint = open_checkpoint(tmp_path)
    form = "mixed-gemm-packed" if "act_order" in folder else "pack-quantized"
    assert checkpoint.format == f"compressed-tensors {form}"
    for name, layer in quantized_layers(model).items():
        assert torch.equal(checkpoint.layer(name).dequantize(), layer.dequantize())


def test_folders_of_former_versions_load_with_auto_model(repository):
    path = repository / "tests" / "data" / "native_4bit_act_order"
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    assert_equals_dense(model, truth("native_4bit_act_order"))


def test_save_checkpoint_of_a_loaded_model_is_compressed_tensors(repository, tmp_path):
    model = mixed_gemm.from_pretrained(
        repository / "tests" / "data" / "awq_gemm", dtype=torch.float16
    )
    save_checkpoint(model, tmp_path)
    assert open_checkpoint(tmp_path).format == "compressed-tensors pack-quantized"
    again = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float16)
    assert torch.equal(logits(again), logits(model))


@pytest.fixture
def restored_tables():
    from transformers.quantizers import auto

    saved = dict(auto.AUTO_QUANTIZATION_CONFIG_MAPPING)
    yield
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING.clear()
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING.update(saved)


@pytest.mark.parametrize(
    ("folder", "method"),
    [
        ("awq_gemm", "awq"),
        ("gptq_v1_3bit", "gptq"),
        ("ct_pack_4bit_zeros", "compressed-tensors"),
    ],
)
def test_enable_transformers_makes_auto_model_use_it(repository, restored_tables, folder, method):
    mixed_gemm.enable_transformers([method])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        repository / "tests" / "data" / folder, dtype=torch.float32
    )
    assert set(quantized_layers(model)) == set(tiny_llama.LINEARS)
    assert_equals_dense(model, truth(folder))


def test_enable_transformers_refuses_what_it_does_not_read(restored_tables):
    with pytest.raises(ValueError, match=r"methods must be among .* got bitsandbytes"):
        mixed_gemm.enable_transformers(["awq", "bitsandbytes"])


def test_from_pretrained_finds_the_configuration_of_old_autogptq(repository, tmp_path):
    shutil.copytree(repository / "tests" / "data" / "gptq_v1_4bit", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    old = config.pop("quantization_config")
    old.pop("quant_method")
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    (tmp_path / "m" / "quantize_config.json").write_text(json.dumps(old))
    model = mixed_gemm.from_pretrained(tmp_path / "m", dtype=torch.float32)
    assert_equals_dense(model, truth("gptq_v1_4bit"))


# --- on the fly --------------------------------------------------------------------------------


@pytest.fixture
def dense_folder(tmp_path):
    weights = {
        name: (tiny_llama.scatter(name + "dense", n, k) / 2**19 - 1).float() * 0.2
        for name, (n, k) in tiny_llama.LINEARS.items()
    }
    dense_model(weights, biases=False).save_pretrained(tmp_path / "dense")
    return tmp_path / "dense"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bits": 8, "group_size": -1},
        {"group_size": 32, "symmetric": False},
        {"group_size": 64, "symmetric": False, "zero_mode": "add"},
    ],
)
def test_quantization_config_is_quantize_while_loading(dense_folder, tmp_path, options):
    options = {"group_size": 32, **options}
    model = mixed_gemm.from_pretrained(
        dense_folder,
        dtype=torch.float32,
        quantization_config=mixed_gemm.MixedGemmConfig(**options),
    )
    dense = transformers.AutoModelForCausalLM.from_pretrained(dense_folder, dtype=torch.float32)
    mixed_gemm.quantize_(dense, progress=False, **options)
    assert set(quantized_layers(model)) == set(quantized_layers(dense)) == set(tiny_llama.LINEARS)
    assert torch.equal(logits(model), logits(dense))
    for name, layer in quantized_layers(dense).items():
        assert str(layer) == str(model.get_submodule(name))
    dequantized = dense_model(
        {n: m.dequantize() for n, m in quantized_layers(model).items()}, False
    )
    assert_equals_dense(model, dequantized)
    model.save_pretrained(tmp_path / "saved")
    again = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved", dtype=torch.float32
    )
    assert torch.equal(logits(again), logits(model))
    (group,) = again.config.quantization_config.to_dict()["config_groups"].values()
    assert group["weights"]["num_bits"] == options.get("bits", 4)


def test_quantization_config_leaves_named_modules_alone(dense_folder):
    config = mixed_gemm.MixedGemmConfig(group_size=32, modules_to_not_convert=["down_proj"])
    model = mixed_gemm.from_pretrained(dense_folder, quantization_config=config)
    left = set(tiny_llama.LINEARS) - set(quantized_layers(model))
    assert left == {f"{tiny_llama.BLOCK}.mlp.down_proj"}
    assert type(model.lm_head) is torch.nn.Linear


def test_quantization_config_with_a_group_above_k_is_refused(dense_folder):
    with pytest.raises(ValueError, match=r"q_proj: group_size must .* got group_size=128, K=64"):
        mixed_gemm.from_pretrained(
            dense_folder, quantization_config=mixed_gemm.MixedGemmConfig(group_size=128)
        )


def test_quantization_config_refuses_nonsense():
    for options, text in (
        ({"bits": 5}, "bits must be 4 or 8"),
        ({"group_size": 12}, "group_size must be -1"),
        ({"nbits": 4}, "MixedGemmConfig has no nbits"),
        ({"quant_method": "awq"}, "quant_method must be mixed_gemm"),
    ):
        with pytest.raises(ValueError, match=text):
            mixed_gemm.MixedGemmConfig(**options)


def test_tied_embeddings_stay_tied_and_reload(tmp_path):
    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "tie_word_embeddings": True})
    transformers.LlamaForCausalLM(config).float().save_pretrained(tmp_path / "dense")
    model = mixed_gemm.from_pretrained(
        tmp_path / "dense",
        dtype=torch.float32,
        quantization_config=mixed_gemm.MixedGemmConfig(group_size=32),
    )
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model.save_pretrained(tmp_path / "saved")
    save_checkpoint(model, tmp_path / "ct")
    assert "lm_head.weight" not in open_checkpoint(tmp_path / "ct").tensors
    for folder in ("saved", "ct"):
        again = mixed_gemm.from_pretrained(tmp_path / folder, dtype=torch.float32)
        assert again.lm_head.weight is again.model.embed_tokens.weight
        assert torch.equal(logits(again), logits(model))


def test_a_dynamic_kv_cache_scheme_of_the_files_is_saved_again(repository, tmp_path):
    source = repository / "tests" / "data" / "ct_pack_8bit_channel"
    folder = shutil.copytree(source, tmp_path / "source")
    config = json.loads((folder / "config.json").read_text())
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": True}
    config["quantization_config"]["kv_cache_scheme"] = scheme
    (folder / "config.json").write_text(json.dumps(config))
    model = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
    for i in range(2):  # again from what was saved
        model.save_pretrained(tmp_path / str(i))
        written = json.loads((tmp_path / str(i) / "config.json").read_text())
        assert written["quantization_config"]["kv_cache_scheme"] == scheme
        model = mixed_gemm.from_pretrained(tmp_path / str(i), dtype=torch.float32)
    mixed_gemm.save_checkpoint(model, tmp_path / "checkpoint")
    written = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    assert written["quantization_config"]["kv_cache_scheme"] == scheme


def test_quantization_config_takes_other_groups_where_asked(dense_folder):
    config = mixed_gemm.MixedGemmConfig(group_size=48, ragged=False)
    model = mixed_gemm.from_pretrained(dense_folder, quantization_config=config)
    found = {x.group_size for x in model.modules() if isinstance(x, mixed_gemm.Linear)}
    assert found == {32}  # of 64 and of 128
    config = mixed_gemm.MixedGemmConfig("w8a8_block", ragged=False)
    model = mixed_gemm.from_pretrained(dense_folder, quantization_config=config)
    found = {(x.in_features, x.group_size) for x in model.modules()
             if isinstance(x, mixed_gemm.Linear)}  # fmt: skip
    assert found == {(64, 64), (128, 128)}


def test_dequantize_gives_a_dense_model(repository):
    model = mixed_gemm.from_pretrained(
        repository / "tests" / "data" / "gptq_v2_4bit_act_order", dtype=torch.float32
    )
    tokens = generated(model)
    dense = model.dequantize()
    assert not quantized_layers(dense)
    assert torch.equal(generated(dense), tokens)


# --- broken files ------------------------------------------------------------------------------


@pytest.fixture
def changed(repository, tmp_path):
    """A copy of a fixture whose tensors went through a function."""

    def make(folder, change):
        out = tmp_path / "changed"
        shutil.copytree(repository / "tests" / "data" / folder, out)
        tensors = {name: x.clone() for name, x in load_file(out / "model.safetensors").items()}
        change(tensors)
        (out / "model.safetensors").unlink()
        save_file({k: v.contiguous() for k, v in tensors.items()}, out / "model.safetensors")
        return out

    return make


Q_PROJ = f"{tiny_llama.BLOCK}.self_attn.q_proj"


def test_from_pretrained_without_a_plain_tensor_is_refused(changed):
    path = changed("awq_gemm", lambda x: x.pop("model.norm.weight"))
    with pytest.raises(CheckpointError, match=r"1 missing keys, model\.norm\.weight"):
        mixed_gemm.from_pretrained(path, dtype=torch.float32)


def test_from_pretrained_without_a_quantized_layer_is_refused(changed):
    def drop(tensors):
        for role in ("qweight", "qzeros", "scales"):
            del tensors[f"{Q_PROJ}.{role}"]

    with pytest.raises(CheckpointError, match=r"1 missing keys, .*q_proj\.weight"):
        mixed_gemm.from_pretrained(changed("awq_gemm", drop), dtype=torch.float32)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: x.pop(f"{Q_PROJ}.scales"), r"q_proj\.scales: is missing"),
        (
            lambda x: x.update({f"{Q_PROJ}.scales": x[f"{Q_PROJ}.scales"] * float("nan")}),
            r"q_proj\.scales: must be finite, got nan at \(0, 0\)",
        ),
        (
            lambda x: x.update(
                {
                    f"{Q_PROJ}.{role}": torch.cat([x[f"{Q_PROJ}.{role}"]] * 2, 1)
                    for role in ("qweight", "qzeros", "scales")
                }
            ),
            r"is a weight of \(128, 64\), and the model has \(64, 64\)",
        ),
    ],
)
def test_from_pretrained_of_broken_tensors_is_refused(changed, change, text):
    with pytest.raises(CheckpointError, match=text):
        mixed_gemm.from_pretrained(changed("awq_gemm", change), dtype=torch.float32)


def test_from_pretrained_of_a_truncated_file_is_refused(repository, tmp_path):
    path = shutil.copytree(repository / "tests" / "data" / "awq_gemm", tmp_path / "half")
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: not a whole safetensors file"):
        mixed_gemm.from_pretrained(path, dtype=torch.float32)


def test_from_pretrained_without_a_shard_is_refused(repository, tmp_path):
    source = open_checkpoint(repository / "tests" / "data" / "awq_gemm")
    save_checkpoint(source, tmp_path / "whole", max_shard_bytes=10_000)
    sorted((tmp_path / "whole").glob("*.safetensors"))[1].unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00005\.safetensors: no such file"):
        mixed_gemm.from_pretrained(tmp_path / "whole", dtype=torch.float32)


def test_from_pretrained_can_refuse_a_swapped_zero_convention(repository, tmp_path):
    path = shutil.copytree(repository / "tests" / "data" / "gptq_v1_4bit", tmp_path / "lying")
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (path / "config.json").write_text(json.dumps(config))
    with pytest.warns(CheckpointWarning, match="The tensors are believed"):
        model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    assert_equals_dense(model, truth("gptq_v1_4bit"))
    with warnings.catch_warnings(), pytest.raises(CheckpointWarning, match="zero points"):
        warnings.simplefilter("error", CheckpointWarning)
        mixed_gemm.from_pretrained(path, dtype=torch.float32)


def test_reload_of_broken_files_is_refused(repository, tmp_path):
    model = mixed_gemm.from_pretrained(repository / "tests" / "data" / "awq_gemm")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = {name: x.clone() for name, x in load_file(file).items()}
    for name, value, text in (
        (
            "weight_scale",
            whole[f"{Q_PROJ}.weight_scale"][:32],
            r"weight_scale: must be .* \(64, 2\), got .* \(32, 2\)",
        ),
        (
            "weight_scale",
            whole[f"{Q_PROJ}.weight_scale"] * float("nan"),
            r"weight_scale: must be finite, got nan",
        ),
        (
            "weight_packed",
            whole[f"{Q_PROJ}.weight_packed"][:, :3],
            r"weight_packed: is \[64, 3\], which 4 bits and weight_shape \[64, 64\] do not give",
        ),
    ):
        file.unlink()
        save_file({**whole, f"{Q_PROJ}.{name}": value.contiguous()}, file, {"format": "pt"})
        with pytest.raises((CheckpointError, ValueError), match=text):
            mixed_gemm.from_pretrained(tmp_path)


def test_from_pretrained_of_an_unquantized_model_says_how(dense_folder):
    with pytest.raises(
        ValueError, match=r"is not quantized\. Hint: quantization_config=mixed_gemm"
    ):
        mixed_gemm.from_pretrained(dense_folder)


def test_quantizing_while_loading_refuses_offloading(dense_folder):
    pytest.importorskip("accelerate", reason="device_map needs it")
    with pytest.raises(ValueError, match="device_map must not offload to cpu or disk while"):
        mixed_gemm.from_pretrained(
            dense_folder,
            device_map={"model": "cpu", "lm_head": "disk"},
            quantization_config=mixed_gemm.MixedGemmConfig(group_size=32),
        )


def test_from_pretrained_on_a_device_map(repository):
    pytest.importorskip("accelerate", reason="device_map needs it")
    model = mixed_gemm.from_pretrained(
        repository / "tests" / "data" / "ct_pack_4bit", device_map="cpu", dtype=torch.float32
    )
    assert_equals_dense(model, truth("ct_pack_4bit"))


# --- registration ------------------------------------------------------------------------------


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("first", ["mixed_gemm", "transformers"])
def test_import_registers_in_either_order(repository, tmp_path, first):
    mixed_gemm.from_pretrained(repository / "tests" / "data" / "awq_gemm").save_pretrained(tmp_path)
    second = {"mixed_gemm": "transformers", "transformers": "mixed_gemm"}[first]
    code = (
        f"import sys, {first}, {second}, transformers, mixed_gemm\n"
        "m = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "print(type(m.model.layers[0].mlp.up_proj).__module__)"
    )
    assert run_python(code, str(tmp_path)).strip() == "mixed_gemm.nn.linear"


def test_import_does_not_import_transformers():
    code = "import sys, mixed_gemm; print([x for x in sys.modules if x.startswith('transformers')])"
    assert run_python(code).strip() == "[]"


# --- adapters ----------------------------------------------------------------------------------


def test_lora_on_top_trains(repository):
    peft = pytest.importorskip("peft", reason="optional")
    model = mixed_gemm.from_pretrained(
        repository / "tests" / "data" / "gptq_v2_4bit_act_order", dtype=torch.float32
    )
    before = {name: layer.b_packed.clone() for name, layer in quantized_layers(model).items()}
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, init_lora_weights=True)
    tuned = peft.get_peft_model(model, config)
    trained = [p for p in tuned.parameters() if p.requires_grad]
    assert len(trained) == 2 * len(tiny_llama.LINEARS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = losses_of(tuned, trained, PROMPT, lr=1e-2)
    assert losses[-1] < 0.5 * losses[0], losses
    for name, packed in before.items():
        layer = tuned.get_submodule(f"base_model.model.{name}").base_layer
        assert torch.equal(layer.b_packed, packed)
