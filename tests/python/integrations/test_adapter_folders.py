"""Folders that peft and transformers' Trainer leave: an adapter alone, beside the model, in folders
below. What loads has the outputs of the model that was trained; what has no model in it is named.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import tiny_llama
from torch import Tensor

import mixed_gemm
from mixed_gemm import open_checkpoint, save_checkpoint
from mixed_gemm.formats.errors import CheckpointError
from mixed_gemm.quantization import DenseCheckpoint

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
peft = pytest.importorskip("peft", reason="optional: hf extra")

TOKENS = torch.tensor([[1, 5, 7, 40, 2, 9], [3, 3, 9, 21, 60, 8]])
F32 = {"dtype": torch.float32}
CONFIG = "adapter_config.json"


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=TOKENS).logits
    return found


def llama(kind: str = "LlamaForCausalLM") -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "dtype": "float32"})
    config.pad_token_id = 0
    return getattr(transformers, kind)(config).eval()


def adapted(base: Path, folder: Path, model: Any, config: Any) -> Tensor:
    """What the model gives with an adapter that is saved into a folder and names ``base``."""
    model = peft.get_peft_model(model, config)
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p) / 10)
    for saved in model.peft_config.values():
        saved.base_model_name_or_path = str(base)
    model.save_pretrained(folder)
    return logits(model.eval())


def lora(**options: Any) -> Any:
    options = {"task_type": "CAUSAL_LM", "target_modules": ["q_proj", "down_proj"], **options}
    return peft.LoraConfig(r=4, **options)


class Made:
    """A quantized base, an adapter of it in a folder of its own, and what both give together."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.base, self.adapter = folder, folder / "base", folder / "adapter"
        model = llama()
        mixed_gemm.quantize_(model, "w8a16", progress=False)
        model.save_pretrained(self.base)
        self.wanted = adapted(self.base, self.adapter, model, lora())

    def copy(self, *folders: Path, **changes: Any) -> Path:
        """One folder with the files of several, and with changes to what the adapter says."""
        made: Path = self.folder / f"copy-{len(list(self.folder.iterdir()))}"
        for folder in folders or (self.adapter,):
            shutil.copytree(folder, made, dirs_exist_ok=True)
        if changes:
            said = json.loads((made / CONFIG).read_text())
            (made / CONFIG).write_text(json.dumps({**said, **changes}))
        return made

    def as_trained(self, path: Path, **options: Any) -> bool:
        return torch.equal(logits(mixed_gemm.from_pretrained(path, **F32, **options)), self.wanted)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("adapters"))


def refused(call: Callable[[], object], *words: str) -> None:
    with pytest.raises((CheckpointError, ValueError, OSError, ImportError)) as caught:
        call()
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{caught.value} without {missing}"


def test_an_adapter_alone_is_loaded_on_the_model_that_it_names(made: Made) -> None:
    assert made.as_trained(made.adapter)
    assert made.as_trained(made.adapter, model_class=transformers.LlamaForCausalLM)
    named = mixed_gemm.from_pretrained(made.adapter, adapter_name="x")
    assert list(named.peft_config) == ["x"] and not named.training


def test_a_base_that_is_quantized_as_it_loads(made: Made, tmp_path: Path) -> None:
    dense = llama()
    dense.save_pretrained(tmp_path / "dense")
    adapted(tmp_path / "dense", tmp_path / "adapter", dense, lora())
    asked = {"quantization_config": mixed_gemm.MixedGemmConfig("w8a16"), **F32}
    model = mixed_gemm.from_pretrained(tmp_path / "dense", **asked)
    wanted = logits(peft.PeftModel.from_pretrained(model, tmp_path / "adapter").eval())
    found = mixed_gemm.from_pretrained(tmp_path / "adapter", **asked)
    assert torch.equal(logits(found), wanted)
    refused(lambda: mixed_gemm.from_pretrained(tmp_path / "adapter"), "is not quantized")


def test_what_trainer_leaves_around_an_adapter(made: Made) -> None:
    run = made.folder / "run"
    for step in (10, 20):
        place = shutil.copytree(made.adapter, run / f"checkpoint-{step}")
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
            torch.save({"state": torch.ones(4, 4)}, place / name)
        (place / "trainer_state.json").write_text("{}")
        assert made.as_trained(place)
    assert made.as_trained(run, subfolder="checkpoint-10")
    assert made.as_trained(run, adapter_kwargs={"subfolder": "checkpoint-20"})
    for call in (mixed_gemm.from_pretrained, open_checkpoint, DenseCheckpoint):
        refused(lambda c=call: c(run), f"{run}: no ", "name one of its folders, checkpoint-10, ")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("pytorch_model_fsdp_0/__0_0.distcp",), "accelerate merge-weights"),
        (("zero_to_fp32.py", "global_step2/mp_rank_00_model_states.pt"), "zero_to_fp32.py FOLDER"),
        (("a.gguf", "b.gguf"), "name one of its .gguf files"),
        (tuple(f"c{i}/config.json" for i in range(6)), "c0, c1, c2, c3 and 2 more"),
    ],
)
def test_folders_with_something_else(tmp_path: Path, files: tuple[str, ...], words: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    for call in (mixed_gemm.from_pretrained, open_checkpoint, DenseCheckpoint):
        refused(lambda c=call: c(tmp_path), f"{tmp_path}: no ", words)


def test_tensors_beside_a_model_are_none_of_it(tmp_path: Path) -> None:
    model = llama()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    model.config.save_pretrained(tmp_path)
    layers = DenseCheckpoint(tmp_path).layers
    for name in ("optimizer.bin", "scheduler.bin", "optimizer.pt", "adapter_model.bin"):
        torch.save({"layer.weight": torch.ones(64, 64)}, tmp_path / name)
    assert DenseCheckpoint(tmp_path).layers == layers


def test_an_adapter_is_no_model_to_quantize_or_convert(made: Made) -> None:
    """Its matrices are 2-D, and were quantized as layers."""
    binary = made.copy()
    tensors = load_file(binary / "adapter_model.safetensors")
    (binary / "adapter_model.safetensors").unlink()
    torch.save(tensors, binary / "adapter_model.bin")
    for path in (made.adapter, made.adapter / "adapter_model.safetensors", binary):
        for call in (DenseCheckpoint, open_checkpoint):
            refused(
                lambda c=call, p=path: c(p),
                f"{path}: holds an adapter (LORA) for {made.base}, and no model", "merge_and_unload"
            )  # fmt: skip
    file = made.adapter / "adapter_model.safetensors"
    refused(lambda: mixed_gemm.from_pretrained(file), f"{file}: is a file")


@pytest.mark.parametrize(
    ("base", "words"),
    [
        (None, ("must name the model", "got None")),
        ("", ("must name the model",)),
        ("./nowhere/base", ("'./nowhere/base', which cannot be loaded", "no such file or folder")),
        ("/nowhere", ("'/nowhere', which cannot be loaded", "Hint: write its folder")),
        ("some/model", ("'some/model', which cannot be loaded", "Hint: write its folder")),
    ],
)
def test_a_base_that_is_not_there(made: Made, base: Any, words: tuple[str, ...]) -> None:
    folder = made.copy(base_model_name_or_path=base)
    refused(lambda: mixed_gemm.from_pretrained(folder), f"{folder / CONFIG}: ", *words)


def test_bases_of_other_kinds(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made.copy(base_model_name_or_path=str(made.adapter))
    refused(lambda: mixed_gemm.from_pretrained(folder), f"{made.adapter}, which is an adapter, too")
    monkeypatch.chdir(made.folder)
    assert made.as_trained(made.copy(base_model_name_or_path="./base"))


def test_an_adapter_beside_the_model_is_put_on_it_and_goes_along(made: Made) -> None:
    both = made.copy(made.base, made.adapter)
    assert made.as_trained(both)
    target = made.folder / "converted"
    save_checkpoint(open_checkpoint(both), target)
    assert made.as_trained(target)
    save_checkpoint(open_checkpoint(both), target, overwrite=True)
    tensors = load_file(both / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, both / "model.safetensors", {"format": "pt"})
    refused(lambda: mixed_gemm.from_pretrained(both), "1 missing keys, model.norm.weight")


def test_an_adapter_is_not_overwritten_by_a_model_of_another(made: Made) -> None:
    target = made.copy()
    before = {x: x.read_bytes() for x in target.iterdir()}
    for overwrite in (False, True):
        refused(
            lambda o=overwrite: save_checkpoint(open_checkpoint(made.base), target, overwrite=o),
            f"{target} holds an adapter (adapter_config.json)",
        )
    assert {x: x.read_bytes() for x in target.iterdir()} == before


def test_a_model_with_adapters_on_it_is_not_saved_as_one(made: Made, tmp_path: Path) -> None:
    model = mixed_gemm.from_pretrained(made.adapter)
    refused(
        lambda: save_checkpoint(model, tmp_path / "out"), "q_proj has an adapter on it", "merge"
    )
    assert not (tmp_path / "out").exists()


def test_adapters_that_do_not_fit(made: Made) -> None:
    less = made.copy()
    tensors = load_file(less / "adapter_model.safetensors")
    lost = tensors.popitem()[0].split("base_model.model.")[1]
    save_file(tensors, less / "adapter_model.safetensors")
    layer = lost.rsplit(".", 2)[0]
    refused(lambda: mixed_gemm.from_pretrained(less), "1 missing keys", layer)
    cut = made.copy() / "adapter_model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-50])
    refused(lambda: mixed_gemm.from_pretrained(cut.parent), "cannot be put on LlamaForCausalLM")
    rank = made.copy(r=8)
    refused(lambda: mixed_gemm.from_pretrained(rank), "cannot be put on LlamaForCausalLM")
    broken = made.copy()
    (broken / CONFIG).write_text("{")
    for call in (mixed_gemm.from_pretrained, open_checkpoint):
        refused(lambda c=call: c(broken), f"{broken / CONFIG}: not a readable JSON file")


def test_a_head_that_was_trained_whole(tmp_path: Path) -> None:
    model = llama("LlamaForSequenceClassification")
    mixed_gemm.quantize_(model, "w8a16", progress=False)
    model.save_pretrained(tmp_path / "base")
    wanted = adapted(tmp_path / "base", tmp_path / "a", model, lora(task_type="SEQ_CLS"))
    kind = transformers.AutoModelForSequenceClassification
    found = mixed_gemm.from_pretrained(tmp_path / "a", model_class=kind, **F32)
    assert torch.equal(logits(found), wanted)
    refused(lambda: mixed_gemm.from_pretrained(tmp_path / "a"), "model_class=")


@pytest.mark.parametrize("kind", ["IA3", "DoRA", "prompt"])
def test_kinds_that_transformers_loads_and_others_that_peft_does(
    made: Made, tmp_path: Path, kind: str
) -> None:
    config = {
        "IA3": lambda: peft.IA3Config(target_modules=["q_proj"], feedforward_modules=[]),
        "DoRA": lambda: lora(use_dora=True),
        "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    }[kind]()
    model = mixed_gemm.from_pretrained(made.base, **F32)
    wanted = adapted(made.base, tmp_path, model, config)
    try:
        found = mixed_gemm.from_pretrained(tmp_path, **F32)
    except CheckpointError as error:
        assert kind != "IA3" and "Hint" in str(error) and "peft.PeftModel" in str(error)
        found = peft.PeftModel.from_pretrained(
            mixed_gemm.from_pretrained(made.base, **F32), tmp_path
        ).eval()
    torch.testing.assert_close(logits(found), wanted, rtol=0, atol=0)


def test_without_peft_an_adapter_is_not_left_out(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mixed_gemm.integrations.transformers import adapters

    find = adapters.importlib.util.find_spec
    monkeypatch.setattr(
        adapters.importlib.util, "find_spec", lambda x: None if x == "peft" else find(x)
    )
    for path in (made.adapter, made.copy(made.base, made.adapter)):
        refused(lambda p=path: mixed_gemm.from_pretrained(p), "needs peft", "pip install")
