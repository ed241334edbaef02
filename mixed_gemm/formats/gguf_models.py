"""Models in GGUF files: of which shapes their tensors must be, and the config.json that their
metadata comes to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .gguf_architectures import Mixture, architecture_of
from .gguf_file import Value

MAX_EXPERTS = 4096
_LAYER = re.compile(r"blk\.(\d{1,5})\.(.+)", re.ASCII)
# Tensors of all experts of a layer, of one that they share, or of one by itself, as in older files.
_EXPERTS = re.compile(r"exps$|shexp$|ffn_\w+\.\d+$", re.ASCII).search
_TOKENS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}


class GgufModel:
    """The model of a file, as its metadata tells of it.

    Args:
        metadata: as :class:`GgufContainer` has it.
        shapes: of the tensors, by their names in the file.

    Attributes:
        architecture: the row of ARCHITECTURES.
        sizes: "hidden", "queries", ... -> elements.

    Raises:
        ValueError: the architecture is not read, or something that it needs is missing or another
            than transformers computes.
    """

    def __init__(
        self, metadata: Mapping[str, Value | None], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._metadata = metadata
        self._shapes = shapes
        self._name = metadata.get("general.architecture")
        self.architecture = architecture_of(self._name, self._get("expert_count", int, 0))
        self._heads = self._count("attention.head_count")
        self._key_heads = self._count("attention.head_count_kv", self._heads)
        hidden = self._count("embedding_length")
        head = self._count("attention.key_length", hidden // self._heads)
        self.sizes = {
            "hidden": hidden,
            "one": 1,
            "head": head,
            "queries": self._heads * head,
            "keys": self._key_heads * head,
            "vocabulary": next(iter(shapes.get("token_embd.weight", ())), 0),
            **self._widths(self.architecture.mixture),
        }
        self._layers = self._count_layers()
        self._refuse_what_differs()

    # --- metadata ------------------------------------------------------------------------------

    def _get(self, key: str, kind: type, default: Value | None = None) -> Any:
        found = self._metadata.get(f"{self._name}.{key}", default)
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            raise ValueError(f"{self._name}.{key} must be one {kind.__name__}, got {found!r}")
        return found

    def _count(self, key: str, default: int | None = None) -> int:
        found: int = self._get(key, int, default)
        if not 0 < found < 2**31:
            raise ValueError(f"{self._name}.{key} must be in 1..2^31, got {found}")
        return found

    def _positive(self, key: str, default: float | None = None) -> float:
        found: float = self._get(key, float, default)
        if not 0 < found < math.inf:
            raise ValueError(f"{self._name}.{key} must be positive and finite, got {found}")
        return found

    def _widths(self, mixture: Mixture | None) -> dict[str, int]:
        """The rows of gates, and how many experts there are. Where a file says less of them,
        llama.cpp takes them to be as wide, together, as a dense layer."""
        if mixture is None:
            return {"intermediate": self._count("feed_forward_length")}
        count, used = self._count("expert_count"), self._count("expert_used_count")
        if not used <= count <= MAX_EXPERTS:
            raise ValueError(
                f"{self._name}.expert_used_count is {used} of {count} experts, at most "
                f"{MAX_EXPERTS} are read"
            )
        if mixture.width == "intermediate_size":
            width = self._count("feed_forward_length")
            return {"intermediate": width, "experts": count, "used": used, "expert": width}
        said = self._get("expert_feed_forward_length", int, 0)
        width = self._count("feed_forward_length", said * used)
        return {
            "intermediate": width,
            "experts": count,
            "used": used,
            "expert": said or width // used,
            "shared": self._count("expert_shared_feed_forward_length", width),
        }

    def _count_layers(self) -> int:
        """As many as there are tensors of: a model of a billion layers is never made."""
        layers = self._count("block_count")
        found = {int(match[1]) for match in map(_LAYER.fullmatch, self._shapes) if match}
        if found != set(range(min(layers, len(self._shapes) + 1))):
            raise ValueError(
                f"{self._name}.block_count is {layers}, and it has tensors of {len(found)} layers"
            )
        return layers

    def _refuse_what_differs(self) -> None:
        head = self.sizes["head"]
        others: dict[str, Value] = {"attention.value_length": head, "rope.dimension_count": head}
        if (mixture := self.architecture.mixture) is not None:
            others |= {
                "expert_gating_func": 1,  # softmax
                "expert_weights_norm": mixture.normalizes,
                "expert_weights_scale": 1.0,
                "expert_group_count": 1,
                "leading_dense_block_count": 0,
            }
        for key, wanted in others.items():
            if (found := self._get(key, type(wanted), wanted)) != wanted:
                raise ValueError(f"{self._name}.{key} is {found}; only {wanted} is read")
        if head % 2 or self._heads % self._key_heads:
            raise ValueError(
                f"{self._heads} heads of {head} with {self._key_heads} of keys are not read"
            )

    # --- tensors -------------------------------------------------------------------------------

    def named(self, name: str) -> tuple[list[str], tuple[int, ...]]:
        """The name in transformers of a tensor of the file, and its shape there; of one that holds
        all experts of a layer, the name and shape of each expert's part.

        Raises:
            ValueError: the architecture has no such tensor, or of another shape.
        """
        module, _, role = name.rpartition(".")
        number, pattern = "", module
        if match := _LAYER.fullmatch(module):
            number, pattern = match[1], f"blk.{{}}.{match[2]}"
        target, extents = self.architecture.names.get(pattern, ("", ()))
        roles = ("weight",) if len(extents) == 3 else ("weight", "bias")
        if not extents or role not in roles:
            kind = "holds experts in a form that is not read: it " if _EXPERTS(pattern) else ""
            raise ValueError(f"{kind}is no tensor of the architecture {self._name} that is read")
        wanted = tuple(self.sizes[x] for x in (extents if role == "weight" else extents[:1]))
        fitting = (wanted, wanted[1:]) if extents[0] == "one" else (wanted,)
        if self._shapes[name] not in fitting:
            raise ValueError(f"must be of the shape {wanted}, got {self._shapes[name]}")
        if len(wanted) < 3:
            return [f"{target.format(number, 0)}.{role}"], wanted
        parts = [f"{target.format(number, expert)}.{role}" for expert in range(wanted[0])]
        return parts, wanted[1:]

    def row_order(self, name: str) -> Tensor | None:
        """int64 ``[N]``: row i of transformers' tensor is this row of the file's; None where they
        are the same.

        Rotary embeddings turn pairs of elements: 2 i and 2 i + 1 of a head in such files, i and
        i + head / 2 in transformers.
        """
        match = _LAYER.fullmatch(name)
        kind = match[2].partition(".")[0] if match else ""
        heads = {"attn_q": self._heads, "attn_k": self._key_heads}.get(kind)
        if heads is None or not self.architecture.paired_rows:
            return None
        head = self.sizes["head"]
        rows = torch.arange(heads * head, device="cpu").view(heads, head // 2, 2)
        return rows.transpose(1, 2).flatten()

    # --- the config ----------------------------------------------------------------------------

    def config(self, rope_factors: Tensor | None) -> dict[str, Any]:
        """As config.json of transformers has it.

        Args:
            rope_factors: float ``[head / 2]``, by which the file divides the frequencies, or None.

        Raises:
            ValueError: the rope scaling is none that is read.
        """
        config: dict[str, Any] = {
            "architectures": [self.architecture.model_class],
            "model_type": self.architecture.model_type,
            # d of Q4_0 and Q8_0 is a float16 number; see docs/checkpoints.md.
            "dtype": "float16",
            "vocab_size": self.sizes["vocabulary"],
            "hidden_size": self.sizes["hidden"],
            "intermediate_size": self.sizes["intermediate"],
            **self._mixture_config(),
            "num_hidden_layers": self._layers,
            "num_attention_heads": self._heads,
            "num_key_value_heads": self._key_heads,
            "head_dim": self.sizes["head"],
            "max_position_embeddings": self._count("context_length"),
            "rms_norm_eps": self._positive("attention.layer_norm_rms_epsilon"),
            "rope_parameters": self._rope(rope_factors),
            "tie_word_embeddings": "output.weight" not in self._shapes,
        }
        if self.architecture.says_bias:
            config["attention_bias"] = "blk.0.attn_q.bias" in self._shapes
        for key, name in _TOKENS.items():
            found = self._metadata.get(f"tokenizer.ggml.{name}_token_id")
            config[key] = found if type(found) is int else None
        return config

    def _mixture_config(self) -> dict[str, Any]:
        mixture = self.architecture.mixture
        if mixture is None:
            return {}
        found: dict[str, Any] = {
            mixture.count: self.sizes["experts"],
            "num_experts_per_tok": self.sizes["used"],
            mixture.width: self.sizes["expert"],
        }
        if mixture.shared:
            found[mixture.shared] = self.sizes["shared"]
        return {**found, "norm_topk_prob": mixture.normalizes} if mixture.says_so else found

    def _rope(self, factors: Tensor | None) -> dict[str, Any]:
        base = self._positive("rope.freq_base", 10000.0)
        kind = self._get("rope.scaling.type", str, "none")
        if kind == "linear" and factors is None:
            factor = self._positive("rope.scaling.factor")
            return {"rope_type": "linear", "rope_theta": base, "factor": factor}
        if kind != "none":
            raise ValueError(f"rope scaling of the type {kind!r} is not read; none and linear are")
        if factors is None:
            return {"rope_type": "default", "rope_theta": base}
        return {"rope_type": "llama3", "rope_theta": base, **llama3_scaling(base, factors)}


def llama3_scaling(base: float, factors: Tensor) -> dict[str, float | int]:
    """The parameters of transformers' "llama3" that give these factors.

    Files have the factors alone. Llama 3.1 to 3.3 have 1, 4 and 8192 for the others, and
    ``factor`` is that of the longest wave.

    Raises:
        ValueError: those parameters give other factors.
    """
    low, high, context = 1.0, 4.0, 8192
    factor = float(factors.max())
    count = factors.numel()
    waves = 2 * math.pi * base ** (torch.arange(count, dtype=torch.float64, device="cpu") / count)
    smooth = ((context / waves - low) / (high - low)).clamp(0, 1)
    wanted = 1 / ((1 - smooth) / factor + smooth)
    if not bool((wanted / factors.double() - 1).abs().max() < 1e-4):
        raise ValueError("its rope_freqs are not those of Llama 3.1 to 3.3, which are read")
    return {
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }
