"""Heads of tasks stay dense by default, whoever quantizes: ``quantize_``, ``MixedGemmConfig`` and
the command, over the classes that transformers registers for each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_models import registered, some, tiny_config
from torch import nn

import mixed_gemm
from mixed_gemm.quantization import DenseCheckpoint
from mixed_gemm.quantization.experts import take_apart
from mixed_gemm.quantization.names import DEFAULT_SKIP, named_as_no_linear, skipped_by
from mixed_gemm.quantization.others import why_no_target
from mixed_gemm.quantization.select import select
from mixed_gemm.weights.scheme import SCHEMES

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
peft = pytest.importorskip("peft", reason="optional: hf extra")

TASKS = (
    "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "QUESTION_ANSWERING",
    "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION", "CAUSAL_LM",
)  # fmt: skip
# What peft trains whole beside the adapters of a task.
TRAINED = {"classifier", "score", "qa_outputs"}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def by_quantize(model: nn.Module) -> set[str]:
    take_apart(model)
    targets, _ = select(model, lambda name, layer: SCHEMES["w8a16"], DEFAULT_SKIP)
    return {name for name, target in targets.items() if isinstance(target.layer, nn.Linear)}


def by_config(model: nn.Module) -> set[str]:
    from mixed_gemm.integrations.transformers.dense import choose

    return set(choose(model, mixed_gemm.MixedGemmConfig("w8a16")).schemes)


def by_names(model: Any) -> set[str]:
    """As the command chooses, of the tensors that a file of the model has."""
    tied, state = model.all_tied_weights_keys, model.state_dict()
    return {
        name.removesuffix(".weight")
        for name, x in state.items()
        if name not in tied
        and x.is_floating_point()
        and not why_no_target(name, tuple(x.shape), DEFAULT_SKIP)
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", TASKS)
def test_every_way_takes_the_same_layers_and_leaves_the_head(task: str) -> None:
    from transformers.models.auto import modeling_auto

    rows = list(registered(getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING")))
    tried = 0
    for _, config_class, model_class in some(iter(rows), max(1, len(rows) // 12)):
        config, reason = tiny_config(model_class, config_class)
        if reason:
            continue
        with torch.device("meta"):
            model = model_class(config)
        taken, name = by_quantize(model), model_class.__name__
        assert not {x for x in taken if TRAINED & set(x.split("."))}, name
        assert taken == by_config(model), name
        # By their names alone some linears look like embeddings, and stay dense; and layers of
        # classes that are not plain look like linears: writing a folder with those is refused.
        by_command, modules = by_names(model), dict(model.named_modules())
        assert {x for x in taken - by_command if not named_as_no_linear(x)} == set(), name
        assert not {x for x in by_command - taken if type(modules[x]) is nn.Linear}, name
        tried += 1
    assert tried >= 2


def tiny(kind: str) -> tuple[Any, str, str, str]:
    """(model, a layer for adapters, the head, the task of peft)."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 4}
    if kind == "Llama":
        config = transformers.LlamaConfig(**sizes, pad_token_id=0, num_labels=3)
        model = transformers.LlamaForSequenceClassification(config)
        return model.eval(), "q_proj", "score", "SEQ_CLS"
    config = transformers.BertConfig(**sizes)
    if kind == "BERT tokens":
        model = transformers.BertForTokenClassification(config)
        return model.eval(), "query", "classifier", "TOKEN_CLS"
    if kind == "BERT answers":
        model = transformers.BertForQuestionAnswering(config)
        return model.eval(), "query", "qa_outputs", "QUESTION_ANS"
    return (
        transformers.BertForSequenceClassification(config).eval(),
        "query",
        "classifier",
        "SEQ_CLS",
    )


@pytest.mark.parametrize("way", ["quantize_", "MixedGemmConfig", "command"])
@pytest.mark.parametrize("kind", ["Llama", "BERT", "BERT tokens", "BERT answers"])
def test_peft_trains_the_head_of_a_task(tmp_path: Path, kind: str, way: str) -> None:
    model, target, head, task = tiny(kind)
    kwargs: dict[str, Any] = {"model_class": type(model), "dtype": torch.float32}
    if way == "quantize_":
        mixed_gemm.quantize_(model, group_size=32, progress=False)
    else:
        model.save_pretrained(tmp_path / "dense")
        folder = tmp_path / "dense"
        if way == "command":
            folder = tmp_path / "quantized"
            mixed_gemm.save_checkpoint(DenseCheckpoint(tmp_path / "dense", group_size=32), folder)
        else:
            kwargs["quantization_config"] = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
        model = mixed_gemm.from_pretrained(folder, **kwargs)
    assert type(model.get_submodule(head)) is nn.Linear
    assert any(isinstance(x, mixed_gemm.Linear) for x in model.modules())
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=4, target_modules=[target], task_type=task)
    )
    trained = {name for name, x in adapted.named_parameters() if x.requires_grad}
    assert any(head in name for name in trained) and any("lora" in name for name in trained)
    tokens = torch.tensor([[1, 5, 7]])
    adapted.train()(input_ids=tokens).logits.sum().backward() if task != "QUESTION_ANS" else (
        adapted.train()(input_ids=tokens).start_logits.sum().backward()
    )
    parameters = dict(adapted.named_parameters())
    assert all(parameters[x].grad is not None for x in trained if head in x and "weight" in x)


def test_a_head_is_quantized_where_that_is_asked_for(tmp_path: Path) -> None:
    model, _, head, _ = tiny("Llama")
    model.save_pretrained(tmp_path)
    assert head in DenseCheckpoint(tmp_path, group_size=32, skip=()).layers
    report = mixed_gemm.quantize_(model, group_size=32, skip=(), progress=False)
    assert head in report.quantized


def test_names_of_embeddings_are_those_at_the_end() -> None:
    for name in ("model.embed_tokens", "h.0.word_embeddings", "rel_pos_emb", "transformer.wte",
                 "xpath_embeddings.3", "shared", "encoder.relative_attention_bias"):  # fmt: skip
        assert named_as_no_linear(name), name
    for name in ("embeddings.projection", "model.embed_tokens_extend.up_proj", "embed_out",
                 "model.shared_expert.up_proj", "embedder.layer.3"):  # fmt: skip
        assert not named_as_no_linear(name), name


def test_names_of_heads() -> None:
    for name in ("lm_head", "score", "classifier", "classifier.dense", "pre_classifier",
                 "classification_head.out_proj", "qa_outputs", "embed_out", "lm_heads.2",
                 "cls.predictions.decoder", "head", "heads.head", "cls_classifier"):  # fmt: skip
        assert skipped_by(name, DEFAULT_SKIP), name
    for name in ("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate_proj",
                 "bert.pooler.dense", "layers.0.multihead_attn.out_proj", "fc"):  # fmt: skip
        assert not skipped_by(name, DEFAULT_SKIP), name
