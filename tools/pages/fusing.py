"""The layers that ``fuse_`` makes one product of, and the MLPs that it lets run in three ops, by
model: the table of docs/fusing.md. A small model of each is built with random weights, quantized
and fused, and counts its products.

It needs the library and transformers.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import Any

from .page import Page, parts
from .table import table

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # transformers reads it once
FILE = "docs/fusing.md"
LAYERS = 2
_SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {**_SIZES, "num_key_value_heads": 2, "head_dim": 16}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
# Class of a model -> its sizes.
MODELS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": _GROUPED,
    "Qwen2ForCausalLM": {**_SIZES, "num_key_value_heads": 2},
    "Qwen3ForCausalLM": _GROUPED,
    "GemmaForCausalLM": _GROUPED,
    "CohereForCausalLM": {**_GROUPED, "eos_token_id": 2},
    "GlmForCausalLM": {**_GROUPED, **_TOKENS},
    "MixtralForCausalLM": {**_GROUPED, "num_local_experts": 4},
    "PhiForCausalLM": _SIZES,
    "Phi3ForCausalLM": {**_SIZES, "num_key_value_heads": 2, **_TOKENS},
    "OPTForCausalLM": {**_SIZES, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "GPT2LMHeadModel": {
        "n_embd": 64, "n_layer": LAYERS, "n_head": 4, "vocab_size": 99, "n_positions": 64, **_TOKENS
    },
    "BertModel": _SIZES,
    "ModernBertModel": {
        **_SIZES, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1, "cls_token_id": 1,
        "sep_token_id": 2,
    },
    "T5ForConditionalGeneration": {
        "d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": LAYERS, "num_heads": 4,
        "vocab_size": 99,
    },
    "ViTForImageClassification": {**_SIZES, "image_size": 32, "patch_size": 8},
}  # fmt: skip


def lacks() -> str:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def model_of(name: str, dtype: Any = None) -> Any:
    """A small model with random weights, the same at every call, quantized, in eval mode."""
    import torch
    import transformers

    import mixed_gemm

    cls: Any = getattr(transformers, name)
    torch.manual_seed(0)
    model = cls(cls.config_class(**MODELS[name])).eval().to(dtype or torch.bfloat16)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # a bias of zeros would show nothing
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    mixed_gemm.quantize_(model, "w4a16", group_size=64, progress=False)
    return model


def products_of(model: Any, batch: Any) -> int:
    """How many products of ours a forward runs."""
    import torch

    from benchmarks.counting import counting

    count = counting("gemm")
    with torch.no_grad(), count:
        model(**batch)
    return int(count.calls)


def rows() -> list[list[str]]:
    import mixed_gemm
    from mixed_gemm.quantization.example import example_of

    made = []
    for name in MODELS:
        model = model_of(name)
        batch = example_of("", "", model, "")
        before = products_of(model, batch)
        report = mixed_gemm.fuse_(model, mlps=False)
        assert not report.sets or report.difference == 0, name
        report = mixed_gemm.fuse_(model, mlps=True)
        sets = dict.fromkeys(_short(x.text) for x in report.sets)
        told = ", ".join(f"`{x}`" for x in sets) or "none: each tensor has one reader"
        made.append([f"`{name}`", told, _mlps(report), f"{before}", f"{products_of(model, batch)}"])
    return made


def _mlps(report: Any) -> str:
    found = {f"`{_short(name)}`: {gate}" for name, gate in report.mlps.items()}
    others = {f"no: {reason}" for reason in report.other_mlps.values()}
    return "; ".join(sorted(found) + sorted(others)) or "no module is an MLP of layers"


def _short(text: str) -> str:
    """Without the name of the block, which ends with its number."""
    return re.split(r"\.\d+\.", text)[-1]


def text() -> str:
    header = [
        "model",
        "layers that have one product",
        "MLP in three ops",
        "products before",
        "after",
    ]
    return table(header, rows())


PAGE = Page({FILE: parts(fusing=text)}, lacks)
