"""Every architecture of transformers that a tiny random configuration can build, with data for it:
a walk over the library's own registry, where sizes are recognised by their names.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, SIDE, PATCH, SAMPLES, FRAMES = 99, 32, 8, 1600, 32
MOST_PARAMETERS = 5_000_000
# Ends of the names of numbers in configurations -> what a tiny model has.
SIZES: tuple[tuple[tuple[str, ...], int], ...] = (
    (("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    (("intermediate_size", "ffn_dim", "d_ff", "mlp_dim", "n_inner", "ffn_hidden_size"), 64),
    (("num_key_value_heads", "num_kv_heads", "n_groups", "mamba_n_groups"), 2),
    (("attention_heads", "n_head", "n_heads", "num_heads", "num_attention_heads"), 4),
    (("head_dim", "d_kv", "dim_head"), 8),
    (("hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
      "depth", "num_blocks", "num_block"), 2),
    (("vocab_size", "type_vocab_size"), VOCABULARY),
    (("position_embeddings", "n_positions", "source_positions", "target_positions", "n_ctx"), 64),
    (("image_size",), SIDE),
    (("patch_size",), PATCH),
    (("num_experts_per_tok", "moe_topk", "top_k"), 2),
    (("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    (("num_mel_bins",), 16),
    (("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "embedding_size", "dim",
      "projection_dim", "lru_width", "d_embed"), 32),
)  # fmt: skip
# Tables of automatic classes, the most telling first.
HEADS = (
    "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "CTC",
    "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "OBJECT_DETECTION", "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION", "SEQUENCE_CLASSIFICATION", "MASKED_LM",
)  # fmt: skip
KINDS = {
    "CAUSAL_LM": "text", "SEQ_TO_SEQ_CAUSAL_LM": "encoder-decoder", "IMAGE_TEXT_TO_TEXT": "modes",
    "SPEECH_SEQ_2_SEQ": "audio", "CTC": "audio", "SEMANTIC_SEGMENTATION": "vision",
    "DEPTH_ESTIMATION": "vision", "OBJECT_DETECTION": "vision", "IMAGE_CLASSIFICATION": "vision",
    "AUDIO_CLASSIFICATION": "audio", "SEQUENCE_CLASSIFICATION": "text", "MASKED_LM": "text",
}  # fmt: skip


@dataclass
class Architecture:
    """A model, in eval mode, and batches for it."""

    name: str
    kind: str
    model: nn.Module
    batches: list[dict[str, Any]]


def names() -> dict[str, str]:
    """Model type -> the table that has it."""
    from transformers.models.auto import modeling_auto

    found: dict[str, str] = {}
    for head in HEADS:
        for name in getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES"):
            found.setdefault(name, head)
    for name in modeling_auto.MODEL_MAPPING_NAMES:
        found.setdefault(name, "")
    return found


def _size(key: str) -> int | None:
    return next(
        (to for ends, to in SIZES if any(key == x or key.endswith(f"_{x}") for x in ends)), None
    )


def _shrunk(options: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    layers = {v for k, v in options.items() if type(v) is int and _size(k) == 2 and v > 2}
    found: dict[str, Any] = {}
    for key, value in options.items():
        small = _size(key)
        if isinstance(value, dict) and (value.get("model_type") or key.endswith("_config")):
            value = _shrunk(value, tokens)
        elif key == "pad_token_id":
            value = 1
        elif type(value) is int and key.endswith("token_id"):
            tokens.append(VOCABULARY - 1 - len(tokens))
            value = tokens[-1]
        elif type(value) is int and small is not None and value > 0:
            value = min(value, small)
        elif isinstance(value, (list, tuple)) and value and all(type(x) is int for x in value):
            if key in ("depths", "layers", "num_layers"):
                value = [min(x, 2) for x in value]
            elif key in ("hidden_sizes", "dims", "embed_dims", "widths"):
                value = [16 * min(i + 1, 2) for i in range(len(value))]
            elif key.endswith(("num_heads", "num_attention_heads")):
                value = [min(x, 2) for x in value]
            elif len(value) in layers:
                value = value[:2]
        elif isinstance(value, (list, tuple)) and len(value) in layers:
            value = value[:2]
        found[key] = value
    return found


def _config(name: str) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    options = _shrunk(kind().to_dict(), [])
    for key in ("torch_dtype", "dtype", "architectures", "transformers_version", "model_type"):
        options.pop(key, None)
    return kind(**options)


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def late(*args: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _model(name: str, head: str) -> nn.Module | None:
    import transformers
    from transformers.models.auto import modeling_auto

    table = f"MODEL_FOR_{head}_MAPPING_NAMES" if head else "MODEL_MAPPING_NAMES"
    kind = getattr(modeling_auto, table)[name]
    kind = getattr(transformers, kind if isinstance(kind, str) else kind[0])
    config = _config(name)
    with torch.device("meta"):
        if sum(p.numel() for p in kind._from_config(config).parameters()) > MOST_PARAMETERS:
            return None
    torch.manual_seed(0)
    model: nn.Module = kind._from_config(config, dtype=torch.float32)
    return model.eval()


def _values(batch: int, generator: torch.Generator) -> dict[str, Tensor]:
    def ids(length: int) -> Tensor:
        return torch.randint(3, 60, (2, length), generator=generator)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    length = 8 + batch  # batches are not all alike
    return {
        "input_ids": ids(length), "decoder_input_ids": ids(5), "text": ids(length),
        "pixel_values": numbers(2, 3, SIDE, SIDE), "input_values": numbers(2, SAMPLES),
        "input_features": numbers(2, 16, FRAMES), "pixel_mask": torch.ones(2, SIDE, SIDE).long(),
        "attention_mask": torch.ones(2, length).long(),
    }  # fmt: skip


RECIPES = (
    ("input_ids", "pixel_values"),
    ("input_ids", "decoder_input_ids"),
    ("input_ids",),
    ("pixel_values",),
    ("input_values",),
    ("input_features", "decoder_input_ids"),
    ("input_features",),
    ("input_values", "decoder_input_ids"),
    ("pixel_values", "decoder_input_ids"),
    ("input_ids", "input_values"),
)


def _batches(model: nn.Module) -> list[dict[str, Any]] | None:
    taken = set(inspect.signature(model.forward).parameters)
    generator = torch.Generator().manual_seed(0)
    values = [_values(i, generator) for i in range(2)]
    for recipe in RECIPES:
        if set(recipe) <= taken:
            found = [{name: x[name] for name in recipe} for x in values]
            with suppress(Exception), torch.no_grad():
                for batch in found:
                    model(**{name: x.clone() for name, x in batch.items()})
                return found
    return None


def built(name: str, head: str, seconds: int = 0) -> Architecture | str:
    """An architecture, or why there is none.

    Args:
        name: its model type. head: the table that has it. seconds: that it may take; 0: any.
    """
    try:
        with _limited(seconds):
            model = _model(name, head)
            if model is None:
                return "no tiny configuration is found"
            batches = _batches(model)
    except (Exception, TimeoutError) as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
    if batches is None:
        return "no data is found for it"
    if not any(type(x) is nn.Linear for x in model.modules()):
        return "it has no linear"
    kind = KINDS.get(head, "")
    if not kind:
        inputs = set(batches[0])
        kind = (
            "modes" if {"input_ids", "pixel_values"} <= inputs
            else "vision" if "pixel_values" in inputs
            else "audio" if inputs & {"input_values", "input_features"}
            else "text"
        )  # fmt: skip
    return Architecture(name, kind, model, batches)
