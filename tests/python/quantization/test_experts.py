"""``quantize_`` and its methods on the experts of a mixture, which transformers holds in tensors of
three dimensions: the layers that they become are quantized, saved and read as others are."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from integrations.test_experts import MODELS as OTHERS
from integrations.test_experts import SIZES
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.nn.experts import Experts
from mixed_gemm.quantization import Options
from mixed_gemm.quantization.block_experts import FEW_TOKENS
from mixed_gemm.quantization.methods.awq import AWQ
from mixed_gemm.quantization.names import DEFAULT_SKIP

MODELS = {
    **OTHERS,
    "Llama 4": transformers.Llama4TextConfig(
        **SIZES, num_local_experts=4, intermediate_size_mlp=64, moe_layers=[0],
        attn_temperature_tuning=False,
    ),
    "Nemotron-H": transformers.NemotronHConfig(
        **{**SIZES, "num_hidden_layers": 2}, n_routed_experts=4, moe_intermediate_size=64,
        moe_shared_expert_intermediate_size=64, layers_block_type=["attention", "moe"],
        n_group=1, topk_group=1,
    ),
}  # fmt: skip
IDS = torch.arange(14).view(2, 7)
READ_BY_STOCK = ("Qwen3-MoE", "Mixtral", "DeepSeek-V3")


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    config = copy.deepcopy(MODELS[name])  # quantize_ writes into it
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def tokens(count: int, batches: int = 1) -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    return [torch.randint(0, 96, (1, count), generator=random) for _ in range(batches)]


def experts_of(model: nn.Module) -> Experts:
    return next(x for x in model.modules() if isinstance(x, Experts))


@pytest.mark.parametrize("scheme", ["w4a16", "w4a16_asym", "w8a16", "w8a8", "fp8", "mxfp4", "nf4"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_quantized_saved_and_read(tmp_path: Path, name: str, scheme: str) -> None:
    model = model_of(name)
    dense = model(IDS).logits
    options = {"group_size": 32} if "a16" in scheme else {}
    report = mixed_gemm.quantize_(model, scheme, **options)
    names = [x for x, layer in report.layers.items() if ".experts." in x and layer.scheme]
    assert len(names) == 4 * (2 if name == "Nemotron-H" else 3)
    assert all(isinstance(model.get_submodule(x), mixed_gemm.Linear) for x in names)
    found = model(IDS).logits
    assert 0 < (found - dense).norm() / dense.norm() < 0.3
    model.save_pretrained(tmp_path)
    again = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32)
    assert torch.equal(again(IDS).logits, found)
    again.save_pretrained(tmp_path / "again")
    assert keys(tmp_path / "again") == keys(tmp_path)
    assert torch.equal(copy.deepcopy(again)(IDS).logits, found)


def keys(folder: Path) -> set[str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


STOCK = """
import sys, torch, transformers
for folder in sys.argv[1:]:
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    except Exception as error:
        torch.save(repr(error), folder + "/answer.pt")
        continue
    assert type(model.hf_quantizer).__module__.startswith("transformers.")
    torch.save(model(torch.arange(14).view(2, 7)).logits, folder + "/answer.pt")
assert "mixed_gemm" not in sys.modules
"""


def test_stock_transformers_reads_what_was_saved_or_refuses_it(tmp_path: Path) -> None:
    """All folders in one process, which takes seconds to import transformers."""
    wanted: dict[Path, Tensor | None] = {}
    for name, schemes in {
        **dict.fromkeys(READ_BY_STOCK, ("w4a16", "w8a16", "fp8")),
        **dict.fromkeys(("gpt-oss", "Llama 4"), ("w4a16",)),
    }.items():
        for scheme in schemes:
            model, folder = model_of(name), tmp_path / f"{name}-{scheme}".replace(" ", "-")
            mixed_gemm.quantize_(model, scheme, **({} if scheme == "fp8" else {"group_size": 32}))
            model.save_pretrained(folder)
            is_read = name in READ_BY_STOCK
            assert (folder / "README.md").exists() is not is_read
            wanted[folder] = model(IDS).logits if is_read else None
    command = [sys.executable, "-c", STOCK, *map(str, wanted)]
    subprocess.run(command, check=True, capture_output=True)
    for folder, logits in wanted.items():
        found = torch.load(folder / "answer.pt")
        if logits is None:
            assert isinstance(found, str), folder
            assert "in one tensor" in (folder / "README.md").read_text()
            continue
        near = 0.1 if folder.name.endswith("fp8") else 1e-5  # experts' activations are not rounded
        assert torch.allclose(found, logits, atol=near), folder


@pytest.mark.parametrize(
    ("name", "router"),
    [("Qwen3-MoE", "mlp.gate"), ("Mixtral", "block_sparse_moe.gate"), ("gpt-oss", "mlp.router")],
)
def test_routers_are_on_the_list_of_what_is_dense(tmp_path: Path, name: str, router: str) -> None:
    """vLLM has linears there, and looks for packed ones that are not on the list."""
    model = model_of(name)
    mixed_gemm.quantize_(model, "w4a16", group_size=32)
    model.save_pretrained(tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())["quantization_config"]["ignore"]
    assert f"model.layers.0.{router}" in found and "lm_head" in found


@pytest.mark.parametrize("name", MODELS)
def test_dense_files_are_quantized_as_they_are_read(tmp_path: Path, name: str) -> None:
    model = model_of(name)
    model.save_pretrained(tmp_path)
    mixed_gemm.quantize_(model, "w4a16", group_size=32)
    asked = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)

    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=asked, dtype=torch.float32
    )
    assert torch.equal(loaded(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("name", READ_BY_STOCK)
def test_dense_files_of_joined_experts_are_read(tmp_path: Path, name: str) -> None:
    """As save_pretrained writes them where it is asked for no original format."""
    model = model_of(name)
    model.save_pretrained(tmp_path, save_original_format=False)
    assert any(key.endswith("experts.gate_up_proj") for key in keys(tmp_path))
    asked = mixed_gemm.MixedGemmConfig("w8a16", group_size=32)
    loaded = mixed_gemm.from_pretrained(tmp_path, quantization_config=asked)
    mixed_gemm.quantize_(model, "w8a16", group_size=32)
    assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    loaded.save_pretrained(tmp_path / "quantized")
    again = mixed_gemm.from_pretrained(tmp_path / "quantized", dtype=torch.float32)
    assert torch.equal(again(IDS).logits, loaded(IDS).logits)


@pytest.mark.parametrize("method", ["gptq", "awq", "hqq", "autoround"])
@pytest.mark.parametrize("name", ["Qwen3-MoE", "gpt-oss"])
def test_methods_quantize_experts(name: str, method: str) -> None:
    model = model_of(name)
    dense = model(IDS).logits
    data = None if method == "hqq" else tokens(64, 4)
    mixed_gemm.quantize_(model, "w4a16", group_size=32, method=method, calibration=data)
    assert (model(IDS).logits - dense).norm() / dense.norm() < 0.3


def test_gptq_makes_the_outputs_of_experts_better() -> None:
    errors = {}
    for method in (None, "gptq"):
        model = model_of("Qwen3-MoE")
        data = tokens(128, 8)
        wanted = torch.cat([model.model(x).last_hidden_state for x in data]).detach()
        only = lambda name, module: ".experts." not in name  # noqa: E731
        mixed_gemm.quantize_(
            model, "w4a16", group_size=32, method=method, skip=only,
            calibration=None if method is None else data,
        )  # fmt: skip
        found = torch.cat([model.model(x).last_hidden_state for x in data]).detach()
        errors[method] = float((found - wanted).norm())
    assert errors["gptq"] < 0.9 * errors[None]


def test_experts_that_few_tokens_reach_see_those_of_the_layer() -> None:
    model = model_of("Mixtral")
    report = mixed_gemm.quantize_(
        model, "w4a16", group_size=32, method="gptq", calibration=tokens(1)
    )
    notes = [x.note for name, x in report.layers.items() if ".experts." in name]
    assert sum("saw 0 tokens of its own" in note for note in notes) == 2 * 3
    assert sum("saw 1 tokens of its own" in note for note in notes) == 2 * 3
    assert not experts_of(model).starved
    model = model_of("Mixtral")
    data = tokens(8 * FEW_TOKENS)
    report = mixed_gemm.quantize_(model, "w4a16", group_size=32, method="gptq", calibration=data)
    seen = [x.note for name, x in report.layers.items() if ".experts." in name]
    assert not all("of its own" in note for note in seen)


def test_statistics_of_experts_are_those_of_their_own_runs() -> None:
    """GPTQ finds the same codes where the block runs once for all of them and once for each."""
    found = []
    for most in (1 << 30, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mixed_gemm.quantization.block_experts.MAX_BYTES", most)
            model = model_of("Qwen3-MoE")
            mixed_gemm.quantize_(
                model, "w4a16", group_size=32, method="gptq", calibration=tokens(200, 2)
            )
            found.append(model(IDS).logits)
    assert torch.equal(*found)


def test_awq_folds_within_an_expert_alone() -> None:
    model = model_of("Mixtral")
    report = mixed_gemm.quantize_(
        model, "w4a16", group_size=32, method=AWQ(), calibration=tokens(200, 2)
    )
    notes = {name: x.note for name, x in report.layers.items() if ".experts." in name}
    for name, note in notes.items():
        owner, _, part = name.rpartition(".")
        if part == "w2":
            assert f"folded into {owner.removeprefix('model.layers.0.')}.w3" in note
        else:
            assert "not scaled" in note


@pytest.mark.parametrize("skip", ["experts", ["*.w1", "*.w2", "*.w3", "w1", "w2", "w3"]])
def test_experts_that_are_skipped_stay_as_they_were(skip: Any) -> None:
    model = model_of("Mixtral")
    before = model.model.layers[0].mlp.experts
    report = mixed_gemm.quantize_(model, "w4a16", group_size=32, skip=skip)
    assert model.model.layers[0].mlp.experts is before
    assert "matches skip" in report.layers["model.layers.0.mlp.experts.down_proj"].reason
    assert not any(".experts.0." in name for name in report.layers)


@pytest.mark.parametrize("name", ["Mixtral", "gpt-oss"])
@pytest.mark.parametrize("part", ["experts.0", "experts.*.w2", "experts.*.up_proj"])
def test_some_linears_of_experts_stay_dense(tmp_path: Path, name: str, part: str) -> None:
    """They are views of a tensor of all experts before, and are written as their own."""
    model = model_of(name)
    mixed_gemm.quantize_(model, "w4a16", group_size=32, skip=[*DEFAULT_SKIP, part])
    linears = [x for x in experts_of(model).modules() if isinstance(x, nn.Linear)]
    dense = [x.weight for x in linears if not isinstance(x, mixed_gemm.Linear)]
    assert len(dense) == {"experts.0": 3}.get(
        part, 4 * (part.endswith("w2") == (name == "Mixtral"))
    )
    assert all(x.untyped_storage().nbytes() == x.nbytes and x.is_contiguous() for x in dense)
    model.save_pretrained(tmp_path)
    again = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32)
    assert torch.equal(again(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("by", ["torch", "accelerate"])
def test_experts_with_hooks_stay_as_they_were(by: str) -> None:
    model = model_of("Mixtral")
    before = model.model.layers[0].mlp.experts
    if by == "torch":
        before.register_forward_hook(lambda module, args, out: out * 2)
    else:
        accelerate = pytest.importorskip("accelerate", reason="optional: hf extra")
        accelerate.hooks.add_hook_to_module(before, accelerate.hooks.ModelHook())
    report = mixed_gemm.quantize_(model, "w4a16", group_size=32)
    assert model.model.layers[0].mlp.experts is before
    name = "model.layers.0.mlp.experts.gate_up_proj"
    assert "it has hooks, which a swap would drop" in report.layers[name].reason


def refuse_a_group(model: Any) -> None:
    mixed_gemm.quantize_(model, "w4a16", group_size=4096)


def refuse_calibration(model: Any) -> None:
    mixed_gemm.quantize_(model, "w4a16", group_size=32, method="gptq", calibration=[])


@pytest.mark.parametrize("refused", [refuse_a_group, refuse_calibration])
def test_a_refusal_leaves_the_model_as_it_was(refused: Callable[[Any], None]) -> None:
    model = model_of("Mixtral")
    before, dense = model.model.layers[0].mlp.experts, model(IDS).logits
    with pytest.raises(ValueError, match="quantize_"):
        refused(model)
    assert model.model.layers[0].mlp.experts is before
    assert torch.equal(model(IDS).logits, dense)


def test_more_bits_go_to_some_experts() -> None:
    model = model_of("Qwen3-MoE")
    report = mixed_gemm.quantize_(model, "w4a16", group_size=32, options=Options(average_bits=5))
    assert report.average is not None
    widths = {bits for name, bits in report.average.bits.items() if ".experts." in name}
    assert widths == {4, 8}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_generates_the_same_text_again_and_after_a_reload(
    tmp_path: Path, name: str
) -> None:
    model = model_of(name)
    mixed_gemm.quantize_(model, "w4a16", group_size=32)
    first = model.generate(IDS, max_new_tokens=8, do_sample=False)
    assert torch.equal(model.generate(IDS, max_new_tokens=8, do_sample=False), first)
    model.save_pretrained(tmp_path)
    again = mixed_gemm.from_pretrained(tmp_path)
    assert torch.equal(again.generate(IDS, max_new_tokens=8, do_sample=False), first)


def test_a_compiled_model_computes_the_same() -> None:
    model = model_of("Qwen3-MoE")
    mixed_gemm.quantize_(model, "w4a16", group_size=32)
    compiled = torch.compile(model)
    assert torch.allclose(compiled(IDS).logits, model(IDS).logits, atol=1e-5)


@pytest.mark.parametrize("scheme", ["w4a16", "w4a16_asym", "mxfp4", "nvfp4"])
def test_files_of_stacked_experts_are_those_of_experts_apart(tmp_path: Path, scheme: str) -> None:
    for name in ("apart", "stacked"):
        with pytest.MonkeyPatch.context() as patch:
            if name == "apart":
                patch.setattr("mixed_gemm.quantization.model.stack_experts", lambda model: None)
            model = model_of("gpt-oss")
            mixed_gemm.quantize_(model, scheme, **({"group_size": 32} if "a16" in scheme else {}))
        experts = experts_of(model)
        assert (experts._stacked is not None) is (name == "stacked")
        model.save_pretrained(tmp_path / name / "model")
        mixed_gemm.save_checkpoint(model, tmp_path / name / "checkpoint")
        torch.save(model.state_dict(), tmp_path / name / "state")
        held = (*model.parameters(), *model.buffers())
        assert model.get_memory_footprint() == sum(x.nbytes for x in held)
    for kind in ("model", "checkpoint"):
        folders = [tmp_path / name / kind for name in ("apart", "stacked")]
        found = [load_file(folder / "model.safetensors") for folder in folders]
        assert found[0].keys() == found[1].keys()
        assert all(torch.equal(x, found[1][name]) for name, x in found[0].items())
    sizes = [(tmp_path / name / "state").stat().st_size for name in ("apart", "stacked")]
    assert sizes[1] < 1.05 * sizes[0]


@pytest.mark.parametrize("name", ["Qwen3-MoE", "Mixtral", "gpt-oss", "DeepSeek-V3"])
def test_a_model_is_one_graph(name: str) -> None:
    model = model_of(name).requires_grad_(False)
    mixed_gemm.quantize_(model, "w4a16", group_size=32)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (7, 13):
        ids = torch.arange(count).view(1, count)
        assert torch.equal(compiled(ids).logits, model(ids).logits)


@pytest.mark.parametrize("name", ["Qwen3-MoE", "Mixtral"])
@pytest.mark.parametrize("origin", ["packed files", "dense files"])
def test_generate_compiles_a_step(tmp_path: Path, name: str, origin: str) -> None:
    """Which transformers asks the quantizer about; on a CPU it compiles where it is told to."""
    model, words = model_of(name), dict[str, Any]()
    if origin == "packed files":
        mixed_gemm.quantize_(model, "w4a16", group_size=32)
    else:
        words["quantization_config"] = mixed_gemm.MixedGemmConfig(group_size=32)
    model.save_pretrained(tmp_path)
    loaded: Any = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32, **words)
    assert experts_of(loaded)._stacked is not None and loaded.hf_quantizer.is_compileable
    assert not copy.deepcopy(loaded).hf_quantizer.is_compileable

    asked: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False}
    wanted = loaded.generate(IDS, **asked)
    torch._dynamo.reset()
    graphs = 0

    def aot_eager(module: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend("aot_eager")(module, inputs)

    how = transformers.CompileConfig(fullgraph=True, backend=aot_eager, mode=None)
    how._compile_all_devices = True
    found = loaded.generate(IDS, **asked, cache_implementation="static", compile_config=how)
    assert torch.equal(found, wanted) and graphs > 0

    experts = experts_of(loaded)
    experts.expert(1).add_module("adapter", torch.nn.Identity())
    assert not loaded.hf_quantizer.is_compileable
    assert "adapter" in experts.why_one_by_one


@pytest.mark.parametrize("name", [x for x in MODELS if x != "Nemotron-H"])
def test_adapters_train_on_experts_are_saved_and_merged(tmp_path: Path, name: str) -> None:
    """By names of an expert's linears, which peft takes for those of older models elsewhere."""
    import peft

    model = model_of(name)
    mixed_gemm.quantize_(model, "w8a16", group_size=32)
    model.save_pretrained(tmp_path / "base")
    quantized = model(IDS).logits.detach()
    targets = ["q_proj", *(("w1", "w2") if name == "Mixtral" else ("gate_proj", "down_proj"))]
    asked = peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=False)
    adapted = peft.get_peft_model(model, asked)
    changed = [x for x, y in adapted.named_modules() if hasattr(y, "lora_A") and ".experts." in x]
    assert len(changed) == 4 * 2
    optimizer = torch.optim.SGD([x for x in adapted.parameters() if x.requires_grad], lr=0.5)
    losses = []
    for _ in range(4):
        loss = adapted(IDS, labels=IDS).loss
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0]
    trained = adapted.eval()(IDS).logits.detach()
    assert not torch.allclose(trained, quantized, atol=1e-2)

    adapted.save_pretrained(tmp_path / "adapter")
    base = mixed_gemm.from_pretrained(tmp_path / "base", dtype=torch.float32)
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert torch.equal(again(IDS).logits, trained)
    merged = adapted.merge_and_unload()
    far = ((merged(IDS).logits - trained).abs() > 0.05).any(-1)
    assert far.sum() <= 1  # a token that the rounding of a merge sends to another expert
