"""QLoRA as everybody writes it, on a tiny Llama of transformers with peft: prepare, adapt, train,
merge, save, load.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_llama
from support.training import losses_of

import mixed_gemm
from mixed_gemm import QuantizedTensor

transformers = pytest.importorskip("transformers", reason="optional: hf extra")
peft = pytest.importorskip("peft", reason="optional: hf extra")

TOKENS = torch.tensor([[1, 5, 7, 40, 2, 9], [3, 3, 9, 21, 60, 8]])
SCHEMES: dict[str, dict[str, Any]] = {
    "int4": {"bits": 4, "group_size": 32, "symmetric": False},
    "int8": {"scheme": "w8a16"},
    "w8a8": {"scheme": "w8a8"},
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_DISABLED", "true")
    transformers.utils.logging.disable_progress_bar()


def llama(scheme: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "num_hidden_layers": 2})
    model = transformers.LlamaForCausalLM(config).to(dtype)
    mixed_gemm.quantize_(model, **SCHEMES[scheme], progress=False)
    return model


def prepared(model: Any, checkpointing: bool = True) -> Any:
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpointing)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config)


def quantized(model: Any) -> dict[str, QuantizedTensor]:
    return {n: p for n, p in model.named_parameters() if isinstance(p, QuantizedTensor)}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_plain_loop_trains_the_adapters_alone(scheme: str, dtype: torch.dtype) -> None:
    model = prepared(llama(scheme, dtype))
    weights = quantized(model)
    assert len(weights) == 2 * 7 and {w.dtype for w in weights.values()} == {dtype}
    before = {name: copy.deepcopy(w.tensors()) for name, w in weights.items()}
    trained = [p for p in model.parameters() if p.requires_grad]
    losses = losses_of(model, trained, TOKENS, lr=2e-2)
    assert losses[-1] < 0.85 * losses[0], losses
    for name, weight in quantized(model).items():
        assert all(torch.equal(t, before[name][part]) for part, t in weight.tensors().items())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_trainer_of_transformers_and_a_round_trip(scheme: str, tmp_path: Path) -> None:
    base = llama(scheme, torch.bfloat16)
    base.save_pretrained(tmp_path / "base")
    model = prepared(base)
    rows = [{"input_ids": row, "labels": row} for row in TOKENS.repeat(4, 1)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=4,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        gradient_checkpointing=True,
        report_to=[],
        use_cpu=True,
        bf16=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    assert trainer.train().training_loss > 0
    model.save_pretrained(tmp_path / "adapter")
    model.eval()
    with torch.no_grad():
        wanted = model(TOKENS).logits
        again = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "base", dtype=torch.bfloat16
        )
        assert {type(w) for w in quantized(again).values()} == {
            type(w) for w in quantized(base).values()
        }
        tuned = peft.PeftModel.from_pretrained(again, tmp_path / "adapter").eval()
        found = tuned(TOKENS).logits
    assert (found.float() - wanted.float()).norm() < 0.02 * wanted.float().norm()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_merged_adapters_are_saved_and_loaded(scheme: str, tmp_path: Path) -> None:
    model = prepared(llama(scheme, torch.float32), checkpointing=False)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.02)
    merged = model.merge_and_unload().eval()
    assert len(quantized(merged)) == 2 * 7
    merged.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(again(TOKENS).logits, merged(TOKENS).logits)
