"""The names by which layers are told apart, of modules and of tensors in files: output heads and
routers, which stay dense by default, and matrices that are no linears.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Sequence

# Output heads are the layers that rounding hurts most (AutoAWQ, GPTQModel and llm-compressor leave
# that of a language model alone by default too), and those of classifiers, tokens and answers are
# what an adapter for a task trains whole (peft's modules_to_save). They are known by the names that
# models of transformers, timm and torchvision give them, with whatever is below.
HEADS = (
    "lm_head",
    "*_head",  # classification_head, audio_head, ...
    "head",
    "*_heads",
    "heads",
    "embed_out",
    "predictions.decoder",
    "logits_dense",
    "score",
    "*classifier*",
    "qa_outputs",
    "*_qass",
    "sequence_summary",
)
# Routers of experts are small, and a little error sends tokens elsewhere.
ROUTERS = ("*router*", "gate", "shared_expert_gate")
# The one statement of what stays dense unless ``skip`` says otherwise: for quantize_, for
# MixedGemmConfig, for the command and for calibrated folders, of which some know names alone.
DEFAULT_SKIP = (*HEADS, *ROUTERS)
# Matrices that are no linear layers, for files without a model: by the last component of their
# name, or the last two.
NOT_LINEAR = (
    *("*embed*", "*Embed*", "*_emb", "*embed*.[0-9]*", "wte", "wpe", "w", "shared"),
    *("relative_attention_bias", "bias_values"),
)
# Experts that a file holds one by one, as linears; models of transformers join them into tensors of
# three dimensions as they load.
EXPERTS = ("experts.[0-9]*",)


def matches(name: str, pattern: str) -> bool:
    """Tell whether a pattern fits any run of whole components: "lm_head" fits "model.lm_head", and
    "layers.0" fits everything below "model.layers.0"."""
    return any(fnmatch.fnmatchcase(run, pattern) for run in _runs(name))


def _runs(name: str) -> list[str]:
    parts = name.split(".")
    count = len(parts)
    return [".".join(parts[i:j]) for i in range(count) for j in range(i + 1, count + 1)]


@functools.lru_cache(maxsize=64)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Find a run of whole components that one of these fits."""
    # A translated pattern ends with the text; here it ends with a component.
    any_of = "|".join(fnmatch.translate(x)[: -len(r"\Z")] for x in patterns)
    return re.compile(rf"(?:\A|(?<=\.))(?:{any_of})(?=\.|\Z)")


def skipped_by(name: str, patterns: Sequence[str]) -> str:
    """Return the first pattern that fits a name; empty when none does."""
    # A mixture has tens of thousands of linears, of which few match.
    if not patterns or _any_of(tuple(patterns)).search(name) is None:
        return ""
    return next((pattern for pattern in patterns if matches(name, pattern)), "")


def is_head(name: str) -> bool:
    """Tell whether a layer is an output head by its name, or is below one."""
    return bool(skipped_by(name, HEADS))


def without_heads(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns less the names of heads, where all of these are among them, as in the
    default; fewer of them are somebody's own wish, and stay."""
    rest = tuple(x for x in patterns if x not in HEADS)
    return rest if set(HEADS) <= set(patterns) else tuple(patterns)


def named_as_no_linear(name: str) -> str:
    """Return the pattern of ``NOT_LINEAR`` that fits the end of a name; empty when none does."""
    if matches(name, "embed_out"):  # the output head of GPT-NeoX
        return ""
    parts = name.split(".")
    ends = {x: ".".join(parts[-1 - x.count(".") :]) for x in NOT_LINEAR}
    return next((x for x, end in ends.items() if fnmatch.fnmatchcase(end, x)), "")
