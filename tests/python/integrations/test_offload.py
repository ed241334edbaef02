"""device_map with offloading, by accelerate's own hooks: parts of quantized layers are on disk, or
in the memory of the CPU, between calls, and the model computes the same."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import Scheme

transformers = pytest.importorskip("transformers", reason="optional: hf extra")
accelerate = pytest.importorskip("accelerate", reason="device_map needs it")
IDS = torch.tensor([[1, 5, 7, 9], [2, 4, 8, 16]])
SCHEMES: dict[str, dict[str, Any]] = {
    "int4": {"bits": 4, "group_size": 32, "symmetric": False},
    "ragged": {"bits": 4, "group_size": 48},
    "w8a8": {"scheme": "w8a8", "activations": "static_azp"},
    "w8a8_block": {"scheme": "w8a8_block", "group_size": 32, "symmetric": False},
    "fp8": {"scheme": "fp8"},
    "fp8 blocks": {"scheme": Scheme.fp8(None, strategy="block", block=(32, 32))},
}


def saved(folder: Path, scheme: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Writes the folder of a model of two layers; its logits, when read without offloading."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=96, max_position_embeddings=64, attention_bias=True,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    options: dict[str, Any] = {"embeddings": True, "progress": False, **SCHEMES[scheme]}
    if "activations" in options:
        options["calibration"] = [{"input_ids": IDS}]
    mixed_gemm.quantize_(model, **options)
    model.save_pretrained(folder, max_shard_size="40KB")
    with torch.no_grad():
        logits: Tensor = mixed_gemm.from_pretrained(folder, dtype=dtype)(IDS).logits
    return logits


def drawn_map(draw: random.Random) -> dict[str, str]:
    """Every part of the model on the CPU or on disk, one of them on disk at least."""
    names = ["embed_tokens", "layers.0", "layers.1.self_attn", "layers.1.mlp"]
    norms = ["layers.1.input_layernorm", "layers.1.post_attention_layernorm", "norm", "rotary_emb"]
    found = {f"model.{name}": draw.choice(["cpu", "disk"]) for name in names}
    found[f"model.{draw.choice(names)}"] = "disk"
    return {**found, **{f"model.{name}": "cpu" for name in norms}, "lm_head": "cpu"}


def offloaded(model: Any) -> dict[str, Any]:
    kinds = mixed_gemm.Linear, mixed_gemm.Embedding
    return {
        name: x
        for name, x in model.named_modules()
        if isinstance(x, kinds) and all(p.is_meta for p in x._parameters.values() if p is not None)
    }


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_on_disk_computes_the_same(scheme: str, seed: int, tmp_path: Path) -> None:
    dtype = [torch.float32, torch.bfloat16][seed]
    wanted, places = saved(tmp_path / "saved", scheme, dtype), drawn_map(random.Random(seed))
    kind = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(
        tmp_path / "saved", dtype=dtype, device_map=places, offload_folder=tmp_path / "disk"
    )
    on_disk = tuple(name for name, place in places.items() if place == "disk")
    found = offloaded(model)
    assert found and all(name.startswith(on_disk) for name in found)
    quantized = [
        name for name, x in model.named_modules()
        if isinstance(x, mixed_gemm.Linear | mixed_gemm.Embedding) and name.startswith(on_disk)
    ]  # fmt: skip
    assert set(found) == set(quantized)
    with torch.no_grad():
        for _ in range(2):  # they are fetched again
            assert torch.equal(model(IDS).logits, wanted)
    assert offloaded(model).keys() == found.keys()  # and dropped
    model.save_pretrained(tmp_path / "again")
    again = mixed_gemm.from_pretrained(tmp_path / "again", dtype=dtype)
    with torch.no_grad():
        assert torch.equal(again(IDS).logits, wanted)


def test_generates_and_a_layer_runs_by_itself(tmp_path: Path) -> None:
    saved(tmp_path / "saved", "int4")
    places = {**drawn_map(random.Random(3)), "model.layers.0": "disk"}
    plain = mixed_gemm.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    model = mixed_gemm.from_pretrained(
        tmp_path / "saved", dtype=torch.float32, device_map=places, offload_folder=tmp_path / "d"
    )
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(IDS, **options), plain.generate(IDS, **options))
    name = "model.layers.0.mlp.up_proj"
    layer, x = model.get_submodule(name), torch.randn(3, 64)
    assert torch.equal(layer(x), plain.get_submodule(name)(x))
    assert "scheme=(int4" in repr(layer) and layer.group_size == 32
    with pytest.raises((NotImplementedError, RuntimeError)):
        copy.deepcopy(model).to(torch.float16)


def test_disk_needs_a_folder(tmp_path: Path) -> None:
    saved(tmp_path / "saved", "int4")
    with pytest.raises(ValueError, match="Hint: offload_folder="):
        mixed_gemm.from_pretrained(
            tmp_path / "saved", dtype=torch.float32, device_map=drawn_map(random.Random(1))
        )


def test_files_of_others_and_of_former_versions(repository: Path, tmp_path: Path) -> None:
    for name in ("awq_gemm", "gptq_v2_4bit_act_order", "ct_pack_8bit_channel"):
        source = repository / "tests" / "data" / name
        plain = mixed_gemm.from_pretrained(source, dtype=torch.float32)
        places = {"model.layers.0": "disk", "model.embed_tokens": "cpu", "model.norm": "cpu",
                  "model.rotary_emb": "cpu", "lm_head": "cpu"}  # fmt: skip
        model = mixed_gemm.from_pretrained(
            source, dtype=torch.float32, device_map=places, offload_folder=tmp_path / name
        )
        assert len(offloaded(model)) == 7
        with torch.no_grad():
            assert torch.equal(model(IDS[:, :2]).logits, plain(IDS[:, :2]).logits)


@pytest.mark.parametrize("scheme", ["int4", "w8a8", "fp8"])
def test_what_waits_in_memory_computes_the_same(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a GPU computes and "cpu" is where layers wait: accelerate's hooks for that, with the
    CPU in the place of the GPU."""
    from transformers import modeling_utils

    def dispatch(model: Any, *_: Any) -> None:
        accelerate.cpu_offload(model, torch.device("cpu"), state_dict=dict(model.state_dict()))

    monkeypatch.setattr(modeling_utils, "accelerate_dispatch", dispatch)
    wanted = saved(tmp_path, scheme)
    places = {"model": "cpu", "lm_head": torch.device("cpu")}  # two, so that it dispatches
    model = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32, device_map=places)
    assert len(offloaded(model)) == 2 * 7 + 1
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(model(IDS).logits, wanted)


def test_auto_is_all_on_one_device_where_it_fits(tmp_path: Path) -> None:
    wanted = saved(tmp_path, "w8a8_block")
    model = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32, device_map="auto")
    device = next(model.parameters()).device
    found = model(IDS.to(device)).logits.cpu()
    assert not offloaded(model)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_auto_leaves_on_disk_what_does_not_fit(tmp_path: Path) -> None:
    wanted = saved(tmp_path / "saved", "int4")
    model = mixed_gemm.from_pretrained(
        tmp_path / "saved", dtype=torch.float32, device_map="auto", max_memory={"cpu": 60_000},
        offload_folder=tmp_path / "disk",
    )  # fmt: skip
    assert "disk" in model.hf_device_map.values() and offloaded(model)
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, wanted)
